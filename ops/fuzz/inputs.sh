#!/usr/bin/env bash
# Fuzzes every reader of bytes that come from a disk or a network, so many seconds each (default 60), from the seeds in
# tests/fuzz/seeds. A finding stops it, and is left in tests/fuzz/artifacts with the command that replays it.
#
#   rustup toolchain install nightly && cargo install cargo-fuzz
#   ops/fuzz/inputs.sh [seconds] [target …]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "skipped: cargo-fuzz or a nightly toolchain is not installed (see the head of this script)"
    exit 0
fi
seconds=${1:-60}
shift || true
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(cargo +nightly fuzz list --fuzz-dir tests/fuzz)
fi
for target in "${targets[@]}"; do
    printf '== %s, %s seconds\n' "$target" "$seconds"
    mkdir -p "tests/fuzz/corpus/$target"
    # Everything is safe Rust but the mapping of files: panics and overflows are what is looked for.
    cargo +nightly fuzz run --fuzz-dir tests/fuzz --sanitizer none "$target" \
        "tests/fuzz/corpus/$target" "tests/fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -max_len=65536 -timeout=20 -rss_limit_mb=4096 -print_final_stats=1
done
