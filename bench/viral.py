#!/usr/bin/env python3
"""One of a million counters goes viral: rate, spread and latency before, during and after.

    bench/viral.py TALLY [SVG]     TALLY: the binary, embedded in a new folder

Views of a million counters at a steady rate all the while; for 15 of 75 seconds one of them gets
far more than all others together. Prints a line a second, draws them if a file is named, and
compares the total of the viral counter with what was acknowledged.
"""

import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

PORT = 18084
SECONDS, BURST = 75, range(10, 25)
SLOT_RATE = 5_000


def server():
    return http.client.HTTPConnection("127.0.0.1", PORT, timeout=20)


class Sender(threading.Thread):
    """Sends a body at a steady rate; notes when each request was answered, and how long it took."""

    def __init__(self, bodies, pause, seconds):
        super().__init__(daemon=True)
        self.bodies, self.pause, self.seconds, self.answered = bodies, pause, seconds, []

    def run(self):
        connection, due = server(), time.monotonic()
        while True:
            due += self.pause
            time.sleep(max(0, due - time.monotonic()))
            second = time.monotonic() - STARTED
            if second >= SECONDS:
                return
            if int(second) not in self.seconds:
                continue
            began = time.monotonic()
            body = random.choice(self.bodies)
            connection.request("POST", "/v1/events", body, {"content-type": "application/x-ndjson"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            self.answered.append((began - STARTED, time.monotonic() - began))


def get(path):
    connection = server()
    connection.request("GET", path)
    return connection.getresponse().read().decode()


def spread():
    for line in get("/metrics").splitlines():
        if line.startswith("tally_ingest_widest_spread "):
            return int(float(line.split()[1]))
    return 1


def view(subject):
    return '{"kind":"view","subject":"%s"}\n' % subject


def draw(path, rows):
    """Three plots, one above the other, as SVG."""
    panels = [
        ("events a second on the viral counter", [row[1] for row in rows]),
        ("slots that it is dealt over", [row[2] for row in rows]),
        ("p99 of a request of the others, ms", [row[3] for row in rows]),
    ]
    width, height, left = 720, 120, 60
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + left + 20} '
        f'{3 * (height + 50) + 20}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (title, values) in enumerate(panels):
        top, most = 30 + number * (height + 50), max(max(values), 1)
        x = lambda second: left + width * second / SECONDS
        y = lambda value: top + height - height * value / most
        begin, end = x(BURST.start), x(BURST.stop)
        points = " ".join(f"{x(row[0]):.1f},{y(v):.1f}" for row, v in zip(rows, values))
        out += [
            f'<rect x="{begin}" y="{top}" width="{end - begin}" height="{height}" fill="#fde8d0"/>',
            f'<text x="{left}" y="{top - 8}" font-weight="bold">{title}</text>',
            f'<text x="{left - 6}" y="{top + 10}" text-anchor="end">{most:,.0f}</text>',
            f'<text x="{left - 6}" y="{top + height}" text-anchor="end">0</text>',
            f'<path d="M{left} {top}V{top + height}H{left + width}" fill="none" stroke="#999"/>',
            f'<polyline points="{points}" fill="none" stroke="#1f6feb" stroke-width="2"/>',
        ]
        for second in range(0, SECONDS + 1, 10):
            out.append(f'<text x="{x(second)}" y="{top + height + 15}" text-anchor="middle">'
                       f"{second} s</text>")
    with open(path, "w") as file:
        file.write("\n".join(out + ["</svg>\n"]))


def main():
    global STARTED
    folder = tempfile.TemporaryDirectory(dir=".")
    settings = {
        "TALLY__DATA_DIR": folder.name,
        "TALLY__LISTEN": f"127.0.0.1:{PORT}",
        "TALLY__INGEST__SLOT_RATE": str(SLOT_RATE),
        "TALLY__PARTITIONS": "64",
    }
    log = open(os.devnull, "w")
    tally = subprocess.Popen([sys.argv[1], "serve"], env={**os.environ, **settings}, stderr=log)
    try:
        time.sleep(2)
        random.seed(1)
        cold = ["".join(view(f"video:{random.randrange(1_000_000)}") for _ in range(100))
                for _ in range(2_000)]
        STARTED = time.monotonic()
        others = [Sender(cold, 0.02, range(SECONDS)) for _ in range(4)]
        viral = [Sender([view("viral") * 200], 0.02, BURST) for _ in range(6)]
        for sender in others + viral:
            sender.start()
        rows = []
        for second in range(SECONDS):
            time.sleep(max(0, STARTED + second + 1 - time.monotonic()))
            of = lambda senders: [took for sender in senders for began, took in sender.answered
                                  if int(began) == second]
            times = sorted(of(others)) or [0]
            p99 = 1_000 * times[int(len(times) * 0.99)]
            rows.append((second, 200 * len(of(viral)), spread(), p99))
            print("%3d s  %7d/s  spread %2d  p99 %6.1f ms" % rows[-1], flush=True)
        time.sleep(5)
        acknowledged = 200 * sum(len(sender.answered) for sender in viral)
        answer = json.loads(get("/v1/counters/view/viral?shards=true"))
        print(f"total {answer['total']} in {len(answer['shards'])} partitions, "
              f"acknowledged {acknowledged}")
        assert int(answer["total"]) == acknowledged
        if len(sys.argv) > 2:
            draw(sys.argv[2], rows)
    finally:
        tally.kill()
        tally.wait()


if __name__ == "__main__":
    main()
