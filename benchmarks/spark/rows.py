"""The rows about Spark in the performance table."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.harness import Row, Scale
from benchmarks.spark import read, sessions, speedup, writing

FAMILY = "spark"


def run(scale: Scale) -> list[Row]:
    if scale.smoke:  # starting Spark takes longer than the measurement
        with sessions.session() as spark:
            reading, written = read.measure(spark, scale), writing.measure(spark, scale)
            faster = speedup.smoke(spark)
    else:
        reading = sessions.in_process("benchmarks.spark.read")
        written = sessions.in_process("benchmarks.spark.writing")
        faster = speedup.compare()
    return [
        _against_parquet(reading, "batch read of a queue", "queue", "parquet", ("≥", 0.5)),
        _against_parquet(reading, "its numbers alone", "queue_numbers", "parquet_numbers", None),
        _speedup(faster, scale),
        *_writing(written),
    ]


def _against_parquet(
    found: dict[str, Any], what: str, ours: str, theirs: str, bar: tuple[str, float] | None
) -> Row:
    count = found["rows"]
    rates = [count / found[side]["best"] for side in (ours, theirs)]
    detail = {
        "rows": count,
        "cores": sessions.CORES,
        "seconds": found[ours],
        "against_seconds": found[theirs],
        "ratio_of_medians": found[theirs]["median"] / found[ours]["median"],
    }
    return Row(
        FAMILY, what, rates[0], "rows/s", "uncompressed Parquet, rows/s", rates[1], bar, detail
    )


def _speedup(found: dict[str, Any], scale: Scale) -> Row:
    one, two = (min(found[side]["seconds"]) for side in ("one", "two"))
    if not scale.smoke and one < speedup.LONG_ENOUGH_S:
        raise RuntimeError(f"the job must take a minute on one core: {one:.1f} s")
    what = f"book replay + features, 1 core to {found['two']['cores']}, speed-up"
    events = found["records"] * found["one"]["passes"]
    detail = {
        "seconds_one": found["one"]["seconds"],
        "seconds_two": found["two"]["seconds"],
        "passes": found["one"]["passes"],
        "events_per_s_one": events / one,
        "events_per_s_two": events / two,
    }
    return Row(FAMILY, what, one / two, "×", None, None, ("≥", 1.7), detail)


def _writing(found: dict[str, Any]) -> list[Row]:
    sink, took = found["sink"], found["stream"]["seconds"]
    latency = statistics.median(took) * 1e3
    return [
        Row(FAMILY, "sink, durable", sink["rows"] / sink["best"], "rows/s", detail={"sink": sink}),
        Row(
            FAMILY,
            "streaming, append to foreachBatch, p50",
            latency,
            "ms",
            detail={"all_s": took},
        ),
    ]
