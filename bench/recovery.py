#!/usr/bin/env python3
"""How soon Tally counts again after a kill -9, under load.

    bench/recovery.py TALLY [KILLS]     TALLY: the binary; settings come from TALLY__ variables

Starts `TALLY serve` in a new folder, keeps sending to it, kills it, starts it again at once, and
takes the time until a total holds an event that was acknowledged after the start. In the end the
total of the load must be what was acknowledged, or more by no more than the requests in doubt.
"""

import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

PORT = 18082
SUBJECTS = 5_000


class Load(threading.Thread):
    """Sends batches of 500 events until it is stopped; what was not answered is sent no more."""

    def __init__(self):
        super().__init__(daemon=True)
        self.stopped, self.acknowledged, self.in_doubt, self.next = False, 0, 0, 0

    def run(self):
        while not self.stopped:
            lines = []
            for _ in range(500):
                lines.append('{"kind":"view","subject":"post:%d"}\n' % (self.next % SUBJECTS))
                self.next += 7
            status = request("POST", "/v1/events", "".join(lines))[0]
            if status == 200:
                self.acknowledged += 500
            elif status is None or status == 503:
                self.in_doubt += 500


def request(method, path, body=None):
    """Status and body; a status of None if no answer came."""
    try:
        server = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
        server.request(method, path, body, {"content-type": "application/x-ndjson"})
        answer = server.getresponse()
        return answer.status, answer.read()
    except OSError:
        time.sleep(0.02)
        return None, b""
    except http.client.HTTPException:
        return None, b""


def total(subject):
    status, body = request("GET", f"/v1/counters/view/{subject}")
    return int(json.loads(body)["total"]) if status == 200 else 0


def start(binary, folder):
    settings = {
        "TALLY__LISTEN": f"127.0.0.1:{PORT}",
        "TALLY__DATA_DIR": folder,
        "TALLY__AGGREGATOR__ID": "recovery",
    }
    return subprocess.Popen([binary, "serve"], env=os.environ | settings, stderr=subprocess.DEVNULL)


def counts_again(probe):
    while request("POST", "/v1/events", '{"kind":"view","subject":"%s"}' % probe)[0] != 200:
        pass
    while total(probe) < 1:
        time.sleep(0.02)


def main(binary, kills):
    with tempfile.TemporaryDirectory(dir=".") as folder:
        server = start(binary, folder)
        counts_again("probe:first")
        load = Load()
        load.start()
        took = []
        for kill in range(kills):
            time.sleep(8)
            server.kill()
            server.wait()
            started = time.time()
            server = start(binary, folder)
            counts_again(f"probe:{kill}")
            took.append(time.time() - started)
            print(f"kill {kill + 1}: counting again after {took[-1]:.1f} s", flush=True)
        load.stopped = True
        load.join()
        deadline, counted = time.time() + 120, 0
        while counted < load.acknowledged and time.time() < deadline:
            time.sleep(2)
            counted = sum(total(f"post:{n}") for n in range(SUBJECTS))
        server.kill()
    extra = counted - load.acknowledged
    print(
        f"the longest {max(took):.1f} s; {load.acknowledged} events acknowledged, {load.in_doubt} in "
        f"doubt, {counted} counted"
    )
    return 0 <= extra <= load.in_doubt


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(0 if main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5) else 1)
