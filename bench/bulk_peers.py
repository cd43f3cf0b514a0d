"""Reads rows of history, groups them by key, hour and what else there is, orders them and writes them: what `tallyring
load` and `rebuild` do, by other engines on two threads. Usage: bulk_peers.py duckdb|polars|clickhouse csv|parquet IN OUT"""

import sys


def columns(source):
    """The columns to group by: all but the count."""
    with open(source) as rows:
        return [name for name in rows.readline().strip().split(",") if name != "count"]


def duckdb(form, source, target):
    import duckdb

    how = "HEADER" if form == "csv" else "FORMAT parquet, COMPRESSION zstd"
    names = ", ".join(columns(source))
    duckdb.sql("SET threads = 2")
    duckdb.sql(
        f"COPY (SELECT {names}, sum(count) AS n FROM read_csv('{source}') GROUP BY ALL "
        f"ORDER BY {names}) TO '{target}' ({how})"
    )


def polars(form, source, target):
    import os

    os.environ["POLARS_MAX_THREADS"] = "2"
    import polars

    names = columns(source)
    rows = polars.scan_csv(source).group_by(names).agg(polars.col("count").sum())
    rows = rows.sort(names).collect(engine="streaming")
    if form == "csv":
        rows.write_csv(target)
    else:
        rows.write_parquet(target, compression="zstd")


def clickhouse(form, source, target):
    import chdb

    how = "CSVWithNames" if form == "csv" else "Parquet"
    names = columns(source)
    types = {"hour": "UInt32"}
    form_of_rows = ", ".join(f"{name} {types.get(name, 'String')}" for name in names) + ", count UInt64"
    names = ", ".join(names)
    chdb.query(
        f"SELECT {names}, sum(count) AS n FROM file('{source}', CSVWithNames, '{form_of_rows}') GROUP BY {names} "
        f"ORDER BY {names} INTO OUTFILE '{target}' FORMAT {how} "
        "SETTINGS max_threads = 2, output_format_parquet_compression_method = 'zstd'"
    )


if __name__ == "__main__":
    if len(sys.argv) != 5 or sys.argv[1] not in ("duckdb", "polars", "clickhouse"):
        sys.exit(__doc__)
    globals()[sys.argv[1]](*sys.argv[2:])
