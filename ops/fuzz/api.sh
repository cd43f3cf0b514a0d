#!/usr/bin/env bash
# Fuzzes a running server by its own OpenAPI document with schemathesis (PyPI): no answer may be a 500 or
# one that the document does not describe.
#
#   pip install schemathesis
#   TALLYRING=path/to/tallyring ops/fuzz/api.sh    fuzzes a program that is built already
#   ops/fuzz/api.sh [examples an operation, default 50]
#
# Builds the program, serves an empty directory on a free loopback port, and stops it by its own process id.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if ! command -v schemathesis >/dev/null; then
    echo "skipped: schemathesis is not installed (pip install schemathesis)"
    exit 0
fi
if [ -z "${TALLYRING:-}" ]; then
    cargo build --quiet --locked --workspace --bin tallyring
    TALLYRING=target/debug/tallyring
fi
data=$(mktemp -d)
"$TALLYRING" serve --data "$data/store" --listen 127.0.0.1:0 >"$data/out" 2>"$data/err" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$data"' EXIT
for _ in $(seq 100); do
    grep -q 'listening on' "$data/out" && break
    sleep 0.1
done
url=$(sed -n 's/^tallyring listening on //p' "$data/out")
if [ -z "$url" ]; then
    echo "the server did not start:" >&2
    cat "$data/err" >&2
    exit 1
fi
# A stream has no end to wait for: its tests are in tests/tests/access/live.rs.
schemathesis run "$url/openapi.json" --max-examples "${1:-50}" --exclude-path /v1/live \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance
