"""Reads rows of history, groups them by key and hour, orders them and writes them: what `tallyring load` and `rebuild` do,
by other engines on two threads. Usage: bulk_peers.py duckdb|polars|clickhouse csv|parquet IN OUT"""

import sys


def duckdb(form, source, target):
    import duckdb

    how = "HEADER" if form == "csv" else "FORMAT parquet, COMPRESSION zstd"
    duckdb.sql("SET threads = 2")
    duckdb.sql(
        f"COPY (SELECT namespace, key, hour, sum(count) AS n FROM read_csv('{source}') GROUP BY ALL "
        f"ORDER BY namespace, key, hour) TO '{target}' ({how})"
    )


def polars(form, source, target):
    import os

    os.environ["POLARS_MAX_THREADS"] = "2"
    import polars

    rows = polars.scan_csv(source).group_by("namespace", "key", "hour").agg(polars.col("count").sum())
    rows = rows.sort("namespace", "key", "hour").collect(engine="streaming")
    if form == "csv":
        rows.write_csv(target)
    else:
        rows.write_parquet(target, compression="zstd")


def clickhouse(form, source, target):
    import chdb

    how = "CSVWithNames" if form == "csv" else "Parquet"
    chdb.query(
        f"SELECT namespace, key, hour, sum(count) AS n FROM file('{source}', CSVWithNames, "
        "'namespace String, key String, hour UInt32, count UInt64') GROUP BY namespace, key, hour "
        f"ORDER BY namespace, key, hour INTO OUTFILE '{target}' FORMAT {how} "
        "SETTINGS max_threads = 2, output_format_parquet_compression_method = 'zstd'"
    )


if __name__ == "__main__":
    if len(sys.argv) != 5 or sys.argv[1] not in ("duckdb", "polars", "clickhouse"):
        sys.exit(__doc__)
    globals()[sys.argv[1]](*sys.argv[2:])
