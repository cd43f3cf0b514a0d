#!/usr/bin/env python3
"""Measures questions of what users did, and caps, of Tallyring by `tallyring-bench actions`, and then of Redis by its own
redis-benchmark, as recipes for frequency caps have it: a hash for each user and UTC day, a field for each entity and
action, and scripts that count, read and check. So Redis knows calendar days alone: neither a range of an hour, nor a view,
nor an action that came twice. It writes nothing to a disk here. What is not installed is skipped by name.

Install the peer with: apt-get install redis-server
Build the programs with: cargo build --release --locked -p tallyring -p tallyring-bench
Usage: caps.py [--users N] [--each N] [--runs N] [--seconds S] target/release
"""

import argparse
import csv
import statistics
import subprocess

from peers import Peer, free_port, measure_all

ADS, CANDIDATES, TODAY, PIPELINE = 10_000, 20, 20_500, 100
RANDOM = "__rand_int__"
# redis-benchmark draws numbers evenly, with leading zeros; few ads are seen often.
DRAWN = "local function ad(drawn) return math.floor(%d ^ (tonumber(drawn) / %d)) - 1 end\n"
KEY = "local function key(day) return 'u' .. ARGV[1] .. ':' .. day end\n"

COUNT = """local ad = ad(ARGV[2])
for name, level in pairs({a = 1, g = 10, c = 100, v = 1000}) do
redis.call('HINCRBY', key(%d), name .. math.floor(ad / level) .. 'i', 1)
end
redis.call('EXPIRE', key(%d), 32 * 86400)
""" % (TODAY, TODAY)

# Sums over today, 7 and 30 days for every candidate, in one step.
READ = """local fields, sums, answer = {}, {}, {}
for place = 2, #ARGV do fields[place - 1] = 'a' .. ad(ARGV[place]) .. 'i'; sums[place - 1] = 0 end
for back = 0, 29 do
local counts = redis.call('HMGET', key(%d - back), unpack(fields))
for place, count in ipairs(counts) do sums[place] = sums[place] + (tonumber(count) or 0) end
if back == 0 or back == 6 or back == 29 then
for place, sum in ipairs(sums) do answer[#answer + 1] = sum end
end
end
return answer
""" % TODAY

# The first candidate that was seen less than three times today is counted in the same step.
RESERVE = """for place = 2, #ARGV do
local field = 'a' .. ad(ARGV[place]) .. 'i'
if (tonumber(redis.call('HGET', key(%d), field)) or 0) < 3 then
redis.call('HINCRBY', key(%d), field, 1)
return place - 1
end
end
return 0
""" % (TODAY, TODAY)


def show(what, unit, runs):
    each = " ".join(f"{run:.2f}" if run < 100 else f"{run:.0f}" for run in runs)
    middle = statistics.median(runs)
    print(f"{what:<54} {middle:>10.{2 if middle < 100 else 0}f} {unit:<8} {each}", flush=True)


def tallyring(options, _):
    subprocess.run([f"{options.programs}/tallyring-bench", "actions", "--users", str(options.users), "--each", str(options.each),
                    "--runs", str(options.runs), "--seconds", str(options.seconds)], check=True, stderr=subprocess.DEVNULL)


class Redis:
    """A server that is asked by redis-benchmark and redis-cli."""

    def __init__(self, options, port):
        self.options, self.port = options, str(port)
        self.common = DRAWN % (ADS, options.users) + KEY

    def say(self, *words):
        return subprocess.run(["redis-cli", "-p", self.port, *words], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def script(self, text):
        name = self.say("SCRIPT", "LOAD", self.common + text)
        if len(name) != 40:
            raise OSError(f"redis does not take a script: {name}")
        return name

    def memory(self, name):
        lines = self.say("INFO", "memory").splitlines()
        return next(int(line.split(":")[1]) for line in lines if line.startswith(f"{name}:"))

    def ask(self, requests, connections, pipeline, *words):
        """Sends the words so often, each word RANDOM another number; returns requests a second and the p99 in ms."""
        command = ["redis-benchmark", "-p", self.port, "-r", str(self.options.users), "-n", str(requests), "-c", str(connections),
                   "-P", str(pipeline), "--csv", *words]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        row = list(csv.DictReader(said.splitlines()))[-1]
        return float(row["rps"]), float(row["p99_latency_ms"])

    def measure(self, what, connections, pipeline, *words):
        """Asks for about as many seconds as are wanted, as fast as answers come."""
        few, _ = self.ask(20_000, connections, pipeline, *words)
        runs = [self.ask(int(few * self.options.seconds), connections, pipeline, *words) for _ in range(self.options.runs)]
        show(what, "user/s", [rate for rate, _ in runs])
        show("  p99 at the full rate", "ms", [p99 for _, p99 in runs])


def redis(options, directory):
    port = free_port()
    command = ("redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
    with Peer(*command, port=port, cwd=directory):
        server = Redis(options, port)
        count, read, reserve = server.script(COUNT), server.script(READ), server.script(RESERVE)
        if server.say("EVALSHA", reserve, "0", "1", "2") != "1" or server.say("EVALSHA", read, "0", "1", "2").split() != ["1"] * 3:
            raise OSError("redis does not count what it reserves")
        actions, before = options.users * options.each, [server.memory(name) for name in ("used_memory", "used_memory_rss")]
        rate, _ = server.ask(actions, 4, PIPELINE, "EVALSHA", count, "0", RANDOM, RANDOM)
        show("redis: actions by a script, four entities each", "action/s", [rate])
        after = [server.memory(name) for name in ("used_memory", "used_memory_rss")]
        for name, first, last in zip(("as the server counts it", "resident"), before, after):
            show(f"redis: memory of an action, {name}", "bytes", [(last - first) / actions])
        candidates = [RANDOM] * CANDIDATES
        for connections in (16, 64):
            over = f"{connections} connections"
            fields = [f"a{RANDOM}i"] * CANDIDATES
            server.measure(f"redis: HMGET of a day, 20 candidates, {over}", connections, 1, "HMGET", f"u{RANDOM}:{TODAY}", *fields)
            server.measure(f"redis: script, 20 candidates, 3 ranges, {over}", connections, 1, "EVALSHA", read, "0", RANDOM, *candidates)
            server.measure(f"redis: script, check and count, {over}", connections, 1, "EVALSHA", reserve, "0", RANDOM, *candidates)
        server.measure(f"redis: the first script, {PIPELINE} users at once", 16, PIPELINE, "EVALSHA", read, "0", RANDOM, *candidates)


PEERS = [((), tallyring), (("redis-server", "redis-benchmark", "redis-cli"), redis)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", help="the directory of tallyring and tallyring-bench")
    parser.add_argument("--users", type=int, default=50_000)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    measure_all(PEERS, parser.parse_args())


if __name__ == "__main__":
    main()
