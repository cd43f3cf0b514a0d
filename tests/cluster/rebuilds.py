"""A node that never writes rebuilds for the one that does, until it hangs:

    python3 rebuilds.py PROGRAM DIRECTORY

The environment names the engines, as `tests/cluster/engines.sh start` prints them. Each rebuild counts everything once
on both nodes, and the job tells which of them did it.
"""

import json
import os
import signal
import sys
import time

from moved import succeed
from nodes import Failed, Node, ended, is_ready, wait_for, writer_after

KEYS = 20


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


def rebuild(writer):
    """The node that did it; none for the one that writes. The generation tells that there was something to do."""
    status, body = writer.ask("POST", "/v1/admin/rebuild", "")
    if status != 202:
        raise Failed(f"no rebuild began: {status} {body}")
    number = json.loads(body)["job"]

    def ended():
        job = json.loads(writer.ask("GET", "/v1/admin/rebuild")[1])
        return job if job["job"] >= number and job["state"] != "running" else None

    job = wait_for("the rebuild ends", ended)
    print(json.dumps({name: job[name] for name in ("state", "node", "generation", "files", "error")}), flush=True)
    if job["state"] != "done" or not job["files"]:
        raise Failed(f"the rebuild did nothing: {job}")
    return job["node"]


def check(nodes, each):
    for node in nodes:
        for key in range(KEYS):
            path = f"/v1/l/k{key}/counts?unit=day&units=9"

            def has_all():
                return json.loads(node.ask("GET", path)[1])["total"] == each

            wait_for(f"node {node.number} counts {each} of k{key}", has_all, 10)


def run(writer, helper):
    with open(helper.config, "a") as config:
        config.write("writes = false\nrebuilds = true\n")
    succeed(writer, "cluster", "init", "--config", writer.config)
    for node in (writer, helper):
        node.start()
    for node in (writer, helper):
        wait_for(f"node {node.number} is ready", lambda: is_ready(node))
    wait_for("a node writes", lambda: writer_after([writer], 0))

    def is_heard():
        nodes = json.loads(writer.ask("GET", "/v1/admin/status")[1])["cluster"]["nodes"]
        return any(node["rebuilds"] for node in nodes)

    wait_for("the other node is heard", is_heard)
    for done in range(2):
        send(writer, 50 * done, 50 * (done + 1))
        if rebuild(writer) != str(helper.number):
            raise Failed("the other node did not rebuild")
        check((writer, helper), 50 * (done + 1))
    succeed(writer, "cluster", "status", "--to", f"http://127.0.0.1:{writer.port}")

    # It is heard for some seconds more, and takes no order.
    send(writer, 100, 150)
    os.kill(helper.process.pid, signal.SIGSTOP)
    try:
        if rebuild(writer) is not None:
            raise Failed("a node that hangs rebuilt")
        check((writer,), 150)
    finally:
        os.kill(helper.process.pid, signal.SIGCONT)
    check((writer, helper), 150)
    wait_for("the other node is heard again", is_heard)
    send(writer, 150, 200)
    if rebuild(writer) != str(helper.number):
        raise Failed("the other node did not rebuild again")
    check((writer, helper), 200)


def main():
    program, directory = sys.argv[1:]
    name = f"r{os.getpid()}-{time.time_ns()}"
    nodes = [Node(program, directory, number, name) for number in (1, 2)]
    with ended(nodes):
        run(*nodes)


if __name__ == "__main__":
    main()
