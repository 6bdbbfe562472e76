"""Many records at once: `append_batch` of numpy rows, and a memcpy into the same pages."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.harness import (
    RECORD_BYTES,
    TYPE_ID,
    Row,
    Scale,
    Series,
    against,
    pin,
    quiet,
    rows_of,
    scratch,
    unpin,
)
from benchmarks.micro.append import open_prefaulted

FAMILY = "append_batch"


def _copies_ns(writer, source, batches: int) -> list[float]:
    """A memcpy of 128 B a record, batch by batch, over the pages that the batches go to next."""
    reservation = writer.reserve(TYPE_ID, batches * source.nbytes)
    place = np.frombuffer(reservation.buffer, np.uint8).reshape(batches, -1)
    took = [_time(lambda piece=piece: np.copyto(piece, source)) for piece in place]
    del place
    reservation.abort()
    return took


def _time(action: Callable[[], object]) -> int:
    start = time.perf_counter_ns()
    action()
    return time.perf_counter_ns() - start


def _one_round(path: Path, rows, batches: int, checksum: bool) -> tuple[list[float], list[float]]:
    """Nanoseconds of each append_batch, and of each memcpy."""
    source = np.ones(len(rows) * RECORD_BYTES, np.uint8)
    with open_prefaulted(path, batches * len(rows) + 64, checksum=checksum) as writer, quiet():
        pin(0)
        copied = _copies_ns(writer, source, batches)
        appended = [_time(lambda: writer.append_batch(TYPE_ID, rows)) for _ in range(batches)]
    unpin()
    shutil.rmtree(path)
    return appended, copied


def _row(folder: Path, scale: Scale, what: str, size: int, checksum: bool, bar) -> Row:
    batches = max(2, scale.pick(1 << 20, 1 << 12) // size)
    rows = rows_of(size)
    appended, copied = [], []
    for i in range(scale.pick(5, 1)):
        ours, theirs = _one_round(folder / f"{size}-{checksum}-{i}", rows, batches, checksum)
        appended += ours
        copied += theirs
    ours = Series(tuple(ns / size for ns in appended))
    copies = Series(tuple(ns / size for ns in copied))
    row = against(FAMILY, what, "ns/record", ours, "memcpy 128 B", copies, bar or ("≤", 0.0))
    row.detail["rows_per_batch"] = size
    if bar is None:
        row.bar = None
    return row


def run(scale: Scale) -> list[Row]:
    large, small = scale.pick(65_536, 1_024), scale.pick(1_024, 64)
    with scratch() as folder:
        return [
            _row(folder, scale, f"{large:,} rows a batch", large, True, ("≤", 3.0)),
            _row(folder, scale, f"{large:,} rows, checksum=False", large, False, ("≤", 1.5)),
            _row(folder, scale, f"{small:,} rows a batch", small, True, None),
        ]
