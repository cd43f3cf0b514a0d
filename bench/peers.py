#!/usr/bin/env python3
"""Measures increments and batches of Tallyring and of the peers that are installed, one after the other, all by
`tallyring-bench load`, but ClickHouse, whose answers come in chunks, by threads of this script and PostgreSQL by its
own pgbench. A peer that is not installed is skipped by name.

Install the peers with: apt-get install redis-server webdis victoria-metrics influxdb clickhouse-server postgresql
Build the programs with: cargo build --release --locked -p tallyring -p tallyring-bench
Usage: peers.py [--runs N] [--seconds S] target/release
"""

import argparse
import collections
import concurrent.futures
import glob
import hashlib
import http.client
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

# Debian keeps PostgreSQL's programs beside the path.
os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], *sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)])

KEYS, COUNTRIES, REFERRERS = 200_000, 16, 500
USERS, DOMAINS, DEVICES = 20_000, 50, 3
ROWS, BODIES = 1_000, 100


def click(dice):
    """A key of Zipf's kind, a country, a referrer."""
    return int(KEYS ** dice.random()), dice.randrange(COUNTRIES), dice.randrange(REFERRERS)


def click_of_three(dice):
    """A click on a link, of a user and a domain, which has ten counters: each key's total, country and referrer, and
    the link's device."""
    user, domain, device = int(USERS ** dice.random()), int(DOMAINS ** dice.random()), dice.randrange(DEVICES)
    return *click(dice), user, domain, device


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


class Peer:
    """A process in a directory of its own, ready when entered and ended on exit."""

    def __init__(self, *command, port, cwd, user=None, ready=listens):
        self.process = subprocess.Popen(command, cwd=cwd, user=user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self.process.poll() is None:
            if ready(port):
                return
            time.sleep(0.01)
        self.process.kill()
        raise OSError(f"{command[0]} does not answer on port {port}")

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
            [f"{options.programs}/tallyring-bench", "load", name, f"127.0.0.1:{port}", file.name, "--connections", str(connections),
             "--counts", str(counts), "--runs", str(options.runs), "--seconds", str(options.seconds)],
            check=True,
        )


def posts_a_second(port, requests, connections, seconds):
    """Posts the requests in turn as fast as answers come and returns how many came a second."""
    began = time.monotonic()

    def client(first):
        connection, answered = http.client.HTTPConnection("127.0.0.1", port, timeout=60), 0
        while time.monotonic() < began + seconds:
            request = requests[(first + answered * connections) % len(requests)]
            connection.request("POST", request["target"], request["body"], {"Content-Type": request["type"]})
            answer = connection.getresponse()
            said = answer.read()
            if answer.status != 200:
                raise OSError(f"status {answer.status}: {said[:200].decode(errors='replace')}")
            answered += 1
        connection.close()
        return answered

    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        return sum(pool.map(client, range(connections))) / (time.monotonic() - began)


def show(name, rates):
    each = " ".join(f"{rate:.0f}" for rate in rates)
    print(f"{name:<47} {statistics.median(rates):>11.0f} counts/s {each}", flush=True)


def tallyring(options, directory):
    dice, port = random.Random(1), free_port()
    with Peer(f"{options.programs}/tallyring", "serve", "--data", directory, "--listen", f"127.0.0.1:{port}", port=port, cwd=directory):
        clicks = (click(dice) for _ in range(8_192))
        singles = [{"target": f"/v1/incr?key.u=k{k}&by.c=C{c}&by.r=site{r}.example"} for k, c, r in clicks]
        load(options, "tallyring, increments, fsync", port, singles, 64, 1)
        clicks = (click_of_three(dice) for _ in range(8_192))
        singles = [{"target": f"/v1/incr?key.l=k{k}&key.u=u{u}&key.d=d{d}-example&by.c=C{c}&by.r=site{r}-example&by.v=v{v}"}
                   for k, c, r, u, d, v in clicks]
        load(options, "tallyring, increments of ten counters, fsync", port, singles, 64, 1)

        def body():
            lines = ('{"keys":{"u":"k%d"},"by":{"c":"C%d","r":"site%d.example"}}' % click(dice) for _ in range(ROWS))
            return {"target": "/v1/increments", "type": "application/x-ndjson", "body": "\n".join(lines)}

        load(options, "tallyring, batches, counters, fsync", port, [body() for _ in range(BODIES)], 8, 3 * ROWS)


COUNT_TEN = """for _, key in ipairs(KEYS) do
redis.call('HINCRBY', key, 'total', 1)
redis.call('HINCRBY', key, ARGV[1], 1)
redis.call('HINCRBY', key, ARGV[2], 1)
end
redis.call('HINCRBY', KEYS[1], ARGV[3], 1)
"""


def webdis(options, directory):
    for fsync in ("everysec", "always"):
        apart = os.path.join(directory, fsync)
        os.mkdir(apart)
        webdis_with(options, apart, fsync)


def webdis_with(options, directory, fsync):
    dice, redis_port, port = random.Random(1), free_port(), free_port()
    config = os.path.join(directory, "webdis.json")
    with open(config, "w") as file:
        json.dump({"redis_host": "127.0.0.1", "redis_port": redis_port, "http_host": "127.0.0.1", "http_port": port,
                   "threads": 2, "pool_size": 20, "daemonize": False, "verbosity": 0, "logfile": "webdis.log"}, file)
    redis = ("redis-server", "--port", str(redis_port), "--bind", "127.0.0.1", "--appendonly", "yes",
             "--appendfsync", fsync, "--save", "")
    with Peer(*redis, port=redis_port, cwd=directory), Peer("webdis", config, port=port, cwd=directory):
        clicks = (click(dice) for _ in range(8_192))
        singles = [{"target": f"/HINCRBY/k{k}/now/1"} for k, _, _ in clicks]
        load(options, f"redis behind webdis, HINCRBY, AOF {fsync}", port, singles, 64, 1)
        urllib.request.urlopen(f"http://127.0.0.1:{port}/SCRIPT/LOAD/{urllib.parse.quote(COUNT_TEN, safe='')}").read()
        script = hashlib.sha1(COUNT_TEN.encode()).hexdigest()
        clicks = (click_of_three(dice) for _ in range(8_192))
        singles = [{"target": f"/EVALSHA/{script}/3/l:k{k}/u:u{u}/d:d{d}-example/C{c}/site{r}-example/v{v}"}
                   for k, c, r, u, d, v in clicks]
        load(options, f"redis behind webdis, ten counters, AOF {fsync}", port, singles, 64, 1)


def csv_bodies(target):
    """Bodies of a row a counter: key, what is counted, how many."""
    dice = random.Random(1)

    def body():
        rows = []
        for _ in range(ROWS):
            key, country, referrer = click(dice)
            rows += [f"k{key},total,1", f"k{key},c{country},1", f"k{key},r{referrer},1"]
        return {"target": target, "type": "text/csv", "body": "\n".join(rows)}

    return [body() for _ in range(BODIES)]


def victoria_metrics(options, directory):
    port = free_port()
    command = ("victoria-metrics", f"-httpListenAddr=127.0.0.1:{port}", "-storageDataPath=data")
    bodies = csv_bodies("/api/v1/import/csv?format=1:label:k,2:label:by,3:metric:n")
    with Peer(*command, port=port, cwd=directory):
        load(options, "victoria-metrics, CSV, counters", port, bodies, 8, 3 * ROWS)


def influxdb(options, directory):
    dice, port, rpc = random.Random(1), free_port(), free_port()
    config = os.path.join(directory, "influxdb.conf")
    with open(config, "w") as file:
        file.write(f'reporting-disabled = true\nbind-address = "127.0.0.1:{rpc}"\n[meta]\ndir = "meta"\n[data]\ndir = "data"\n'
                   f'wal-dir = "wal"\n[http]\nbind-address = "127.0.0.1:{port}"\nlog-enabled = false\n')
    with Peer("influxd", "run", "-config", config, port=port, cwd=directory):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/query", data=b"q=CREATE+DATABASE+bench").read()

        def body():
            rows = []
            for _ in range(ROWS):
                key, country, referrer = click(dice)
                rows += [f"total,k=k{key} n=1", f"c,k=k{key},v=c{country} n=1", f"r,k=k{key},v=r{referrer} n=1"]
            return {"target": "/write?db=bench", "type": "text/plain", "body": "\n".join(rows)}

        load(options, "influxdb, line protocol, counters", port, [body() for _ in range(BODIES)], 8, 3 * ROWS)


def clickhouse(options, directory):
    port, config = free_port(), os.path.join(directory, "config.xml")
    with open(config, "w") as file:
        file.write(f"<yandex><listen_host>127.0.0.1</listen_host><http_port>{port}</http_port><path>{directory}/data/</path>"
                   f"<tmp_path>{directory}/tmp/</tmp_path><mark_cache_size>1000000000</mark_cache_size><logger><level>none</level></logger>"
                   "<users_config>config.xml</users_config><profiles><default/></profiles><quotas><default/></quotas><users><default>"
                   "<password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota>"
                   "</default></users></yandex>")
    # Small bodies at full speed make more parts than it allows as set up: it would delay them, then refuse them.
    table = ("CREATE TABLE counters (k String, by String, hour DateTime DEFAULT toStartOfHour(now()), n UInt64) "
             "ENGINE = SummingMergeTree() PARTITION BY tuple() ORDER BY (k, by, hour) "
             "SETTINGS parts_to_delay_insert = 1000000, parts_to_throw_insert = 1000000")
    bodies = csv_bodies("/?query=INSERT+INTO+counters(k,by,n)+FORMAT+CSV")
    with Peer("clickhouse-server", f"--config-file={config}", port=port, cwd=directory):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", data=table.encode()).read()
        rates = [3 * ROWS * posts_a_second(port, bodies, 8, options.seconds) for _ in range(options.runs)]
        show("clickhouse, CSV, SummingMergeTree, counters", rates)


def postgresql(options, directory):
    """A statement of upserts a body: what a body counts twice is added up before, which is not measured. All statements
    go through the rows in one order, that none waits for another in a circle, and the hot keys come last."""
    dice, port = random.Random(1), free_port()
    # It does not run as root.
    user = {"user": "postgres"} if os.geteuid() == 0 else {}
    if user:
        shutil.chown(directory, "postgres")
    data = os.path.join(directory, "data")
    subprocess.run(["initdb", "--no-locale", "--auth=trust", "--username=postgres", data], cwd=directory,
                   stdout=subprocess.DEVNULL, check=True, **user)
    scripts = [f"body{number}.sql" for number in range(BODIES)]
    for script in scripts:
        counters = collections.Counter()
        for _ in range(ROWS):
            key, country, referrer = click(dice)
            counters.update([(key, "total"), (key, f"c{country}"), (key, f"r{referrer}")])
        rows = ",".join(f"('k{key}','{by}',1,{n})" for (key, by), n in sorted(counters.items(), reverse=True))
        with open(os.path.join(directory, script), "w") as file:
            file.write(f"INSERT INTO counters AS c VALUES {rows} ON CONFLICT (k, by, hour) DO UPDATE SET n = c.n + excluded.n;\n")
    server = ("postgres", "-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", "", "-c", "fsync=on", "-c", "synchronous_commit=on",
              "-c", "shared_buffers=1GB", "-c", "max_wal_size=8GB")
    environment = os.environ | {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": "postgres", "PGDATABASE": "postgres"}

    def ready(_):
        return subprocess.run(["pg_isready", "-q"], env=environment).returncode == 0

    with Peer(*server, port=port, cwd=directory, ready=ready, **user):
        table = "CREATE TABLE counters (k text, by text, hour int, n bigint, PRIMARY KEY (k, by, hour))"
        subprocess.run(["psql", "-qc", table], env=environment, check=True)
        bench = ["pgbench", "-n", "-c", "2", "-j", "2", "-T", str(max(1, round(options.seconds))),
                 *(f"--file={script}" for script in scripts)]
        rates = []
        for _ in range(options.runs):
            said = subprocess.run(bench, cwd=directory, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
            rates.append(3 * ROWS * float(re.search(r"^tps = ([\d.]+)", said, re.MULTILINE)[1]))
        show("postgresql, upserts, counters, synchronous", rates)


PEERS = [
    ((), tallyring),
    (("redis-server", "webdis"), webdis),
    (("victoria-metrics",), victoria_metrics),
    (("influxd",), influxdb),
    (("clickhouse-server",), clickhouse),
    (("initdb", "postgres", "pg_isready", "psql", "pgbench"), postgresql),
]


def measure_all(peers, options):
    """Lets each of `peers`, pairs of programs and a function, measure in a directory of its own."""
    options.programs = os.path.abspath(options.programs)
    for programs, measure in peers:
        missing = [program for program in programs if shutil.which(program) is None]
        if missing:
            print(f"skipped: {measure.__name__} ({' and '.join(missing)} not installed)", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(prefix="tallyring-peer-") as directory:
            try:
                measure(options, directory)
            except (OSError, LookupError, subprocess.CalledProcessError) as error:
                print(f"skipped: {measure.__name__} ({error})", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", help="the directory of tallyring and tallyring-bench")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    measure_all(PEERS, parser.parse_args())


if __name__ == "__main__":
    main()
