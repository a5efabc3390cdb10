#!/usr/bin/env python3
"""A million events through a running Tally, against an independent count of the same file.

    bench/million.py make FILE [EVENTS]          an NDJSON file: Zipf over 50,000 subjects
    bench/million.py send FILE INGEST READER     send it in batches, then compare every total

Exit code 0 only if every total equals the count of the file.
"""

import collections
import http.client
import itertools
import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlparse

BATCH = 1000


def make(path, events):
    rng = random.Random(20261121)
    weights = list(itertools.accumulate(1 / rank for rank in range(1, 50_001)))
    with open(path, "w") as out:
        for rank in rng.choices(range(1, 50_001), cum_weights=weights, k=events):
            event = {"kind": rng.choice(["view", "view", "view", "reply"]), "subject": f"post:{rank}"}
            if rng.random() < 0.1:
                event["delta"] = rng.randint(2, 9)
            out.write(json.dumps(event) + "\n")


def connection(url):
    parsed = urlparse(url)
    return http.client.HTTPConnection(parsed.hostname, parsed.port, timeout=120)


def post(connection, body):
    while True:
        connection.request("POST", "/v1/events", body, {"content-type": "application/x-ndjson"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 429:
            break
        time.sleep(0.1)  # nothing was taken
    assert answer.status == 200, (answer.status, text[:300])


def send_share(url, batches):
    ingest = connection(url)
    for batch in batches:
        post(ingest, "".join(batch))


def get(reader, path):
    reader.request("GET", path)
    return json.loads(reader.getresponse().read())


def send(path, ingest, reader_url):
    with open(path) as lines:
        events = lines.readlines()
    truth = collections.Counter()
    for line in events:
        event = json.loads(line)
        truth[event["kind"], event["subject"]] += event.get("delta", 1)
    batches = [events[at : at + BATCH] for at in range(0, len(events), BATCH)]
    started = time.time()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: send_share(ingest, batches[n::8]), range(8)))
    sent = time.time()
    reader = connection(reader_url)
    while True:
        as_of = get(reader, "/v1/counters/view/post:1")["as_of"]
        if as_of and as_of >= time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(sent + 1)):
            break
        time.sleep(0.1)
    settled = time.time()
    wrong = 0
    for subject in {subject for _, subject in truth}:
        counters = get(reader, f"/v1/subjects/{subject}")["counters"]
        for kind in ("view", "reply"):
            total = int(counters.get(kind, {"total": 0})["total"])
            if total != truth[kind, subject]:
                wrong += 1
                print(f"{kind} {subject}: {total}, the file has {truth[kind, subject]}")
    print(
        f"{len(events)} events, {len(truth)} counters: sent in {sent - started:.1f} s "
        f"({len(events) / (sent - started):.0f}/s), all in the totals {settled - sent:.1f} s later, "
        f"{wrong} totals wrong"
    )
    return wrong == 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", path, *rest]:
            make(path, int(rest[0]) if rest else 1_000_000)
        case ["send", path, ingest, reader]:
            sys.exit(0 if send(path, ingest, reader) else 1)
        case _:
            sys.exit(__doc__)
