#!/bin/sh
# Runs the published clients of bitly's read API against a server of ours, with only the host changed.
#
# A client that is not installed is skipped by name; with TALLYRING_REQUIRE, as `.ci/run` sets it, the script fails. Install
# into any directory and name it:
#   pip install --target CLIENTS/py bitly-api-py3 pyshorteners
#   npm install --prefix CLIENTS/js bitly
#   ops/compat/bitly_clients.sh CLIENTS
# TALLYRING names the binary; without it cargo builds one. TALLYRING_CONFIG names a configuration file for the server, such
# as that of a cluster's node, after `tallyring cluster init` and for a binary with the feature `cluster`.
set -eu

if ! command -v python3 >/dev/null; then
    echo "skipped: ops/compat/bitly_clients.sh: python3 is not installed"
    [ -z "${TALLYRING_REQUIRE:-}" ] || exit 1
    exit 0
fi

here=$(cd "$(dirname "$0")" && pwd)
clients=${1:-}
if [ -z "${TALLYRING:-}" ]; then
    # With a test beside it, it is the one that `cargo test --workspace` has built.
    cargo build --quiet --locked --manifest-path "$here/../../Cargo.toml" --workspace --bin tallyring --test tidy
    TALLYRING=${CARGO_TARGET_DIR:-$here/../../target}/debug/tallyring
fi

work=$(mktemp -d)
server=
stop() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM

# The clock runs, because the time after which a node of a cluster writes is its time, too.
# The file is there before the server's shell opens it: `sed` may look first.
: >"$work/address"
"$TALLYRING" serve --data "$work/data" --listen 127.0.0.1:0 --clock 2013-02-08T19:19:17Z@1 \
    ${TALLYRING_CONFIG:+--config "$TALLYRING_CONFIG"} >"$work/address" 2>"$work/messages" &
server=$!
url=
tries=0
while [ -z "$url" ]; do
    url=$(sed -n 's/^tallyring listening on //p' "$work/address")
    tries=$((tries + 1))
    if [ "$tries" -gt 300 ] || ! kill -0 "$server" 2>/dev/null; then
        cat "$work/messages" >&2
        echo "error: the server does not listen" >&2
        exit 1
    fi
    sleep 0.1
done

if [ -n "$clients" ]; then
    clients=$(cd "$clients" && pwd)
    PYTHONPATH=$clients/py
    NODE_PATH=$clients/js/node_modules
    export PYTHONPATH NODE_PATH
fi
python3 "$here/bitly_clients.py" "$url" "$work"
