"""Seeks by sequence number and time in queues of 1, 10 and 100 segments, active one included."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from pathlib import Path

import tapewire as tw
from benchmarks.harness import (
    RECORD_BYTES,
    TYPE_ID,
    Row,
    Scale,
    percentiles,
    pin,
    quiet,
    rows_of,
    scratch,
    until,
)

SEGMENTS = (1, 10, 100)


def fill(path: Path, segments: int, segment_bytes: int) -> tw.queue.Writer:
    """A queue of so many segments, the last one half full and open; 1,000 ns between records."""
    import numpy as np

    per_segment = (segment_bytes - 64) // RECORD_BYTES
    writer = tw.open_publisher(path, segment_bytes=segment_bytes, prealloc_wait=1.0)
    rows = rows_of(per_segment)
    for segment in range(segments):
        n = per_segment if segment < segments - 1 else per_segment // 2
        first = writer.next_seq
        writer.append_batch(
            TYPE_ID, rows[:n], timestamps_ns=np.arange(first, first + n, dtype=np.int64) * 1_000
        )
    last = path / f"{segments - 1:09d}.idx"
    until(last.exists, "the active segment's index")
    return writer


def _each_ns(seek: Callable[[int], bool], targets: list[int]) -> list[int]:
    now = time.perf_counter_ns
    took = []
    for target in targets:
        start = now()
        found = seek(target)
        took.append(now() - start)
        assert found
    return took


def _measure(
    reader: tw.Reader, last_seq: int, first_active: int, count: int
) -> dict[str, dict[str, float]]:
    choose = random.Random(1)
    anywhere = [choose.randint(0, last_seq) for _ in range(count)]
    active = [choose.randint(first_active, last_seq) for _ in range(count)]
    result = {}
    with quiet():
        for how, seek in (
            ("seq", reader.seek_seq),
            ("time", lambda seq: reader.seek_time(seq * 1_000)),
        ):
            for where, targets in (("anywhere", anywhere), ("active", active)):
                _each_ns(seek, targets[: count // 4])
                result[f"{how} {where}"] = percentiles(_each_ns(seek, targets))
                assert reader.next().seq == targets[-1]
    return result


def run(scale: Scale) -> list[Row]:
    segment_bytes = scale.pick(8 << 20, 1 << 18)
    segments = scale.pick(SEGMENTS, (1, 10))
    per_segment = (segment_bytes - 64) // RECORD_BYTES
    measured = {}
    pin(0)
    with scratch() as directory:
        for n in segments:
            path = directory / str(n)
            with fill(path, n, segment_bytes) as writer, tw.open_log(path) as reader:
                measured[n] = _measure(
                    reader, writer.next_seq - 1, (n - 1) * per_segment, scale.pick(1_000, 20)
                )
    rows = []
    for how in ("seq", "time"):
        for where in ("anywhere", "active"):
            key = f"{how} {where}"
            by_count = {n: measured[n][key] for n in segments}
            for n in segments:
                place = "anywhere" if where == "anywhere" else "in the active one"
                rows.append(
                    Row(
                        f"seek_{how}",
                        f"{n} segment{'s'[: n > 1]}, {place}, p50",
                        by_count[n]["p50"] / 1e3,
                        "µs",
                        bar=("≤", 100.0),
                        detail={"percentiles": by_count[n], "segments": n, "where": where},
                    )
                )
        first, last = segments[0], segments[-1]
        rows.append(
            Row(
                f"seek_{how}",
                f"growth from {first} to {last}, p50",
                measured[last][f"{how} anywhere"]["p50"] / 1e3,
                "µs",
                f"{first} segment",
                measured[first][f"{how} anywhere"]["p50"] / 1e3,
                ("≤", round(math.log2(last), 1)),
            )
        )
    return rows
