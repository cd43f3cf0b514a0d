#!/usr/bin/env bash
# Shows that the simulation bites: each patch here takes one defence away, and then some seed must fail.
#
# tests/mutants/run.sh [SEEDS] [NAME…]   at most so many seeds for each (400); all mutants, or those named
set -euo pipefail
mutants=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(git -C "$mutants" rev-parse --show-toplevel)
seeds=${1:-400}
if ! [[ $seeds =~ ^[0-9]+$ ]]; then
    printf 'usage: tests/mutants/run.sh [SEEDS] [NAME…]; SEEDS is a number, not %s\n' "$seeds" >&2
    exit 2
fi
shift || true
[ $# -gt 0 ] || set -- $(cd "$mutants" && ls -- *.patch)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
git clone -q "$root" "$tree"
export CARGO_TARGET_DIR=$root/target/mutants
survived=0
for name; do
    name=${name%.patch}
    patch=$mutants/$name.patch
    git -C "$tree" apply "$patch" || {
        printf '%s does not fit the tree any more: write it again\n' "$patch" >&2
        exit 1
    }
    (cd "$tree" && cargo build -q --release --locked -p tallyring-tests --bin simulate)
    first=1
    while [ "$first" -le "$seeds" ] &&
        "$CARGO_TARGET_DIR/release/simulate" --first "$first" --seeds 20 >"$tree.log" 2>&1; do
        first=$((first + 20))
    done
    if [ "$first" -gt "$seeds" ]; then
        survived=$((survived + 1))
        printf '%-26s SURVIVED %s seeds: %s\n' "$name" "$seeds" "$(head -1 "$patch")"
    else
        seed=$(grep -m 1 -o '^seed [0-9]* (' "$tree.log" || true)
        printf '%-26s killed by %s of %s: %s\n' "$name" "${seed% (}" "$((first + 19))" "$(head -1 "$patch")"
    fi
    rm -f "$tree.log"
    git -C "$tree" checkout -q .
done
[ "$survived" -eq 0 ]
