"""Three nodes under load, of which the one that writes is killed:

    python3 nodes.py PROGRAM DIRECTORY --kills N [--engines ENGINES]
    python3 nodes.py PROGRAM DIRECTORY --strands N
    python3 nodes.py PROGRAM DIRECTORY --engines ENGINES --seconds N [--strands N]

The environment names the engines, as `tests/cluster/engines.sh start` prints them. Each increment has an id and is sent
until a node acknowledges it. Then every node must have counted each of them once. ENGINES is the directory in which
that script keeps the ids of its processes: with it the writer, the broker and the server of the bucket are stopped for
a while, one after the other. With several strands each node is killed once, because each writes some of them. With
`--seconds` all that runs is killed, stopped or cut off in turn for so long, and more than a node or engine at a time.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

NODES = [1, 2, 3]
SENDERS = 6
# Increments of one request, and of one where a run is long.
BATCH = 5
LONG_BATCH = 100
# Requests that count for one key.
KEY_REQUESTS = 50
# Seconds of load before each kill, and after the last.
CALM_S = 6
# The longest time in which another node takes the log over, seconds.
TAKE_OVER_S = 10
# The longest time in which a writer that ends in good order hands over, seconds.
HAND_OVER_S = 3
# Increments that a long run acknowledges at least, and its longest time without one while a majority of brokers is
# there, seconds.
LONG_RUN = (1_000_000, 15)
# How long anything may take before the test gives up, seconds.
PATIENCE_S = 90


class Failed(Exception):
    pass


class Node:
    """One process, and the directory that it has for all its lives."""

    def __init__(self, program, directory, number, run, kafka=None):
        self.program, self.number = program, number
        self.port = free_port()
        self.data = os.path.join(directory, f"node-{number}")
        self.config = os.path.join(directory, f"node-{number}.toml")
        self.log = os.path.join(directory, f"node-{number}.log")
        self.process = None
        brokers = json.dumps((kafka or os.environ["TALLYRING_KAFKA"]).split(","))
        bucket = json.dumps(f"{os.environ['TALLYRING_S3']}/{run}")
        with open(self.config, "w") as file:
            file.write(
                f'listen = "127.0.0.1:{self.port}"\n[cluster]\nnode = "{number}"\n'
                f'address = "http://127.0.0.1:{self.port}"\nlog.kafka = {brokers}\nlog.topic = "{run}"\n'
                f"files.s3 = {bucket}\n"
            )

    def start(self):
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                [self.program, "serve", "--data", self.data, "--config", self.config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "NO_COLOR": "1"},
            )

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def ask(self, method, path, body=None, timeout=15):
        """Status and body; none where the node does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def wrote(self):
        """The last epoch in which it began to write, 0 where it never did."""
        with open(self.log) as log:
            epochs = re.findall(r"this node writes the log.*?epoch=(\d+)", log.read())
        return max(map(int, epochs), default=0)

    def end_of_log(self):
        with open(self.log) as log:
            return "".join(log.readlines()[-15:])


class Load:
    """Sends until it is told to stop. Each request is tried at one node after the other until one acknowledges it."""

    def __init__(self, nodes, batch):
        self.nodes, self.batch = nodes, batch
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.acknowledged = {}
        # The last acknowledgement while a majority of brokers was there, or the time since when one is there.
        self.last = None
        self.gap_s = 0.0
        self.has_majority = True
        self.wrong = []
        self.threads = [
            threading.Thread(target=self.send, args=(number,)) for number in range(SENDERS)
        ] + [threading.Thread(target=self.read)]

    def start(self):
        for thread in self.threads:
            thread.start()

    def send(self, sender):
        request, at = 0, sender
        while not self.stop.is_set():
            key = f"s{sender}-{request // KEY_REQUESTS}"
            items = [
                {"keys": {"l": key}, "id": f"s{sender}-{request}-{item}"} for item in range(self.batch)
            ]
            body = json.dumps(items)
            give_up = time.monotonic() + PATIENCE_S
            while True:
                answer = self.nodes[at % len(self.nodes)].ask("POST", "/v1/increments", body)
                at += 1
                if answer and answer[0] == 200:
                    break
                if answer and answer[0] != 503:
                    self.wrong.append(f"status {answer[0]}: {answer[1][:300]}")
                    return
                if time.monotonic() > give_up:
                    self.wrong.append(f"not acknowledged in {PATIENCE_S} s: {answer}")
                    return
                time.sleep(0.02)
            request += 1
            self.note(key)

    def note(self, key):
        now = time.monotonic()
        with self.lock:
            if self.has_majority:
                if self.last is not None:
                    self.gap_s = max(self.gap_s, now - self.last)
                self.last = now
            self.acknowledged[key] = self.acknowledged.get(key, 0) + self.batch

    def read(self):
        """Reads a key of each node again and again: as long as a node answers, no count of it sinks."""
        last = {}
        while not self.stop.wait(0.1):
            with self.lock:
                key = next(reversed(self.acknowledged), None)
            for node in self.nodes if key else []:
                answer = node.ask("GET", f"/v1/l/{key}/counts?unit=day&units=2", timeout=5)
                if answer is None or answer[0] != 200:
                    last.pop(node.number, None)
                    continue
                total = json.loads(answer[1])["total"]
                known, before = last.get(node.number, (key, 0))
                if known == key and total < before:
                    self.wrong.append(f"node {node.number} counted {before} of {key}, and {total} later")
                last[node.number] = (key, total)

    def set_majority(self, has_majority):
        """Says whether a majority of brokers is there from now on."""
        with self.lock:
            self.has_majority, self.last = has_majority, time.monotonic()

    def take_gap(self):
        """The longest time without an acknowledgement since the last call, seconds."""
        with self.lock:
            now = time.monotonic()
            gap_s, self.gap_s = max(self.gap_s, now - self.last), 0.0
            return gap_s

    def total(self):
        with self.lock:
            return sum(self.acknowledged.values())

    def wait_for_more(self, what):
        """Waits until more is acknowledged than what was on its way; seconds."""
        begun, before = time.monotonic(), self.total()
        enough = 3 * SENDERS * self.batch
        wait_for(f"increments are acknowledged {what}", lambda: self.total() > before + enough)
        return time.monotonic() - begun

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()


def free_port():
    """A port below those that connections take at any time."""
    while True:
        port = 20_000 + int.from_bytes(os.urandom(2), "little") % 12_000
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def wait_for(what, look, seconds=PATIENCE_S):
    until = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > until:
            raise Failed(f"waited {seconds} s: {what}")
        time.sleep(0.05)


def is_ready(node):
    if node.process.poll() is not None:
        raise Failed(f"node {node.number} ended with {node.process.returncode}")
    answer = node.ask("GET", "/readyz", timeout=2)
    return answer is not None and answer[0] == 200


def writer_after(nodes, epoch):
    """The node that began to write in a later epoch than this, with its epoch."""
    newest = max(nodes, key=Node.wrote)
    return (newest, newest.wrote()) if newest.wrote() > epoch else None


def counted(node, key):
    answer = node.ask("GET", f"/v1/l/{key}/counts?unit=day&units=2")
    if answer is None or answer[0] != 200:
        raise Failed(f"node {node.number} does not tell the counts of {key}: {answer}")
    return json.loads(answer[1])["total"]


def compare(nodes, acknowledged):
    """What the nodes lost and counted twice; all must say the same in the end."""
    lines = []
    for node in nodes:
        # A node that follows has the last increments within moments.
        def has_all():
            totals = {key: counted(node, key) for key in acknowledged}
            return totals if sum(totals.values()) >= sum(acknowledged.values()) else None

        try:
            totals = wait_for("the last increments", has_all, 10)
        except Failed:
            totals = {key: counted(node, key) for key in acknowledged}
        apart = [totals[key] - acknowledged[key] for key in acknowledged]
        twice = sum(more for more in apart if more > 0)
        lost = -sum(less for less in apart if less < 0)
        lines.append((sum(totals.values()), twice, lost))
    return max(lines, key=lambda line: line[1] + line[2])


class Engine:
    """A broker or the server of the bucket, which `engines.sh` started."""

    def __init__(self, engines, name, at):
        self.engines, self.name, self.at = engines, name, address(at)

    def pid(self):
        with open(os.path.join(self.engines, f"{self.name}.pid")) as file:
            return int(file.read())

    def kill(self):
        os.kill(self.pid(), signal.SIGKILL)

    def start(self):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "engines.sh")
        subprocess.run([script, "again", self.name], stdin=subprocess.DEVNULL, check=True)

        def listens():
            with socket.socket() as probe:
                return probe.connect_ex(self.at) == 0

        wait_for(f"{self.name} listens", listens)


def engines_of(directory):
    """The brokers, and the server of the bucket."""
    brokers = enumerate(os.environ["TALLYRING_KAFKA"].split(","), 1)
    bucket = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
    return [Engine(directory, f"kafka-{number}", at) for number, at in brokers], Engine(directory, "s3", bucket)


class Cut:
    """Passes on what a node sends to the brokers, and their answers, unless it is cut off."""

    def __init__(self):
        self.lock = threading.Lock()
        self.is_cut, self.open = False, set()
        fronts, backs = (os.environ[f"TALLYRING_KAFKA_{name}"].split(",") for name in ("CUT", "BEHIND"))
        for front, back in zip(fronts, backs):
            server = socket.create_server(address(front))
            threading.Thread(target=self.accept, args=(server, address(back)), daemon=True).start()

    def accept(self, server, back):
        while True:
            came, _ = server.accept()
            with self.lock:
                is_cut = self.is_cut
            try:
                if is_cut:
                    raise ConnectionError
                on = socket.create_connection(back)
            except OSError:
                came.close()
                continue
            with self.lock:
                self.open |= {came, on}
            for pair in ((came, on), (on, came)):
                threading.Thread(target=self.pass_on, args=pair, daemon=True).start()

    def pass_on(self, from_, to):
        try:
            while data := from_.recv(1 << 16):
                to.sendall(data)
        except OSError:
            pass
        for end in (from_, to):
            close(end)
        with self.lock:
            self.open -= {from_, to}

    def cut(self):
        with self.lock:
            self.is_cut, ends = True, list(self.open)
        for end in ends:
            close(end)

    def join(self):
        with self.lock:
            self.is_cut = False


def close(end):
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def trouble(nodes, load, engines, seconds):
    """Kills, stops and cuts off in turn all there is. The last node is the one that may be cut off."""
    brokers, bucket = engines_of(engines)
    node, broker = itertools.cycle(nodes).__next__, itertools.cycle(brokers).__next__

    def writer():
        return max(nodes, key=Node.wrote)

    def follower():
        wrote = writer()
        return next(other for other in iter(node, None) if other is not wrote)

    def killed(*things, away_s=0):
        for thing in things:
            thing.kill()
        time.sleep(away_s)
        for thing in things:
            thing.start()

    def killed_two_brokers():
        load.set_majority(False)
        killed(broker(), broker(), away_s=5)
        load.set_majority(True)

    def stopped(pid, seconds):
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    def cut_off():
        nodes[-1].cut.cut()
        time.sleep(20)
        nodes[-1].cut.join()

    faults = [
        ("killed the writer", lambda: killed(writer(), away_s=10)),
        ("killed a broker", lambda: killed(broker(), away_s=10)),
        ("cut a node off", cut_off),
        ("killed a follower", lambda: killed(follower(), away_s=5)),
        ("stopped the writer", lambda: stopped(writer().process.pid, 12)),
        ("killed the server of the bucket", lambda: killed(bucket, away_s=15)),
        ("killed two nodes", lambda: killed(node(), node(), away_s=5)),
        ("killed the writer and a broker", lambda: killed(writer(), broker(), away_s=5)),
        ("killed two brokers", killed_two_brokers),
        ("killed a node and the server of the bucket", lambda: killed(bucket, node(), away_s=5)),
        ("stopped the server of the bucket", lambda: stopped(bucket.pid(), 20)),
        ("stopped a broker", lambda: stopped(broker().pid(), 12)),
        ("stopped a follower", lambda: stopped(follower().process.pid, 12)),
    ]
    load.start()
    load.wait_for_more("at first")
    until, done, longest_s = time.monotonic() + seconds, 0, load.take_gap()
    for what, fault in itertools.cycle(faults):
        time.sleep(CALM_S)
        if time.monotonic() > until:
            break
        before, begun = load.total(), time.monotonic()
        fault()
        meanwhile, took_s = load.total() - before, time.monotonic() - begun
        after_s = load.wait_for_more(f"after a test {what}")
        for at in nodes:
            wait_for(f"node {at.number} is ready again", lambda: is_ready(at))
        gap_s = load.take_gap()
        longest_s = max(longest_s, gap_s)
        print(
            f"{what}: {meanwhile} increments acknowledged in {took_s:.0f} s meanwhile, more {after_s:.1f} s after; "
            f"none for {gap_s:.1f} s",
            flush=True,
        )
        done += 1
    print(f"{done} faults", flush=True)
    load.gap_s = max(longest_s, load.take_gap())


def stop_each(nodes, load, engines):
    """Stops the writer, the broker and the server of the bucket for a while, and lets the writer end in good order."""
    writer = max(nodes, key=Node.wrote)
    brokers, bucket = engines_of(engines)
    stopped = [
        ("the writer", writer.process.pid, 12),
        ("the broker", brokers[0].pid(), 15),
        ("the server of the bucket", bucket.pid(), 30),
    ]
    for what, process, seconds in stopped:
        before = load.total()
        os.kill(process, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(process, signal.SIGCONT)
        meanwhile, resumed = load.total(), time.monotonic()
        wait_for(
            f"increments are acknowledged after {what} was stopped",
            lambda: load.total() > meanwhile + SENDERS * load.batch,
        )
        print(
            f"stopped {what} for {seconds} s: {meanwhile - before} increments acknowledged meanwhile, more "
            f"{time.monotonic() - resumed:.1f} s after",
            flush=True,
        )
        time.sleep(CALM_S)
    writer = max(nodes, key=Node.wrote)
    epoch = writer.wrote()
    begun = time.monotonic()
    leaving = subprocess.Popen(
        [writer.program, "cluster", "leave", "--data", writer.data], stdin=subprocess.DEVNULL
    )
    writer_after_it, _ = wait_for("another node writes", lambda: writer_after(nodes, epoch))
    took_s = time.monotonic() - begun
    print(
        f"ended node {writer.number}; node {writer_after_it.number} writes {took_s:.1f} s later", flush=True
    )
    if took_s > HAND_OVER_S:
        raise Failed(f"the writer handed over after {took_s:.1f} s")
    if leaving.wait(PATIENCE_S) != 0:
        raise Failed(f"`cluster leave` failed with {leaving.returncode}")
    if writer.process.wait(PATIENCE_S) != 0:
        raise Failed(f"node {writer.number} ended with {writer.process.returncode}")
    writer.start()
    wait_for(f"node {writer.number} is ready again", lambda: is_ready(writer))


def kill_writers(nodes, load, kills):
    """Kills the node that writes the only strand; the slowest take-over, seconds."""
    writer, epoch = wait_for("a node writes", lambda: writer_after(nodes, 0))
    load.start()
    slowest_s = 0.0
    for _ in range(kills):
        time.sleep(CALM_S)
        writer.kill()
        killed = time.monotonic()
        before = writer
        writer, epoch = wait_for("another node writes", lambda: writer_after(nodes, epoch))
        took_s = time.monotonic() - killed
        slowest_s = max(slowest_s, took_s)
        print(
            f"killed node {before.number}; node {writer.number} writes epoch {epoch} {took_s:.1f} s later",
            flush=True,
        )
        before.start()
        wait_for(f"node {before.number} is ready again", lambda: is_ready(before))
    return slowest_s


def kill_each(nodes, load):
    """Kills one node after the other; the longest until the others wrote all strands, seconds. A request has ids of
    several strands, so requests are acknowledged only while all strands are written."""
    load.start()
    wait_for("all strands are written", lambda: load.total() > SENDERS * load.batch)
    slowest_s = 0.0
    for node in nodes:
        time.sleep(CALM_S)
        node.kill()
        took_s = load.wait_for_more("by the others")
        slowest_s = max(slowest_s, took_s)
        print(f"killed node {node.number}; the others write all strands {took_s:.1f} s later", flush=True)
        node.start()
        wait_for(f"node {node.number} is ready again", lambda: is_ready(node))
    return slowest_s


def run(nodes, options):
    made = subprocess.run(
        [nodes[0].program, "cluster", "init", "--config", nodes[0].config, "--strands", str(options.strands)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    print(made.stdout + made.stderr, end="", flush=True)
    if made.returncode != 0:
        raise Failed("the store could not be made")
    for node in nodes:
        node.start()
    for node in nodes:
        wait_for(f"node {node.number} is ready", lambda: is_ready(node))
    load, slowest_s = Load(nodes, LONG_BATCH if options.seconds else BATCH), 0.0
    try:
        if options.seconds:
            trouble(nodes, load, options.engines, options.seconds)
        elif options.strands == 1:
            slowest_s = kill_writers(nodes, load, options.kills)
        else:
            slowest_s = kill_each(nodes, load)
        if options.engines and not options.seconds:
            stop_each(nodes, load, options.engines)
        time.sleep(CALM_S)
    finally:
        load.end()
    if load.wrong:
        raise Failed("; ".join(load.wrong[:3]))
    total, twice, lost = compare(nodes, load.acknowledged)
    for node in nodes:
        node.process.terminate()
    ended = [node.process.wait(PATIENCE_S) for node in nodes]
    if any(ended):
        raise Failed(f"nodes ended with {ended}")
    acknowledged = sum(load.acknowledged.values())
    print(
        f"acknowledged {acknowledged} counted {total} twice {twice} lost {lost} max_write_gap_s {load.gap_s:.1f}",
        flush=True,
    )
    if twice or lost or slowest_s > TAKE_OVER_S:
        raise Failed(f"twice {twice}, lost {lost}, the slowest take-over {slowest_s:.1f} s")
    least, longest_s = LONG_RUN
    if options.seconds and (acknowledged < least or load.gap_s > longest_s):
        raise Failed(f"a run of {options.seconds} s acknowledges {least}, with no more than {longest_s} s between")


@contextlib.contextmanager
def ended(nodes):
    """Kills the nodes that are left. After a failure their logs are told, and the script ends."""
    try:
        yield
    except Failed as failed:
        for node in nodes:
            if os.path.exists(node.log):
                print(f"-- node {node.number}\n{node.end_of_log()}", file=sys.stderr)
        sys.exit(f"{os.path.basename(sys.argv[0])}: {failed}")
    finally:
        for node in nodes:
            if node.process and node.process.poll() is None:
                node.kill()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("directory")
    for name, default in (("kills", 2), ("strands", 1), ("seconds", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--engines")
    options = parser.parse_args()
    name = f"t{os.getpid()}-{time.time_ns()}"
    nodes = [Node(options.program, options.directory, number, name) for number in NODES]
    if options.seconds:
        kafka = os.environ["TALLYRING_KAFKA_CUT"]
        nodes[-1] = Node(options.program, options.directory, NODES[-1], name, kafka)
        nodes[-1].cut = Cut()
    with ended(nodes):
        run(nodes, options)


if __name__ == "__main__":
    main()
