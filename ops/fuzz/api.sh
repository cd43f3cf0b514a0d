#!/usr/bin/env bash
# Fuzzes a running server by its own OpenAPI document with schemathesis (PyPI): no answer may be a 500 or
# one that the document does not describe.
#
#   pip install schemathesis
#   TALLYRING=path/to/tallyring ops/fuzz/api.sh    fuzzes a program that is built already
#   ops/fuzz/api.sh [examples an operation, default 50]
#
# Builds the program, serves a small store on a free loopback port, and stops it by its own process id.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Without its tools the script is skipped by name; with TALLYRING_REQUIRE, as `.ci/run` sets it, it fails.
for tool in schemathesis curl; do
    command -v "$tool" >/dev/null && continue
    echo "skipped: ops/fuzz/api.sh: $tool is not installed"
    [ -z "${TALLYRING_REQUIRE:-}" ] || exit 1
    exit 0
done
if [ -z "${TALLYRING:-}" ]; then
    # With a test beside it, it is the one that `cargo test --workspace` has built.
    cargo build --quiet --locked --workspace --bin tallyring --test tidy
    TALLYRING=${CARGO_TARGET_DIR:-target}/debug/tallyring
fi
data=$(mktemp -d)
# The file is there before the server's shell opens it: `grep` may look first.
: >"$data/out"
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
# One of everything first, so that reads find something; two days of it, one of them archived.
store=$data/store
tallyring() { "$TALLYRING" "$@" --data "$store" >>"$data/out" 2>&1; }
key=$(cat "$store/LOCAL_KEY")
post() {
    curl --silent --show-error --fail --output /dev/null --header "authorization: Bearer $key" \
        --header "content-type: application/json" --data "$2" "$url$1"
}
yesterday=$(($(date +%s) - 86400))
post /v1/increments "[{\"keys\":{\"l\":\"abc\",\"u\":\"0\"},\"by\":{\"c\":\"US\"},\"id\":\"0\",\"user\":\"a\"},
    {\"keys\":{\"l\":\"abc\"},\"at\":$yesterday,\"n\":5}]"
post /v1/events '{"id":"e1","type":"click","entities":{"ad":"0"},"user":"a"}'
printf 'namespace,key,hour,count\nl,abc,%s,3\n' $((yesterday - 86400)) >"$data/history.csv"
tallyring load history "$data/history.csv"
tallyring rebuild
# With a key from the start: the fuzzer makes keys too, and from the first one on everything needs one.
# A stream has no end to wait for: its tests are in tests/tests/access/live.rs.
SCHEMATHESIS_HOOKS=ops/fuzz/ndjson.py schemathesis run "$url/openapi.json" --max-examples "${1:-50}" --exclude-path /v1/live \
    --header "Authorization: Bearer $key" \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance
