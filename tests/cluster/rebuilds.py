"""A node that never writes rebuilds for the one that does, until one of the two hangs or is killed:

    python3 rebuilds.py PROGRAM DIRECTORY

The environment names the engines, as `tests/cluster/engines.sh start` prints them. Each rebuild counts everything once
on both nodes, and the job tells which of them did it.
"""

import contextlib
import json
import os
import signal
import sys
import time

from moved import succeed
from nodes import Failed, Node, ended, is_ready, wait_for, writer_after

KEYS = 20
DONE = "the rebuild for the node that writes is done"


def send(writer, first, last):
    """Sends increments of the day before yesterday, which the next rebuild takes in."""
    at = int(time.time()) - 2 * 86_400
    for key in range(KEYS):
        items = [
            {"keys": {"l": f"k{key}"}, "id": f"{key}-{item}", "at": at} for item in range(first, last)
        ]

        def is_counted():
            answer = writer.ask("POST", "/v1/increments", json.dumps(items))
            return answer and answer[0] == 200

        wait_for("increments are acknowledged", is_counted)


def begin(writer):
    """The number of the rebuild that begins."""
    status, body = writer.ask("POST", "/v1/admin/rebuild", "")
    if status != 202:
        raise Failed(f"no rebuild began: {status} {body}")
    return json.loads(body)["job"]


def job_of(writer):
    return json.loads(writer.ask("GET", "/v1/admin/rebuild")[1])


def end(writer, number):
    """The node that did it; none for the one that writes. The generation tells that there was something to do."""

    def ended():
        job = job_of(writer)
        return job if job["job"] >= number and job["state"] != "running" else None

    job = wait_for("the rebuild ends", ended)
    print(json.dumps({name: job[name] for name in ("state", "node", "generation", "files", "error")}), flush=True)
    if job["state"] != "done" or not job["files"]:
        raise Failed(f"the rebuild did nothing: {job}")
    return job["node"]


def rebuild(writer):
    return end(writer, begin(writer))


def check(nodes, each):
    for node in nodes:
        for key in range(KEYS):
            path = f"/v1/l/k{key}/counts?unit=day&units=9"

            def has_all():
                return json.loads(node.ask("GET", path)[1])["total"] == each

            wait_for(f"node {node.number} counts {each} of k{key}", has_all, 10)


def claims(helper):
    return told(helper, "this node rebuilds for the one that writes")


def told(node, message):
    with open(node.log) as log:
        return log.read().count(message)


@contextlib.contextmanager
def stopped(node):
    os.kill(node.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(node.process.pid, signal.SIGCONT)


def begin_and_claim(writer, helper):
    """The number of a rebuild that the helper has begun to do."""
    before = claims(helper)
    number = begin(writer)
    until = time.monotonic() + 20
    while claims(helper) == before:
        if time.monotonic() > until:
            raise Failed("the other node claimed no order")
        time.sleep(0.002)
    return number


def is_heard(writer):
    nodes = json.loads(writer.ask("GET", "/v1/admin/status")[1])["cluster"]["nodes"]
    return any(node["rebuilds"] for node in nodes)


class Play:
    """Sends more before each rebuild, so that there is something to do."""

    def __init__(self, writer, helper):
        self.writer, self.helper, self.each = writer, helper, 0

    def send(self):
        send(self.writer, self.each, self.each + 50)
        self.each += 50

    def check(self, *nodes):
        check(nodes, self.each)

    def rebuild_by_helper(self):
        wait_for("the other node is heard", lambda: is_heard(self.writer))
        self.send()
        if rebuild(self.writer) != str(self.helper.number):
            raise Failed("the other node did not rebuild")
        self.check(self.writer, self.helper)


def stop_before_its_work(play):
    """It is heard for some seconds more, and takes no order."""
    play.send()
    with stopped(play.helper):
        if rebuild(play.writer) is not None:
            raise Failed("a node that hangs rebuilt")
        play.check(play.writer)
    play.check(play.writer, play.helper)


def stop_at_work(play):
    """A build may be done before the stop, and then another one begins."""
    for _ in range(10):
        play.send()
        before = told(play.helper, DONE)
        number = begin_and_claim(play.writer, play.helper)
        with stopped(play.helper):
            is_at_work = told(play.helper, DONE) == before
            if is_at_work:
                if end(play.writer, number) is not None:
                    raise Failed("a node that hangs at work rebuilt")
                play.check(play.writer)
        if is_at_work:
            return play.check(play.writer, play.helper)
        end(play.writer, number)
    raise Failed("each build was done before the node could be stopped")


def kill_writer_with_an_order(play, third):
    """The order stays in the bucket, and the helper ends it: it is of an epoch that is over."""
    third.start()
    wait_for("the third node is ready", lambda: is_ready(third))
    play.send()
    play.check(third)
    begin_and_claim(play.writer, play.helper)
    with stopped(play.helper):
        epoch = play.writer.wrote()
        play.writer.kill()
        play.writer, _ = wait_for("the third node writes", lambda: writer_after([third], epoch))
    play.check(play.writer, play.helper)


def run(writer, helper, third):
    with open(helper.config, "a") as config:
        config.write("writes = false\nrebuilds = true\n")
    succeed(writer, "cluster", "init", "--config", writer.config)
    for node in (writer, helper):
        node.start()
    for node in (writer, helper):
        wait_for(f"node {node.number} is ready", lambda: is_ready(node))
    wait_for("a node writes", lambda: writer_after([writer], 0))
    play = Play(writer, helper)
    for _ in range(2):
        play.rebuild_by_helper()
    succeed(writer, "cluster", "status", "--to", f"http://127.0.0.1:{writer.port}")
    for trouble in (stop_before_its_work, stop_at_work):
        trouble(play)
        play.rebuild_by_helper()
    kill_writer_with_an_order(play, third)
    play.rebuild_by_helper()


def main():
    program, directory = sys.argv[1:]
    name = f"r{os.getpid()}-{time.time_ns()}"
    nodes = [Node(program, directory, number, name) for number in (1, 2, 3)]
    with ended(nodes):
        run(*nodes)


if __name__ == "__main__":
    main()
