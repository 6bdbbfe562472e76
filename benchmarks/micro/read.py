"""Reading: `next` one by one, `read_batch` to columns, and skipping by type."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np

import tapewire as tw
from benchmarks.harness import (
    RECORD_BYTES,
    TYPE_ID,
    Row,
    Scale,
    Series,
    against,
    pin,
    quiet,
    repeat,
    rows_of,
    scratch,
)
from tapewire.bench.timed_calls import (
    BATCH,
    copy_out,
    drain,
    next_call_ns,
    next_ns,
    segment_bytes_for,
)

SKIPPED = 50_000  # of one type, between two of another


def fill(path: Path, records: int) -> None:
    with tw.open_publisher(path, segment_bytes=segment_bytes_for(records)) as writer:
        types = np.full(records, TYPE_ID, np.uint16)
        types[SKIPPED::SKIPPED] = TYPE_ID + 1
        writer.append_batch(types, rows_of(records))


def _one_by_one(path: Path, n: int, rounds: int) -> list[Row]:
    with tw.open_log(path) as reader:
        next_ns(reader, n * rounds)  # maps the pages
        rows = []
        for what, statement, bar in (
            ("next(), payload untouched", "next_()", ("≤", 2.5)),
            ("next().payload", "next_().payload", ("≤", 5.0)),
            ("next().payload[0], a byte read", "next_().payload[0]", ("≤", 5.0)),
        ):
            reader.seek_start()
            ours, call = repeat(
                rounds, lambda s=statement: next_ns(reader, n, s), lambda: next_call_ns(n)
            )
            rows.append(against("next", what, "ns", ours, "call", call, bar))
    return rows


def _columns(path: Path, scale: Scale) -> list[Row]:
    ours: dict[str, list[float]] = {"cold": [], "warm": []}
    copies: dict[str, list[float]] = {"cold": [], "warm": []}
    into = np.zeros(BATCH * RECORD_BYTES, np.uint8)
    for _ in range(scale.pick(7, 1)):
        log = np.memmap(
            next(path.glob("*.q")), np.uint8, "r"
        )  # a new reader: its pages are not mapped
        with tw.open_log(path) as reader, quiet():
            for state in ("cold", "warm"):
                reader.seek_start()
                ours[state] += drain(reader)
                copies[state] += copy_out(log, into)

    def row(what: str, state: str, bar: tuple[str, float] | None) -> Row:
        # A higher value is better here.
        mine, theirs = ours[state], copies[state]
        ratio = statistics.median(mine) / statistics.median(theirs)
        detail = {"series": mine, "against_series": theirs, "ratio_of_medians": ratio}
        return Row("read_batch", what, max(mine), "GB/s", "memcpy out", max(theirs), bar, detail)

    return [
        row("read_batch to columns", "warm", ("≥", 0.4)),
        row("  first pass over new pages", "cold", None),
    ]


def _skipping(path: Path, rounds: int) -> list[Row]:
    """Each `next` skips SKIPPED records."""
    took = []
    with tw.open_log(path, types={TYPE_ID + 1}) as reader, quiet():
        for _ in range(rounds):
            reader.seek_start()
            while True:
                start = time.perf_counter_ns()
                found = reader.next()
                ns = time.perf_counter_ns() - start
                if found is None:
                    break
                took.append(ns / SKIPPED)
    series = Series(tuple(took))
    return [
        Row(
            "skip",
            "a record skipped by types=",
            series.best,
            "ns/record",
            bar=("≤", 10.0),
            detail={"series": series.as_dict()},
        )
    ]


def run(scale: Scale) -> list[Row]:
    n, rounds = scale.pick(15_000, 1_000), scale.rounds
    pin(0)
    with scratch() as directory:
        path = directory / "log"
        fill(path, scale.pick(1_000_000, 2 * BATCH))
        return [
            *_one_by_one(path, n, rounds),
            *_columns(path, scale),
            *_skipping(path, scale.pick(7, 1)),
        ]
