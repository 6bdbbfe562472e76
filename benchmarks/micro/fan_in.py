"""Many queues into one reader: a merge by time, in batches and one by one."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import tapewire as tw
from benchmarks.harness import TYPE_ID, Row, Scale, Series, pin, quiet, rows_of, scratch
from benchmarks.micro.read import BATCH, next_ns
from tapewire import bus
from tapewire.bench.timed_calls import segment_bytes_for

SOURCES = 8


def fill(directory: Path, records: int) -> None:
    """Write so many records to each queue; their times interleave at random."""
    whose = np.random.default_rng(8).permutation(np.repeat(np.arange(SOURCES), records))
    for i in range(SOURCES):
        path = directory / f"source{i}"
        with tw.open_publisher(path, segment_bytes=segment_bytes_for(records)) as writer:
            times = np.flatnonzero(whose == i)
            writer.append_batch(TYPE_ID, rows_of(records), timestamps_ns=times)


def open_fan(directory: Path, max_skew: float | None) -> bus.FanInReader:
    readers = {path.name: tw.open_log(path) for path in sorted(directory.glob("source*"))}
    return bus.FanInReader(readers, max_skew)


def _drain(fan: bus.FanInReader) -> float:
    """Million records per second, to columns, over the complete log."""
    fan.seek_start()
    records = 0
    start = time.perf_counter_ns()
    while len(batch := fan.read_batch(BATCH)):
        records += len(batch)
    return records * 1e3 / (time.perf_counter_ns() - start)


def _batched(directory: Path, max_skew: float | None, rounds: int) -> tuple[float, Series]:
    with open_fan(directory, max_skew) as fan, quiet():
        _drain(fan)  # maps the pages
        rates = tuple(_drain(fan) for _ in range(rounds))
        if fan.late:
            raise RuntimeError(f"out of order: late={fan.late}")
    return max(rates), Series(rates)  # a higher value is better here


def run(scale: Scale) -> list[Row]:
    rounds = scale.pick(7, 1)
    each = scale.pick(250_000, 2_000)
    pin(0)
    with scratch() as directory:
        fill(directory, each)
        replay, replays = _batched(directory, None, rounds)
        live, lives = _batched(directory, 0.001, rounds)
        with open_fan(directory, None) as fan:
            one_by_one = next_ns(fan, SOURCES * each // 2)
    unit = "M records/s"
    return [
        Row(
            "fan_in",
            f"fan-in of {SOURCES} queues, batched, replay",
            *(replay, unit, None, None, ("≥", 5.0)),
            {"series": replays.as_dict()},
        ),
        Row(
            "fan_in",
            f"fan-in of {SOURCES} queues, batched, max_skew=0.001",
            *(live, unit, None, None, ("≥", 5.0)),
            {"series": lives.as_dict()},
        ),
        Row("fan_in", "  one by one, next()", one_by_one, "ns"),
    ]
