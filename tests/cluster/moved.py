"""The store of one machine moves to three nodes, and back:

    python3 moved.py PROGRAM DIRECTORY
    python3 moved.py PROGRAM DIRECTORY --strands N

With strands the nodes begin with a store of so many, which moves to one machine, and to other nodes. The environment
names the engines, as `tests/cluster/engines.sh start` prints them. Every read answers as before after
each move, and every id that is sent again is known.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

from nodes import NODES, PATIENCE_S, Failed, Node, ended, free_port, is_ready, wait_for, writer_after

KEYS = 20
# Increments of one key.
EACH = 50


class Machine(Node):
    """A server of one machine."""

    def __init__(self, program, directory, name):
        self.program, self.number = program, name
        self.port = free_port()
        self.data = os.path.join(directory, name)
        self.config = os.path.join(directory, f"{name}.toml")
        self.log = os.path.join(directory, f"{name}.log")
        self.process = None
        with open(self.config, "w") as file:
            file.write(f'listen = "127.0.0.1:{self.port}"\n')


def command(node, *arguments, timeout=None):
    ran = subprocess.run(
        [node.program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return ran.returncode, ran.stdout + ran.stderr


def succeed(node, *arguments):
    code, told = command(node, *arguments)
    print(told, end="", flush=True)
    if code != 0:
        raise Failed(f"{arguments[:2]} ended with {code}")
    return told


def send(node, first, last):
    """Sends increments with ids in batches, until each is acknowledged; how many were duplicates."""
    duplicates = 0
    for key in range(KEYS):
        items = [
            {"keys": {"l": f"k{key}"}, "by": {"c": "US"}, "id": f"{key}-{item}"}
            for item in range(first, last)
        ]

        def acknowledged():
            answer = node.ask("POST", "/v1/increments", json.dumps(items))
            if answer and answer[0] not in (200, 503):
                raise Failed(f"status {answer[0]}: {answer[1][:300]}")
            return json.loads(answer[1]) if answer and answer[0] == 200 else None

        duplicates += wait_for("an acknowledgement", acknowledged)["duplicates"]
    return duplicates


def reads(node):
    """The answers to reads of all kinds, without what the time alone changes."""
    paths = ["/v1/l/top?unit=year&units=-1", "/v1/namespaces"]
    for key in range(KEYS):
        paths += [
            f"/v1/l/k{key}/counts?unit=year&units=-1",
            f"/v1/l/k{key}/by/c?unit=year&units=-1",
            f"/v1/l/k{key}/summary?unit=year&units=-1",
            f"/v1/events/{key}-3",
        ]
    answers = {}
    for path in paths:
        answer = node.ask("GET", path)
        if answer is None or answer[0] != 200:
            raise Failed(f"{node.number} does not answer {path}: {answer}")
        answers[path] = re.sub(r'"settled_until":"[^"]*"', "", answer[1].decode())
    return answers


def check_same(what, node, expected):
    """Waits until a node answers as expected: one that follows has the last increments within moments."""
    try:
        wait_for(what, lambda: reads(node) == expected, 10)
    except Failed:
        found = reads(node)
        apart = [path for path in expected if found[path] != expected[path]]
        raise Failed(f"{what}: {len(apart)} answers differ: {apart[0]}: {expected[apart[0]]} is {found[apart[0]]}")


def stop(node):
    node.process.send_signal(signal.SIGTERM)
    if node.process.wait(PATIENCE_S) != 0:
        raise Failed(f"{node.number} ended with {node.process.returncode}")


def move(machine, node):
    """Moves the store of a machine to nodes, twice: the second time does nothing, and the machine serves no more."""
    arguments = ["cluster", "init", "--config", node.config, "--from", machine.data]
    succeed(machine, *arguments)
    told = succeed(machine, *arguments)
    if "was moved before" not in told:
        raise Failed(f"the second move told: {told}")
    code, told = command(machine, "serve", "--config", machine.config, "--data", machine.data)
    if code == 0 or "is served no more" not in told:
        raise Failed(f"the old directory is served: {code} {told}")


def come_back(nodes, machine, backup, expected):
    """Stops nodes, and starts a machine from the directory of the last; it answers alike, and knows each id."""
    for node in nodes:
        stop(node)
    succeed(machine, "backup", backup, "--data", nodes[-1].data)
    succeed(machine, "restore", backup, "--data", machine.data)
    machine.start()
    wait_for("the machine is ready", lambda: is_ready(machine))
    check_same("the machine answers as the nodes did", machine, expected)
    known = send(machine, 0, 2 * EACH)
    if known != 2 * KEYS * EACH:
        raise Failed(f"the machine knows {known} of {2 * KEYS * EACH} ids")


def refuse(node, topic, wrong, arguments, text):
    """A command fails with this text where the configuration names a wrong topic."""
    with open(node.config) as file:
        config = file.read()
    path = f"{node.config}.wrong"
    with open(path, "w") as file:
        file.write(config.replace(f'"{topic}"', f'"{wrong}"'))
    code, told = command(node, *arguments, "--config", path, timeout=PATIENCE_S)
    if code == 0 or text not in told:
        raise Failed(f"{arguments} with the topic {wrong} ended with {code}: {told}")


def run(machine, nodes, back, name, directory):
    machine.start()
    wait_for("the machine is ready", lambda: is_ready(machine))
    send(machine, 0, EACH)
    expected = reads(machine)
    stop(machine)
    move(machine, nodes[0])
    # The topic in which nodes tell of themselves keeps messages for an hour.
    serve = ["serve", "--data", os.path.join(directory, "refused")]
    refuse(nodes[0], name, f"{name}.nodes", serve, "`retention.ms` of the topic")
    succeed(machine, "cluster", "check", "--config", nodes[0].config)
    os.mkdir(os.path.join(directory, "foreign"))
    foreign = Node(machine.program, os.path.join(directory, "foreign"), 9, f"{name}-p")
    succeed(machine, "cluster", "init", "--config", foreign.config)
    refuse(nodes[0], name, f"{name}-p", ["cluster", "check"], "or name the topic of this store")
    start_all(nodes)
    for node in nodes:
        check_same(f"node {node.number} answers as the machine did", node, expected)
    wait_for("a node writes", lambda: writer_after(nodes, 0))
    known = send(nodes[1], 0, EACH)
    if known != KEYS * EACH:
        raise Failed(f"the nodes know {known} of {KEYS * EACH} ids")
    if send(nodes[2], EACH, 2 * EACH) != 0:
        raise Failed("new ids are known")
    backup = os.path.join(directory, "backup")
    succeed(machine, "backup", backup, "--data", nodes[0].data)
    expected = reads(nodes[2])
    for node in nodes:
        check_same(f"node {node.number} answers as node 3", node, expected)
    come_back(nodes, back, backup, expected)
    check_same("nothing counts twice", back, expected)
    stop(back)
    succeed(machine, "verify", "--deep", "--data", back.data)


def order_all(nodes, strands, directory):
    """What an operator orders is done in every strand, whichever node is asked; only one node loads."""
    history = os.path.join(directory, "history.csv")
    with open(history, "w") as file:
        file.write("namespace,key,hour,count\nl,history,2011-03-16T18:00:00Z,5\n")
    load = ["load", "history", history, "--final", "--data"]
    told = [command(node, *load, node.data) for node in nodes]
    if sorted(code for code, _ in told) != [0] + [1] * (len(nodes) - 1):
        raise Failed(f"not one node loads: {told}")
    if not all("load on its machine" in text for code, text in told if code != 0):
        raise Failed(f"no node is named: {told}")
    for node in nodes:
        told = succeed(node, "rebuild", "--data", node.data)
        if [line.split(":")[0] for line in told.splitlines()] != [f"strand {n}" for n in range(strands)]:
            raise Failed(f"a rebuild told: {told}")
        if "history" not in succeed(node, "datasets", "--data", node.data):
            raise Failed(f"node {node.number} does not tell of the dataset")


def run_divided(nodes, machine, others, strands, directory):
    succeed(machine, "cluster", "init", "--config", nodes[0].config, "--strands", str(strands))
    start_all(nodes)
    wait_for("all strands are written", lambda: is_counted(nodes[0]))
    send(nodes[0], 0, EACH)
    order_all(nodes, strands, directory)
    backup = os.path.join(directory, "backup")
    succeed(machine, "backup", backup, "--data", nodes[0].data)
    if send(nodes[1], EACH, 2 * EACH) != 0:
        raise Failed("new ids are known")
    expected = reads(nodes[1])
    for node in nodes:
        check_same(f"node {node.number} answers as node 2", node, expected)
    come_back(nodes, machine, backup, expected)
    send(machine, 2 * EACH, 3 * EACH)
    expected = reads(machine)
    stop(machine)
    move(machine, others[0])
    start_all(others)
    for node in others:
        check_same(f"node {node.number} answers as the machine did", node, expected)
    wait_for("all strands are written", lambda: is_counted(others[1]))
    known = send(others[1], 0, 3 * EACH)
    if known != 3 * KEYS * EACH:
        raise Failed(f"the nodes know {known} of {3 * KEYS * EACH} ids")
    for node in others:
        check_same("nothing counts twice", node, expected)
    for node in others:
        stop(node)


def start_all(nodes):
    for node in nodes:
        node.start()
    for node in nodes:
        wait_for(f"node {node.number} is ready", lambda: is_ready(node))


def is_counted(node):
    """True once a batch is counted that has ids of all strands."""
    items = [{"keys": {"l": "first"}, "id": f"first-{item}"} for item in range(EACH)]
    answer = node.ask("POST", "/v1/increments", json.dumps(items))
    return answer is not None and answer[0] == 200


def main():
    program, directory, *options = sys.argv[1:]
    name = f"m{os.getpid()}-{time.time_ns()}"
    nodes = [Node(program, directory, number, name) for number in NODES]
    machine, back = Machine(program, directory, "machine"), Machine(program, directory, "back")
    others = []
    if options:
        os.mkdir(os.path.join(directory, "others"))
        others = [Node(program, os.path.join(directory, "others"), number, f"{name}-o") for number in NODES]
    with ended([machine, *nodes, back, *others]):
        if options:
            run_divided(nodes, machine, others, int(options[1]), directory)
        else:
            run(machine, nodes, back, name, directory)
    sent = f"{KEYS * EACH} increments to three nodes, and {2 * KEYS * EACH} back"
    if options:
        sent = f"{2 * KEYS * EACH} increments to one machine, and {3 * KEYS * EACH} to three nodes"
    print(f"moved {sent}", flush=True)


if __name__ == "__main__":
    main()
