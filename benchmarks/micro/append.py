"""One record at a time from a Python loop: `writer.append`."""

from __future__ import annotations

import time
from pathlib import Path

import tapewire as tw
from benchmarks import bare
from benchmarks.harness import (
    PAYLOAD,
    RECORD_BYTES,
    TYPE_ID,
    Row,
    Scale,
    against,
    loop_ns,
    percentiles,
    pin,
    quiet,
    repeat,
    scratch,
    timer_cost,
    unpin,
)
from tapewire._native import Yardstick

FAMILY = "append"


def segment_bytes_for(records: int) -> int:
    """A segment that holds so many records: what rolls is measured elsewhere."""
    return ((records + 2) * RECORD_BYTES // 4096 + 1) * 4096


def open_prefaulted(path: Path, records: int, **options: object) -> tw.queue.Writer:
    """A writer with all its pages in place: `require_prealloc` faults them in before it returns."""
    return tw.open_publisher(
        path, segment_bytes=segment_bytes_for(records), require_prealloc=True, **options
    )


def append_ns(writer: tw.queue.Writer, n: int) -> float:
    """Mean of one append."""
    with quiet():
        return loop_ns(
            "append(type_id, payload)",
            n,
            append=writer.append,
            type_id=TYPE_ID,
            payload=PAYLOAD,
        )


def call_ns(n: int) -> float:
    """Mean of an empty native method with the same arguments."""
    with quiet():
        return loop_ns(
            "append(type_id, payload)",
            n,
            append=Yardstick().append,
            type_id=TYPE_ID,
            payload=PAYLOAD,
        )


def each_append_ns(append: object, n: int) -> list[int]:
    """Every single append by two clock readings; their own cost is in it."""
    now = time.perf_counter_ns
    took = [0] * n
    payload = PAYLOAD
    for i in range(n):
        start = now()
        append(TYPE_ID, payload)
        took[i] = now() - start
    return took


def run(scale: Scale) -> list[Row]:
    n, rounds = scale.pick(15_000, 1_000), scale.rounds
    with scratch() as folder:
        with open_prefaulted(folder / "mean", n * (rounds + 1)) as writer:
            pin(0)
            append_ns(writer, n)
            ours, call = repeat(rounds, lambda: append_ns(writer, n), lambda: call_ns(n))
        unpin()
        samples = scale.pick(500_000, 2_000)
        with open_prefaulted(folder / "each", samples + samples // 10) as writer, quiet():
            pin(0)
            each_append_ns(writer.append, samples // 10)
            single = percentiles(each_append_ns(writer.append, samples))
    timer = timer_cost(scale.pick(100_000, 1_000))
    return [
        against(FAMILY, "append(type, 64 B), mean", "ns", ours, "call", call, ("≤", 3.0)),
        Row(
            FAMILY,
            "append, each call timed, p50",
            single["p50"],
            "ns",
            detail={"percentiles": single},
        ),
        Row(
            FAMILY,
            "  of which the timer itself, p50",
            timer["p50"],
            "ns",
            detail={"percentiles": timer},
        ),
        Row(FAMILY, "  one clock read (in every append)", bare.clock_ns(scale), "ns"),
    ]
