"""The rate of the sink, and the latency of a streaming query."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import tapewire as tw
from benchmarks.harness import Scale, repeat, scratch
from benchmarks.spark import sessions, tape


def _sink(spark: Any, directory: Path, scale: Scale) -> dict[str, Any]:
    """Rows of a cached DataFrame into archive logs: sorted, staged, synced and published."""
    from pyspark.sql import functions as F

    count = scale.pick(2_000_000, 5_000)
    tape.write_records(directory / "queue", count)
    rows = spark.read.format("tapewire").load(str(directory / "queue")).drop("timestamp", "queue")
    rows = rows.withColumns({n: F.lit(n) for n in ("venue", "symbol", "stream")}).cache()
    if rows.count() != count:
        raise RuntimeError("rows to write are missing")
    targets = iter(range(1_000))

    def write() -> float:
        target = str(directory / f"sink-{next(targets)}")
        took = sessions.seconds(lambda: rows.write.format("tapewire").mode("append").save(target))
        return took

    (series,) = repeat(scale.pick(5, 1), write)
    written = spark.read.format("tapewire").load(str(directory / "sink-0")).count()
    if written != count:
        raise RuntimeError(f"the sink wrote {written} of {count} rows")
    rows.unpersist()
    return {"rows": count, **series.as_dict()}


def _stream(spark: Any, directory: Path, scale: Scale) -> dict[str, Any]:
    """One record at a time, each after the previous one has come out: no record waits in line."""
    arrived: list[int] = []

    def take(frame: Any, _: int) -> None:
        arrived.extend(row.seq for row in frame.select("seq").collect())

    took = []
    with tw.open_publisher(directory / "live", segment_bytes=1 << 20) as writer:
        source = spark.readStream.format("tapewire").option("reader", "benchmark")
        query = (
            source.load(str(directory / "live"))
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(directory / "checkpoint"))
            .start()
        )
        try:
            for number in range(scale.pick(60, 3)):
                started = time.perf_counter()
                writer.append(1, b"x" * 64)
                while not arrived or arrived[-1] != number:
                    if (error := query.exception()) is not None:
                        raise error
                    time.sleep(0.001)
                took.append(time.perf_counter() - started)
        finally:
            query.stop()
    return {"seconds": took[scale.pick(10, 1) :]}  # the first ones compile


def measure(spark: Any, scale: Scale) -> dict[str, Any]:
    with scratch() as directory:
        return {"sink": _sink(spark, directory, scale), "stream": _stream(spark, directory, scale)}


if __name__ == "__main__":
    with sessions.session() as spark:
        print(json.dumps(measure(spark, Scale())))
