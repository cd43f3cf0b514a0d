#!/usr/bin/env bash
# Shows that the simulation bites: each patch here takes one defence away, and then some seed must fail.
#
# tests/mutants/run.sh [SEEDS] [NAME…]   at most so many seeds for each (400); all mutants, or those named
#
# A patch whose name begins with `nodes-` is tried with three nodes that share a store, and one that begins with
# `strands-` with a store of three strands.
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
# Mutants are built where the tests were built, with the features of the whole workspace as these. The copy has the files
# as they are with their times, so that only what a mutant changes is compiled again, and its place is always the same,
# so that a mutant takes the disk of the one before.
export CARGO_TARGET_DIR=$root/target CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-1}
work=$CARGO_TARGET_DIR/mutants
tree=$work/tree
rm -rf "$work"
git clone -q "$root" "$tree"
(cd "$root" && git ls-files -z | xargs -0 cp --preserve=timestamps --parents -t "$tree")
# Cargo compares times: what the last mutant left would pass for what the older files of this project make.
crates=(tallyring-records tallyring-archive tallyring-realtime tallyring-rebuild tallyring-tests)
trap 'cd "$root" && cargo clean -q "${crates[@]/#/--package=}"' EXIT
survived=0
for name; do
    name=${name%.patch}
    patch=$mutants/$name.patch
    git -C "$tree" apply "$patch" || {
        printf '%s does not fit the tree any more: write it again\n' "$patch" >&2
        exit 1
    }
    (cd "$tree" && cargo build -q --locked --workspace --no-default-features --bin simulate)
    mv "$CARGO_TARGET_DIR/debug/simulate" "$work/simulate"
    case $name in
    nodes-*) store=(--nodes 3) ;;
    strands-*) store=(--nodes 3 --strands 3) ;;
    *) store=() ;;
    esac
    first=1
    while [ "$first" -le "$seeds" ] &&
        "$work/simulate" "${store[@]}" --first "$first" --seeds 20 >"$work/log" 2>&1; do
        first=$((first + 20))
    done
    if [ "$first" -gt "$seeds" ]; then
        survived=$((survived + 1))
        printf '%-26s SURVIVED %s seeds: %s\n' "$name" "$seeds" "$(head -1 "$patch")"
    else
        seed=$(grep -m 1 -o '^seed [0-9]* (' "$work/log" || true)
        printf '%-26s killed by %s of %s: %s\n' "$name" "${seed% (}" "$((first + 19))" "$(head -1 "$patch")"
    fi
    git -C "$tree" apply --reverse "$patch"
done
[ "$survived" -eq 0 ]
