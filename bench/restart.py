#!/usr/bin/env python3
"""Measures the time from a start to the first answer after kill -9: `tallyring-bench restart`, whose increments are in the
log only, and Redis loading an AOF of as many, on keys drawn alike: one HINCRBY each for the total alone, and three for the
total and its two subtotals, which is what Tallyring counts. A peer that is not installed is skipped by name.

Install the peer with: apt-get install redis-server
Build the programs with: cargo build --release --locked -p tallyring -p tallyring-bench
Usage: restart.py [--runs N] [--increments N] target/release
"""

import argparse
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from peers import ROWS, Peer, click, free_port

BODIES = 500


def answers(port):
    """True when Redis serves: while it loads it answers everything with an error."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def fill(port, increments, fields):
    """Sends the increments, by 1,000 and waits for the answers."""
    dice = random.Random(1)

    def commands():
        key, country, referrer = click(dice)
        words = ((b"HINCRBY", b"k%d" % key, field, b"1") for field in (b"total", b"c%d" % country, b"r%d" % referrer)[:fields])
        return [b"*4\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in each) for each in words]

    bodies = [[command for _ in range(ROWS) for command in commands()] for _ in range(BODIES)]
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        for number, begin in enumerate(range(0, increments, ROWS)):
            body = bodies[number % BODIES][: (increments - begin) * fields]
            connection.sendall(b"".join(body))
            missing = len(body)
            while missing > 0:
                received = connection.recv(1 << 16)
                if not received or b"-" in received:
                    raise OSError(f"redis answered {received[:200]!r}")
                missing -= received.count(b"\n")


def redis(options, directory, name, fields):
    # No rewrite of the AOF: the increments are in the log only, as Tallyring's are.
    port = free_port()
    command = ("redis-server", "--port", str(port), "--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "everysec",
               "--auto-aof-rewrite-percentage", "0", "--save", "")
    with Peer(*command, port=port, cwd=directory, ready=answers) as server:
        fill(port, options.increments, fields)
        server.process.kill()
    seconds = []
    for _ in range(options.runs):
        began = time.monotonic()
        with Peer(*command, port=port, cwd=directory, ready=answers) as server:
            seconds.append(time.monotonic() - began)
            server.process.kill()
    each = " ".join(f"{second:.2f}" for second in seconds)
    name = f"redis, AOF, {options.increments} {name}"
    print(f"{name:<47} {statistics.median(seconds):>11.2f} s        {each}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", help="the directory of tallyring and tallyring-bench")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--increments", type=int, default=10_000_000)
    options = parser.parse_args()
    command = [f"{options.programs}/tallyring-bench", "restart"]
    subprocess.run([*command, "--runs", str(options.runs), "--increments", str(options.increments)], check=True)
    if shutil.which("redis-server") is None:
        print("skipped: redis (redis-server not installed)", file=sys.stderr)
        return
    for name, fields in (("totals", 1), ("totals and subtotals", 3)):
        with tempfile.TemporaryDirectory(prefix="tallyring-peer-") as directory:
            redis(options, directory, name, fields)


if __name__ == "__main__":
    main()
