"""The demo's Spark process: refines the archive, computes features, checks quality."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tapewire.demo.paths import DemoPaths
from tapewire.demo.process import Process, main
from tapewire.demo.process_group import DemoFailed

__all__ = ["FEATURES", "MASTER", "SAMPLE", "run", "run_jobs"]

FEATURES = ("mid", "spread_bps", "microprice", "imbalance5")
SAMPLE = "100ms"
MASTER = "local[2]"
_CONF = {
    "spark.sql.shuffle.partitions": "2",  # for one small day; more would be empty
    # It runs for seconds, too short for the optimising compiler to pay off.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def run(process: Process) -> None:
    """Start Spark, run the jobs, and report each."""
    from tapewire import spark as tws

    began = time.monotonic()
    spark = tws.session("tapewire demo", MASTER, conf=_CONF)
    try:
        process.say("started", seconds=time.monotonic() - began)
        run_jobs(spark, process.paths, lambda facts: process.say("job", **facts))
    finally:
        spark.stop()


def run_jobs(spark: Any, paths: DemoPaths, report: Callable[[dict[str, Any]], None]) -> None:
    """Run the jobs in order; `report` receives the name, rows, seconds and findings of each.

    Raises:
        DemoFailed: A part of a job failed.
    """
    from tapewire.spark import jobs

    def run_one(job: Callable[..., Any], source: Path, target: Path, **options: Any) -> None:
        summary = job(spark, source, target, **options)
        findings = [str(finding) for finding in summary.findings]
        if summary.failed:
            raise DemoFailed(f"{summary.job} failed: {'; '.join(findings)}")
        report(
            {
                "job": summary.job,
                "rows": summary.rows,
                "seconds": round(summary.seconds, 3),
                "findings": findings,
            }
        )

    run_one(jobs.refine, paths.archive, paths.clean)
    run_one(jobs.features, paths.clean, paths.features, names=FEATURES, sample=SAMPLE)
    run_one(jobs.quality, paths.clean, paths.quality)


if __name__ == "__main__":
    main(run)
