"""The calls that are timed, as users make them.

Used by `tapewire bench` and by the project's own benchmarks.
"""

from __future__ import annotations

import contextlib
import functools
import re
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tapewire as tw
from tapewire._native import Yardstick
from tapewire.bench.pair import Shared, begin_receiving, end_receiving
from tapewire.bench.timing import (
    PAYLOAD,
    RECORD_BYTES,
    TYPE_ID,
    loop_ns,
    pin,
    quiet,
    rows_of,
    unpin,
    until,
)
from tapewire.queue import Writer

__all__ = [
    "BATCH",
    "ROLL_SEGMENT_BYTES",
    "append_call_ns",
    "append_ns",
    "batch_round",
    "copy_out",
    "drain",
    "each_append_ns",
    "next_call_ns",
    "next_ns",
    "open_prefaulted",
    "receive_by_follow",
    "receive_by_next",
    "rolls",
    "segment_bytes_for",
    "sender",
]

BATCH = 65_536
ROLL_SEGMENT_BYTES = 1 << 20
_PER_SEGMENT = (ROLL_SEGMENT_BYTES - 64) // RECORD_BYTES
_ROLL_WARM = 1_000
_AHEAD_BYTES = 256 << 10  # minimum that a worker prepares


def segment_bytes_for(records: int) -> int:
    """The size of a segment for so many records, so that the measurement does not roll."""
    return ((records + 2) * RECORD_BYTES // 4096 + 1) * 4096


def open_prefaulted(path: Path, records: int, **options: Any) -> Writer:
    """A writer whose pages are all mapped: `require_prealloc` faults them in before it returns."""
    return tw.open_publisher(
        path, segment_bytes=segment_bytes_for(records), require_prealloc=True, **options
    )


def append_ns(writer: Writer, n: int) -> float:
    """Mean nanoseconds of `append` in a loop."""
    with quiet():
        return loop_ns(
            "append(type_id, payload)",
            n,
            append=writer.append,
            type_id=TYPE_ID,
            payload=PAYLOAD,
        )


def append_call_ns(n: int) -> float:
    """Mean nanoseconds of an empty native method with the arguments of `append`."""
    with quiet():
        return loop_ns(
            "append(type_id, payload)",
            n,
            append=Yardstick().append,
            type_id=TYPE_ID,
            payload=PAYLOAD,
        )


def each_append_ns(append: Callable[[int, bytes], object], n: int) -> list[int]:
    """Nanoseconds of every append, by two clock readings, whose own cost is included."""
    now = time.perf_counter_ns
    took = [0] * n
    payload = PAYLOAD
    for i in range(n):
        start = now()
        append(TYPE_ID, payload)
        took[i] = now() - start
    return took


def next_ns(reader: tw.Reader, n: int, statement: str = "next_()") -> float:
    """Mean nanoseconds of `next`, from the reader's position on."""
    with quiet():
        return loop_ns(statement, n, next_=reader.next)


def next_call_ns(n: int) -> float:
    """Mean nanoseconds of an empty native method without arguments."""
    with quiet():
        return loop_ns("next_()", n, next_=Yardstick().next)


def drain(reader: tw.Reader) -> list[float]:
    """GB/s of each batch, read as columns: sequence number, time, type, view of the payloads."""
    dtype = np.dtype("V64")
    rates: list[float] = []
    while True:
        start = time.perf_counter_ns()
        batch = reader.read_batch(BATCH)
        columns = (batch.seq, batch.timestamp_ns, batch.type_id, batch.view(dtype))
        took = time.perf_counter_ns() - start
        if len(columns[0]) < BATCH:
            return rates
        rates.append(BATCH * RECORD_BYTES / took)


def copy_out(log: np.ndarray[Any, Any], into: np.ndarray[Any, Any]) -> list[float]:
    """GB/s of copying the same log, in pieces of the size of a batch."""
    rates: list[float] = []
    for at in range(0, len(log) - len(into) + 1, len(into)):
        start = time.perf_counter_ns()
        np.copyto(into, log[at : at + len(into)])
        rates.append(len(into) / (time.perf_counter_ns() - start))
    return rates


def _copies_ns(writer: Writer, source: np.ndarray[Any, Any], batches: int) -> list[int]:
    """Nanoseconds of a memcpy of 128 B per record, to the pages that the batches use next."""
    reservation = writer.reserve(TYPE_ID, batches * source.nbytes)
    place = np.frombuffer(reservation.buffer, np.uint8).reshape(batches, -1)
    took = [_time(functools.partial(np.copyto, piece, source)) for piece in place]
    del place
    reservation.abort()
    return took


def _time(action: Callable[[], object]) -> int:
    start = time.perf_counter_ns()
    action()
    return time.perf_counter_ns() - start


def batch_round(
    path: Path, rows: np.ndarray[Any, Any], batches: int, checksum: bool
) -> tuple[list[int], list[int]]:
    """Nanoseconds of each append_batch, and of each memcpy."""
    source = np.ones(len(rows) * RECORD_BYTES, np.uint8)
    with open_prefaulted(path, batches * len(rows) + 64, checksum=checksum) as writer, quiet():
        pin(0)
        copied = _copies_ns(writer, source, batches)
        appended = [_time(lambda: writer.append_batch(TYPE_ID, rows)) for _ in range(batches)]
    unpin()
    shutil.rmtree(path)
    return appended, copied


def _prepared(path: Path, segment: int) -> bool:
    """Whether the next segment has its name, and the worker has faulted in its first pages."""
    if not (path / f"{segment:09d}.q").exists():
        return False
    mapped = Path("/proc/self/smaps").read_text()
    found = re.search(rf"{segment:09d}\.q\n(?:.*\n)*?Rss:\s+(\d+) kB", mapped)
    return found is not None and int(found[1]) * 1024 >= _AHEAD_BYTES


def rolls(path: Path, count: int) -> tuple[list[int], list[int], int]:
    """Nanoseconds and page faults of each append that rolled; how many found no segment ready."""
    rows = rows_of(_PER_SEGMENT)
    me = resource.RUSAGE_THREAD
    took, faults = [], []
    ready = 0
    with tw.open_publisher(path, segment_bytes=ROLL_SEGMENT_BYTES, prealloc_wait=10.0) as writer:
        pin(0)  # only this thread; the workers keep the other core
        with quiet():
            writer.append_batch(TYPE_ID, rows[_ROLL_WARM:])
            for segment in range(count):
                until(functools.partial(_prepared, path, segment + 1), "a prepared segment")
                # So that the writer is busy when it rolls, as it is in practice.
                each_append_ns(writer.append, _ROLL_WARM)
                faults_before = resource.getrusage(me).ru_minflt
                start = time.perf_counter_ns()
                writer.append(TYPE_ID, PAYLOAD)
                ns = time.perf_counter_ns() - start
                faulted = resource.getrusage(me).ru_minflt - faults_before
                # Count only segments that the worker had handed over; others are late.
                if (now_ready := writer.metrics()["prealloc_ready"]) > ready:
                    ready = now_ready
                    took.append(ns)
                    faults.append(faulted)
                writer.append_batch(TYPE_ID, rows[_ROLL_WARM + 1 :])
    unpin()
    return took, faults, count - len(took)


@contextlib.contextmanager
def sender(path: Path, records: int) -> Iterator[Callable[[bytes], object]]:
    """A function that appends a message to a new queue with space for so many."""
    with open_prefaulted(path, records) as writer:
        yield functools.partial(writer.append, TYPE_ID)


def receive_by_next(path: Path, shared: Shared) -> None:
    """Receive with `next` in a busy loop."""
    now = time.perf_counter_ns
    with tw.open_subscriber(path, "bench", wait=tw.BusySpin()) as reader:
        next_, got, count = reader.next, shared.got, shared.count
        begin_receiving(shared)
        i = 0
        while i < count:
            if next_() is None:
                continue
            got[i] = now()
            i += 1
        end_receiving(shared)


def receive_by_follow(path: Path, wait: Any, shared: Shared) -> None:
    """Receive with `for record in reader.follow()`, as users write it."""
    now = time.perf_counter_ns
    with tw.open_subscriber(path, "bench", wait=wait) as reader:
        got, count = shared.got, shared.count
        begin_receiving(shared)
        for i, _ in enumerate(reader.follow(timeout=30), 1):
            got[i - 1] = now()
            if i == count:
                break
        end_receiving(shared)
