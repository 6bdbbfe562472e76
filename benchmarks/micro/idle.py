"""The cost of an idle writer: memory, opening, and its threads."""

from __future__ import annotations

import os
import time
from pathlib import Path

import tapewire as tw
from benchmarks.harness import Row, Scale, Series, scratch

FAMILY = "idle writer"
SETTLED_S = 3.0  # by then, the threads run at their longest interval


def _open_ms(path: Path) -> float:
    start = time.perf_counter_ns()
    with tw.open_publisher(path):
        return (time.perf_counter_ns() - start) / 1e6


def _taken_mib(queue: Path) -> float:
    """Memory used by the files of a queue on tmpfs."""
    files = (path for path in queue.rglob("*") if path.is_file())
    return sum(os.stat(path).st_blocks * 512 for path in files) / (1 << 20)


def _core_share(directory: Path, writers: int, seconds: float) -> float:
    """Percent of one core used by the threads of so many idle writers."""
    opened = [tw.open_publisher(directory / f"{n}") for n in range(writers)]
    try:
        time.sleep(SETTLED_S)
        cpu, start = time.process_time(), time.perf_counter()
        time.sleep(seconds)
        return 100 * (time.process_time() - cpu) / (time.perf_counter() - start)
    finally:
        for writer in opened:
            writer.close()


def run(scale: Scale) -> list[Row]:
    writers = scale.pick(1_000, 20)
    with scratch() as directory:
        opening = Series(tuple(_open_ms(directory / f"open{n}") for n in range(scale.pick(50, 3))))
        with tw.open_publisher(directory / "idle"):
            time.sleep(scale.pick(1.0, 0.05))
            taken = _taken_mib(directory / "idle")
        share = _core_share(directory / "many", writers, scale.pick(5.0, 0.1))
    return [
        Row(
            FAMILY,
            "open a new queue, default options, median",
            opening.median,
            "ms",
            bar=("≤", 5.0),
            detail={"series": opening.as_dict()},
        ),
        Row(FAMILY, "memory of a queue on tmpfs, default options", taken, "MiB", bar=("≤", 4.0)),
        Row(FAMILY, f"{writers:,} in one process", share, "% of a core", bar=("≤", 1.0)),
    ]
