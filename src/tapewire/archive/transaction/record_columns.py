"""Records as columns, as a batch of a log is read and appended; and a digest of such rows."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapewire.errors import SequenceNotRising

__all__ = ["Digest", "RecordColumns", "duplicated", "plain"]

_Array = np.ndarray[Any, Any]


class Digest:
    """Of a set of rows, whatever their order and however they are split among tasks.

    Two sums modulo 2⁶⁴ of a mixed word per row. It tells a batch that is done again from another
    batch; it is no defence against somebody who wants two batches to look the same.
    """

    def __init__(self, one: int = 0, two: int = 0) -> None:
        self.one, self.two = one, two

    def add(self, other: Digest) -> None:
        """Take in the rows of another digest."""
        self.one, self.two = (self.one + other.one) % 2**64, (self.two + other.two) % 2**64

    def __str__(self) -> str:
        return f"{self.one:016x}{self.two:016x}"


@dataclass
class RecordColumns:
    """Rows as `append_batch` takes them; `seq` is None where logs number themselves."""

    timestamp_ns: _Array
    type_id: _Array
    flags: _Array
    payload: Any  # an Arrow array of binary
    seq: _Array | None

    def __len__(self) -> int:
        return len(self.timestamp_ns)

    def take(self, rows: _Array) -> RecordColumns:
        """These rows, in this order."""
        return RecordColumns(
            self.timestamp_ns[rows],
            self.type_id[rows],
            self.flags[rows],
            plain(self.payload).take(pa.array(rows)),
            None if self.seq is None else self.seq[rows],
        )

    def part(self, start: int, stop: int) -> RecordColumns:
        """Rows from `start` up to `stop`, without a copy."""
        return RecordColumns(
            self.timestamp_ns[start:stop],
            self.type_id[start:stop],
            self.flags[start:stop],
            self.payload.slice(start, stop - start),
            None if self.seq is None else self.seq[start:stop],
        )

    def numbers(self) -> _Array:
        """`seq`, of rows that have one."""
        if self.seq is None:
            raise ValueError("these rows have no numbers")
        return self.seq

    def digest(self, log: str) -> Digest:
        """Of these rows, which go to this log."""
        crc = np.fromiter(
            map(zlib.crc32, self.payload.to_pylist()), dtype=np.uint64, count=len(self)
        )
        sizes = pc.binary_length(self.payload).to_numpy(zero_copy_only=False)
        word = np.full(len(self), zlib.crc32(log.encode()), np.uint64)
        columns = (crc, sizes, self.timestamp_ns, self.type_id, self.flags)
        for column in columns if self.seq is None else (*columns, self.seq):
            word = _mixed(word + column.astype(np.uint64))
        return Digest(
            int(word.sum(dtype=np.uint64)),
            int(_mixed(word ^ np.uint64(0x9E3779B97F4A7C15)).sum(dtype=np.uint64)),
        )


def plain(payload: Any) -> Any:
    """Payloads as Arrow's `binary`: of views, which lie in a mapped log, it is a copy."""
    return payload if pa.types.is_binary(payload.type) else payload.cast(pa.binary())


def _mixed(word: _Array) -> _Array:
    """The finalizer of SplitMix64: each bit depends on all bits."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: _Array = word ^ (word >> np.uint64(31))
    return mixed


def duplicated(log: str, seq: int) -> SequenceNotRising:
    """The error for a sequence number that a log would have in two records."""
    return SequenceNotRising(
        f"a log has each number once: seq={seq}, log={log}",
        hint='drop the duplicates, or leave them to the sink: option("duplicates", "drop")',
    )
