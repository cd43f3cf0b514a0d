#!/usr/bin/env bash
# Measures `tallyring-bench rebuild` with every peer that is installed, in turn. Further arguments go to the benchmark.
# Install the peers with: python3 -m pip install duckdb polars chdb
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
peers=()
for peer in duckdb:duckdb polars:polars clickhouse:chdb; do
    name=${peer%%:*} module=${peer##*:}
    if "$python" -c "import $module" 2>/dev/null; then
        for form in csv parquet; do
            peers+=(--peer "$name, $form=$python bench/bulk_peers.py $name $form {file} {out}")
        done
    else
        printf 'skipped: %s (python3 -m pip install %s)\n' "$name" "$module" >&2
    fi
done
cargo build --release --locked -p tallyring -p tallyring-bench
exec target/release/tallyring-bench rebuild "${peers[@]}" "$@"
