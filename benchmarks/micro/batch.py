"""Many records at once: `append_batch` of numpy rows, and a memcpy into the same pages."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness import (
    Row,
    Scale,
    Series,
    against,
    rows_of,
    scratch,
)
from tapewire.bench.timed_calls import batch_round

FAMILY = "append_batch"


def _row(directory: Path, scale: Scale, what: str, size: int, checksum: bool, bar) -> Row:
    batches = max(2, scale.pick(1 << 20, 1 << 12) // size)
    rows = rows_of(size)
    appended, copied = [], []
    for i in range(scale.pick(5, 1)):
        ours, theirs = batch_round(directory / f"{size}-{checksum}-{i}", rows, batches, checksum)
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
    with scratch() as directory:
        return [
            _row(directory, scale, f"{large:,} rows a batch", large, True, ("≤", 3.0)),
            _row(directory, scale, f"{large:,} rows, checksum=False", large, False, ("≤", 1.5)),
            _row(directory, scale, f"{small:,} rows a batch", small, True, None),
        ]
