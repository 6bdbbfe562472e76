"""The demo's Spark, a process of its own: refines the archive, computes features, judges both."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tapewire.demo.places import Places
from tapewire.demo.process import Process, main
from tapewire.demo.stage import DemoFailed

__all__ = ["FEATURES", "MASTER", "SAMPLE", "run", "run_jobs"]

FEATURES = ("mid", "spread_bps", "microprice", "imbalance5")
SAMPLE = "100ms"
MASTER = "local[2]"
_CONF = {
    "spark.sql.shuffle.partitions": "2",  # one small day: more would be empty
    # It runs for seconds: over before the optimising compiler would have earned what it costs.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def run(process: Process) -> None:
    """Start Spark, run the jobs, and tell of each."""
    from tapewire import spark as tws

    began = time.monotonic()
    spark = tws.session("tapewire demo", MASTER, conf=_CONF)
    try:
        process.say("started", seconds=time.monotonic() - began)
        run_jobs(spark, process.places, lambda facts: process.say("job", **facts))
    finally:
        spark.stop()


def run_jobs(spark: Any, places: Places, tell: Callable[[dict[str, Any]], None]) -> None:
    """The jobs one after the other, each told of: its name, rows, seconds and findings.

    Raises:
        DemoFailed: One of them could not do its part.
    """
    from tapewire.spark import jobs

    def run_one(job: Callable[..., Any], source: Path, target: Path, **options: Any) -> None:
        summary = job(spark, source, target, **options)
        findings = [str(finding) for finding in summary.findings]
        if summary.failed:
            raise DemoFailed(f"{summary.job} failed: {'; '.join(findings)}")
        tell(
            {
                "job": summary.job,
                "rows": summary.rows,
                "seconds": round(summary.seconds, 3),
                "findings": findings,
            }
        )

    run_one(jobs.refine, places.archive, places.clean)
    run_one(jobs.features, places.clean, places.features, names=FEATURES, sample=SAMPLE)
    run_one(jobs.quality, places.clean, places.quality)


if __name__ == "__main__":
    main(run)
