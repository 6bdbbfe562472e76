"""All jobs in one Spark driver, to be killed: ``python -m tests.crash.spark_jobs DIRECTORY``."""

import sys
from pathlib import Path

from tapewire import spark as tws


def run_all(spark, root):
    """Import files, refine raw logs, convert both to Parquet and back to logs."""
    told = [
        tws.jobs.import_files(spark, root / "captures", root / "archive", format="binance-usdm"),
        tws.jobs.refine(spark, root / "raw", root / "clean", late="separate", snapshot_seconds=20),
        tws.jobs.compact(spark, root / "clean", root / "parquet", target_bytes=50_000),
        tws.jobs.compact(spark, root / "parquet", root / "again", to="archive"),
    ]
    for summary in told:
        assert not summary.failed, str(summary)
        print(summary, flush=True)


if __name__ == "__main__":
    session = tws.session("killed", master="local[2]", conf={"spark.sql.shuffle.partitions": "4"})
    run_all(session, Path(sys.argv[1]))
    session.stop()
