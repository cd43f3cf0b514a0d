#!/usr/bin/env bash
# Three nodes of the real program over a real broker and a real S3 server: they take increments while the node that
# writes is killed again and again, and every acknowledged increment is counted once. Before that the store of one
# machine moves to three nodes, and back, and answers as before. So does a store of three strands. Two further nodes
# share the work of one: one writes, and the other one rebuilds. Each is stopped or killed, and a third one follows.
#
#   tests/cluster/run.sh --quick     kills the writer twice; three minutes, and the builds before it
#   tests/cluster/run.sh --faults    and stops the writer, the broker and the S3 server for a while; four minutes
#   tests/cluster/run.sh --long [--strands N]
#                                    ten minutes with three brokers, in which nodes, brokers and the S3 server are
#                                    killed or stopped, two at a time, too, and a node is cut off from the brokers
#
# Three more nodes of a store of three strands are killed one after the other, but for `--long`.
#
# Its last line is `acknowledged N counted N twice 0 lost 0 max_write_gap_s S`. Engines that `tests/cluster/engines.sh
# start` started, and the environment names, are used; others are started, and stopped in the end. Needs python3, and
# what engines need.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

case "$*" in
--quick) faults=() ;;
--faults) faults=(--engines "$PWD/target/engines/run") ;;
--long | '--long --strands '[0-9]*) long=1 ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2
    exit 2
    ;;
esac

cargo build --locked -p tallyring --features cluster
program=$(cargo metadata --format-version 1 --no-deps --locked |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/debug/tallyring

directory=$(mktemp -d)
end() {
    rm -rf "$directory"
    [ -z "${started:-}" ] || tests/cluster/engines.sh stop
}
trap end EXIT
if [ -z "${TALLYRING_KAFKA:-}" ] || [ -z "${TALLYRING_S3:-}" ]; then
    started=1
    environment=$(tests/cluster/engines.sh start "${long:+3}")
    eval "$environment"
fi
export PYTHONDONTWRITEBYTECODE=1
if [ -n "${long:-}" ]; then
    python3 tests/cluster/nodes.py "$program" "$directory" --engines "$PWD/target/engines/run" --seconds 600 "${@:2}"
    exit
fi
mkdir "$directory/moved"
python3 tests/cluster/moved.py "$program" "$directory/moved"
mkdir "$directory/moved-strands"
python3 tests/cluster/moved.py "$program" "$directory/moved-strands" --strands 3
mkdir "$directory/rebuilds"
python3 tests/cluster/rebuilds.py "$program" "$directory/rebuilds"
mkdir "$directory/divided"
python3 tests/cluster/nodes.py "$program" "$directory/divided" --strands 3
python3 tests/cluster/nodes.py "$program" "$directory" --kills 2 "${faults[@]}"
