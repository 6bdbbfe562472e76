"""Books replayed and features computed by Spark with one core and with two.

The job: features of one symbol's day at several spans, as a union of one DataFrame each, so that it
takes a minute on one core with a log that fits in memory. Each number of cores has its own process,
pinned to that many: with only `local[1]`, Java runs on a second core while Python replays on the
first. Two warm-up rounds start Python workers and compilers.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness import scratch
from benchmarks.spark import sessions, tape

FEATURES = "mid,spread_bps,microprice,imbalance5,bid_depth10,ask_depth10,ofi"
SPANS_MS = (50, 100, 200, 250, 500, 1_000, 2_000, 5_000, 10_000, 20_000)
LONG_ENOUGH_S = 60.0
AIM_S = 90.0
TAPE_BYTES = 6 << 30


def job(spark: Any, path: str, passes: int) -> list[int | None]:
    """So many passes over the log, each at a different span."""
    frames = []
    for i in range(passes):
        span = SPANS_MS[i % len(SPANS_MS)] * (1 + i // len(SPANS_MS))
        reader = spark.read.format("tapewire").option("view", "features")
        frames.append(reader.options(features=FEATURES, sample=f"{span}ms").load(path))
    united = frames[0]
    for frame in frames[1:]:
        united = united.union(frame)
    return sessions.everything(united)


def measure(spark: Any, path: Path | str, passes: int) -> dict[str, Any]:
    """Seconds of the job after warm-up; with `passes=0`, as many passes as make it long enough."""
    for _ in range(2):
        once = sessions.seconds(lambda: job(spark, str(path), 1))
    chosen = passes or math.ceil(AIM_S / once)
    while True:
        totals: list[Any] = []
        took = sessions.seconds(lambda: totals.extend(job(spark, str(path), chosen)))  # noqa: B023
        if passes or took >= LONG_ENOUGH_S:
            break
        chosen = math.ceil(chosen * AIM_S / took)  # margin: it is warmer now than in the trial
    cores = spark.sparkContext.defaultParallelism
    return {"cores": cores, "passes": chosen, "seconds": [took], "totals": totals}


def compare() -> dict[str, Any]:
    """One core, then two, then each again: a busy minute affects only one run."""
    with scratch(Path("/var/tmp")) as directory:
        made = tape.write_books(directory / "archive", TAPE_BYTES)
        one = _in_process(made.path, 1, 0)
        two = _in_process(made.path, sessions.CORES, one["passes"])
        for side in (one, two):
            side["seconds"] += _in_process(made.path, side["cores"], one["passes"])["seconds"]
    return result(made, one, two)


def _in_process(path: Path, cores: int, passes: int) -> Any:
    return sessions.in_process("benchmarks.spark.speedup", path, cores, passes)


def smoke(spark: Any) -> dict[str, Any]:
    """The same, tiny and in one session: both sides use its cores."""
    with scratch() as directory:
        made = tape.write_books(directory / "archive", 4 << 20)
        one, two = (measure(spark, made.path, 1) for _ in range(2))
    return result(made, one, two)


def result(made: tape.Tape, one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    if one["totals"] != two["totals"]:
        raise RuntimeError(
            f"features depend on the number of cores: {one['totals']}, {two['totals']}"
        )
    return {"records": made.records, "bytes": made.bytes, "one": one, "two": two}


if __name__ == "__main__":
    where, wanted_cores, wanted_passes = sys.argv[1:]
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(wanted_cores)])
    with sessions.session(int(wanted_cores)) as spark:
        print(json.dumps(measure(spark, where, int(wanted_passes))))
