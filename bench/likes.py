#!/usr/bin/env python3
"""How fast likes become totals, on a running Tally.

    bench/likes.py PORT LOAD EVENTS

LOAD: `views` (a view of each of EVENTS subjects), `cold` (a like of each of EVENTS subjects), `large`
(likes by different actors, uniform over 200 subjects), `hot` (likes of one subject by EVENTS actors).
Sends NDJSON of 1,000 over 8 connections, shuffled, and waits until all of it is in the facts.
"""

import http.client
import json
import random
import sys
import threading
import time
from datetime import datetime

BATCH = 1_000

LOADS = {
    "views": lambda n: f'{{"kind":"view","subject":"v:{n}"}}',
    "cold": lambda n: f'{{"kind":"like","subject":"c:{n}","actor":"u{n % 977}"}}',
    "large": lambda n: f'{{"kind":"like","subject":"l:{n % 200}","actor":"u{n}"}}',
    "hot": lambda n: f'{{"kind":"like","subject":"hot:1","actor":"u{n}"}}',
}


def connection(port):
    return http.client.HTTPConnection("127.0.0.1", port, timeout=60)


def send(port, bodies):
    server = connection(port)
    for body in bodies:
        status = None
        while status != 200:
            server.request("POST", "/v1/events", body, {"content-type": "application/x-ndjson"})
            answer = server.getresponse()
            answer.read()
            status = answer.status


def total(server):
    server.request("GET", "/v1/counters/like/hot:1")
    return json.loads(server.getresponse().read())


def main(port, load, events):
    lines = [LOADS[load](n) for n in range(events)]
    random.Random(1).shuffle(lines)
    bodies = ["\n".join(lines[at : at + BATCH]) for at in range(0, events, BATCH)]
    started = time.time()
    senders = [threading.Thread(target=send, args=(port, bodies[k::8])) for k in range(8)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    sent = time.time()
    server = connection(port)
    while time.time() < sent + 300:
        as_of = total(server)["as_of"]
        if as_of and datetime.fromisoformat(as_of.replace("Z", "+00:00")).timestamp() > sent:
            break
        time.sleep(0.1)
    took = time.time() - started
    print(f"{load}: {events} sent in {sent - started:.1f} s, in the facts after {took:.1f} s: ", end="")
    print(f"{events / took:.0f}/s")
    if load == "hot":
        time.sleep(1.1)  # what is cached is older than it may be
        counted = int(total(server)["total"])
        assert counted == events, f"the total is {counted}"


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[2] not in LOADS:
        sys.exit(__doc__)
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
