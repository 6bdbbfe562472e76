"""Memory that was never touched: long runs of appends, and the first pass over a log."""

from __future__ import annotations

import time
from pathlib import Path

import tapewire as tw
from benchmarks.harness import (
    TYPE_ID,
    Row,
    Scale,
    Series,
    against,
    quiet,
    repeat,
    rows_of,
    scratch,
)
from tapewire.bench.timed_calls import BATCH, append_ns, next_ns, open_prefaulted

FAMILY = "fresh memory"
SEGMENT_BYTES = 128 << 20
RECORDS = SEGMENT_BYTES // 128 - 1  # fits one segment of the default size


def _sustained(directory: Path, scale: Scale) -> Row:
    """Appends over four rolls with default options, compared with a loop whose pages are mapped."""
    n = scale.pick(5_000_000, 20_000)
    hot_n, hot_rounds = scale.pick(15_000, 1_000), scale.pick(9, 1)

    def long_run() -> float:
        with tw.open_publisher(directory / "sustained") as writer:
            append_ns(writer, n // 100)  # from here on, the writer knows its rate
            took = append_ns(writer, n)
        _remove(directory / "sustained")
        return took

    def hot() -> float:
        with open_prefaulted(directory / "hot", hot_n * (hot_rounds + 1)) as writer:
            append_ns(writer, hot_n)
            took = min(append_ns(writer, hot_n) for _ in range(hot_rounds))
        _remove(directory / "hot")
        return took

    ours, theirs = repeat(scale.pick(5, 1), long_run, hot)
    what = f"append, {n:,} in a row, segments of 128 MiB"
    return against(FAMILY, what, "ns", ours, "hot append", theirs, ("≤", 1.3))


def _remove(queue: Path) -> None:
    for path in sorted(queue.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    queue.rmdir()


def _batches_ns(reader: tw.Reader, n: int) -> float:
    with quiet():
        start = time.perf_counter_ns()
        while len(reader.read_batch(BATCH)):
            pass
        return (time.perf_counter_ns() - start) / n


def _readings(directory: Path, scale: Scale) -> list[Row]:
    """A log read once by a reader that has just opened it, then again by the same reader."""
    n = scale.pick(RECORDS, 20_000)
    with tw.open_publisher(directory / "log", segment_bytes=SEGMENT_BYTES) as writer:
        writer.append_batch(TYPE_ID, rows_of(n))
    rows = []
    for what, reading in (("next()", next_ns), ("read_batch, a record", _batches_ns)):
        first, second = [], []
        for _ in range(scale.pick(7, 1)):
            with tw.open_log(directory / "log") as reader:
                first.append(reading(reader, n))
                reader.seek_start()
                second.append(reading(reader, n))
        name = f"{what}, first reading of a log"
        ours, theirs = Series(tuple(first)), Series(tuple(second))
        rows.append(against(FAMILY, name, "ns", ours, "second reading", theirs, ("≤", 1.3)))
    return rows


def run(scale: Scale) -> list[Row]:
    with scratch() as directory:
        return [_sustained(directory, scale), *_readings(directory, scale)]
