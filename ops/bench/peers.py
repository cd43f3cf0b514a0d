#!/usr/bin/env python3
"""Measures increments and batches of Tallyring and of the peers that are installed, one after the other, all by
`tallyring bench load`. A peer that is not installed is skipped by name.

Install the peers with: apt-get install redis-server webdis victoria-metrics influxdb
Usage: peers.py [--runs N] [--seconds S] path/to/tallyring
"""

import argparse
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time

KEYS, COUNTRIES, REFERRERS = 200_000, 16, 500
ROWS = 1_000


def click(dice):
    """A key of Zipf's kind, a country, a referrer."""
    return int(KEYS ** dice.random()), dice.randrange(COUNTRIES), dice.randrange(REFERRERS)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Peer:
    """A process in a directory of its own, ended on exit."""

    def __init__(self, *command, port, cwd):
        self.process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        self.process.kill()
        raise OSError(f"{command[0]} does not listen on port {port}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def load(options, name, port, requests, connections, counts):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(request) + "\n" for request in requests)
        file.flush()
        subprocess.run(
            [options.tallyring, "bench", "load", name, f"127.0.0.1:{port}", file.name, "--connections", str(connections),
             "--counts", str(counts), "--runs", str(options.runs), "--seconds", str(options.seconds)],
            check=True,
        )


def tallyring(options, directory):
    dice, port = random.Random(1), free_port()
    with Peer(options.tallyring, "serve", "--data", directory, "--listen", f"127.0.0.1:{port}", port=port, cwd=directory):
        clicks = (click(dice) for _ in range(8_192))
        singles = [{"target": f"/v1/incr?key.u=k{k}&by.c=C{c}&by.r=site{r}.example"} for k, c, r in clicks]
        load(options, "tallyring, increments, fsync", port, singles, 64, 1)

        def body():
            lines = ('{"keys":{"u":"k%d"},"by":{"c":"C%d","r":"site%d.example"}}' % click(dice) for _ in range(ROWS))
            return {"target": "/v1/increments", "type": "application/x-ndjson", "body": "\n".join(lines)}

        load(options, "tallyring, batches, counters, fsync", port, [body() for _ in range(100)], 8, 3 * ROWS)


def webdis(options, directory):
    dice, redis_port, port = random.Random(1), free_port(), free_port()
    config = os.path.join(directory, "webdis.json")
    with open(config, "w") as file:
        json.dump({"redis_host": "127.0.0.1", "redis_port": redis_port, "http_host": "127.0.0.1", "http_port": port,
                   "threads": 2, "pool_size": 20, "daemonize": False, "verbosity": 0, "logfile": "webdis.log"}, file)
    redis = ("redis-server", "--port", str(redis_port), "--bind", "127.0.0.1", "--appendonly", "yes",
             "--appendfsync", "everysec", "--save", "")
    with Peer(*redis, port=redis_port, cwd=directory), Peer("webdis", config, port=port, cwd=directory):
        clicks = (click(dice) for _ in range(8_192))
        singles = [{"target": f"/HINCRBY/k{k}/now/1"} for k, _, _ in clicks]
        load(options, "redis behind webdis, HINCRBY, AOF everysec", port, singles, 64, 1)


def victoria_metrics(options, directory):
    dice, port = random.Random(1), free_port()
    command = ("victoria-metrics", f"-httpListenAddr=127.0.0.1:{port}", "-storageDataPath=data")
    target = "/api/v1/import/csv?format=1:label:k,2:label:by,3:metric:n"
    with Peer(*command, port=port, cwd=directory):
        def body():
            rows = []
            for _ in range(ROWS):
                key, country, referrer = click(dice)
                rows += [f"k{key},total,1", f"k{key},c{country},1", f"k{key},r{referrer},1"]
            return {"target": target, "type": "text/csv", "body": "\n".join(rows)}

        load(options, "victoria-metrics, CSV, counters", port, [body() for _ in range(100)], 8, 3 * ROWS)


def influxdb(options, directory):
    dice, port, rpc = random.Random(1), free_port(), free_port()
    config = os.path.join(directory, "influxdb.conf")
    with open(config, "w") as file:
        file.write(f'reporting-disabled = true\nbind-address = "127.0.0.1:{rpc}"\n[meta]\ndir = "meta"\n[data]\ndir = "data"\n'
                   f'wal-dir = "wal"\n[http]\nbind-address = "127.0.0.1:{port}"\nlog-enabled = false\n')
    with Peer("influxd", "run", "-config", config, port=port, cwd=directory):
        import urllib.request

        urllib.request.urlopen(f"http://127.0.0.1:{port}/query", data=b"q=CREATE+DATABASE+bench").read()

        def body():
            rows = []
            for _ in range(ROWS):
                key, country, referrer = click(dice)
                rows += [f"total,k=k{key} n=1", f"c,k=k{key},v=c{country} n=1", f"r,k=k{key},v=r{referrer} n=1"]
            return {"target": "/write?db=bench", "type": "text/plain", "body": "\n".join(rows)}

        load(options, "influxdb, line protocol, counters", port, [body() for _ in range(100)], 8, 3 * ROWS)


PEERS = [
    ((), tallyring),
    (("redis-server", "webdis"), webdis),
    (("victoria-metrics",), victoria_metrics),
    (("influxd",), influxdb),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tallyring")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    options.tallyring = os.path.abspath(options.tallyring)
    for programs, measure in PEERS:
        missing = [program for program in programs if shutil.which(program) is None]
        if missing:
            print(f"skipped: {measure.__name__} ({' and '.join(missing)} not installed)", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(prefix="tallyring-peer-") as directory:
            try:
                measure(options, directory)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"skipped: {measure.__name__} ({error})", file=sys.stderr)


if __name__ == "__main__":
    main()
