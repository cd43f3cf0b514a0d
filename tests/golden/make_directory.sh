#!/usr/bin/env bash
# Makes a golden data directory with a given build, as a .tar.gz that `tests/tests/e2e/golden.rs` opens.
#
#   tests/golden/make_directory.sh TALLYRING OUT.tar.gz
#
# The clock is virtual. The last server is killed, so no run holds the end of the log. The archive leaves out the lock, the
# server's own key and the spare segment, which is zeros.
set -euo pipefail
tallyring=$(realpath "$1")
out=$(realpath "$2")
golden=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
data=$work/data
server=
trap '[ -z "$server" ] || kill -9 "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

serve() {
    : >"$work/out"
    "$tallyring" serve --data "$data" --config "$golden/directory.toml" --listen 127.0.0.1:0 --clock "$1" \
        >"$work/out" 2>"$work/messages" &
    server=$!
    for _ in $(seq 200); do
        url=$(sed -n 's/^tallyring listening on //p' "$work/out")
        [ -z "$url" ] || return 0
        sleep 0.1
    done
    cat "$work/messages" >&2
    exit 1
}
stop() {
    kill "-$1" "$server"
    wait "$server" 2>/dev/null || true
    server=
}
post() { # PATH BODY [HEADER…]
    local path=$1 body=$2 headers=()
    shift 2
    for header; do headers+=(--header "$header"); done
    curl --silent --show-error --fail-with-body --header 'content-type: application/json' \
        ${headers[@]+"${headers[@]}"} --data "$body" "$url$path"
    echo
}
until_generation() {
    for _ in $(seq 300); do
        if curl --silent "$url/v1/admin/status" | grep -q "\"generation\":$1,"; then return 0; fi
        sleep 0.1
    done
    echo "generation $1 was not published" >&2
    exit 1
}

# A day with ids, users, long keys, numbers of a producer, minutes and events; and history of closed months.
serve 2026-03-10T12:00:00Z
post /v1/increments '[
  {"at":"2026-03-10T09:10:00Z","n":5,"keys":{"l":"abc","u":"jehiah"},"by":{"c":"US","r":"https://news.example/a,b","v":"mobile"},"id":"a1","user":"u1"},
  {"at":"2026-03-10T09:40:00Z","n":2,"keys":{"l":"abc","u":"jehiah"},"by":{"c":"JP"},"id":"a2","user":"u2"},
  {"at":"2026-03-10T10:05:00Z","keys":{"l":"a link with blanks, and commas"},"by":{"c":"US","v":"desktop"},"id":"a3","user":"u1"},
  {"at":"2026-03-10T10:20:00Z","n":4,"keys":{"q":"k"},"by":{"c":"NZ"}},
  {"at":"2026-03-09T23:00:00Z","n":7,"keys":{"l":"abc"},"by":{"c":"US"}},
  {"at":"2026-03-10T10:21:00Z","n":3,"keys":{"q":"k"},"by":{"c":"NZ"},"producer":"p1","epoch":1,"sequence":1},
  {"at":"2026-03-10T10:22:00Z","n":3,"keys":{"q":"k"},"producer":"p1","epoch":1,"sequence":2}]'
post /v1/increments '{"at":"2026-03-10T09:10:00Z","keys":{"l":"abc"},"id":"a1"}'
post /v1/events '[
  {"id":"i1","type":"impression","at":"2026-03-10T11:58:10Z","entities":{"ad":"42"},"by":{"country":"US"},"user":"u1"},
  {"id":"i2","type":"impression","at":"2026-03-10T11:58:20Z","entities":{"ad":"42"},"by":{"country":"DE"},"user":"u2"},
  {"id":"e1","type":"click","at":"2026-03-10T11:59:00Z","entities":{"ad":"42"},"by":{"country":"US"},"user":"u1"},
  {"id":"e2","type":"click","at":"2026-03-10T11:59:30Z","entities":{"ad":"42"},"by":{"country":"BOT"}}]'
cat >"$work/history.csv" <<'CSV'
namespace,key,hour,subtotal,value,count
l,abc,2025-11-03T05:00:00Z,,,10
l,abc,2025-11-03T05:00:00Z,c,US,6
l,abc,2025-11-03T05:00:00Z,c,JP,4
l,abc,2025-11-03T07:00:00Z,,,1
l,abc,2026-02-28T23:00:00Z,,,20
u,somebody,2026-02-01T00:00:00Z,,,9
CSV
"$tallyring" load history "$work/history.csv" --data "$data"
stop TERM

# The next day: what is archived now is generation 1, in which November is folded into days.
serve 2026-03-11T12:00:00Z
until_generation 1
post /v1/increments '[
  {"at":"2026-03-11T10:00:00Z","n":11,"keys":{"l":"abc","u":"jehiah"},"by":{"c":"US"},"id":"b1","user":"u3"},
  {"at":"2026-03-10T09:30:00Z","n":100,"keys":{"l":"abc"},"by":{"c":"JP"},"id":"late1","user":"u4"}]'
post /v1/events '[
  {"id":"e3","type":"click","at":"2026-03-11T11:59:00Z","entities":{"ad":"42"},"by":{"country":"US"},"user":"u5"},
  {"id":"e4","type":"click","at":"2026-03-11T10:00:00Z","entities":{"ad":"42"},"by":{"country":"DE"},"user":"u6"}]'
"$tallyring" rebuild --data "$data"
stop TERM

# The day after, not archived: one flushed run, and then an end of the log that is in memory alone.
serve 2026-03-11T20:00:00Z
post /v1/increments '{"at":"2026-03-11T19:00:00Z","n":13,"keys":{"l":"abc"},"by":{"c":"US"},"id":"b2"}'
stop TERM
serve 2026-03-11T21:00:00Z
post '/v1/increments?on_error=skip' '[
  {"at":"2026-03-11T20:30:00Z","n":17,"keys":{"l":"abc","u":"jehiah"},"by":{"c":"FR"},"id":"b3","user":"u7"},
  {"at":"2026-03-11T20:30:00Z","keys":{"nope":"x"},"id":"b4"}]' 'Idempotency-Key: batch-1'
post /v1/increments '{"at":"2026-03-11T20:31:00Z","n":3,"keys":{"q":"k"},"producer":"p1","epoch":1,"sequence":3}'
post /v1/events '{"id":"e5","type":"click","at":"2026-03-11T20:59:00Z","entities":{"ad":"42"},"by":{"country":"US"},"user":"u1"}'
stop KILL

rm -f "$data/LOCK" "$data/LOCAL_KEY" "$data/oplog/spare.tmp"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime='2026-03-11 21:00:00Z' -C "$work" -c data | gzip -9n >"$out"
