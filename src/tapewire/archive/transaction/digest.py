"""A digest of rows, by which a batch that is written again is recognised."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow.compute as pc

from tapewire.archive.record_columns import RecordColumns

__all__ = ["Digest"]

_Array = np.ndarray[Any, Any]


class Digest:
    """A digest of a set of rows, whatever their order and however they are split among tasks.

    Two sums modulo 2⁶⁴ of a mixed word per row. It distinguishes a batch that is written again from
    another batch. It is no defence against an attacker who wants two batches to look the same.
    """

    def __init__(self, one: int = 0, two: int = 0) -> None:
        self.one, self.two = one, two

    @classmethod
    def of(cls, log: str, rows: RecordColumns) -> Digest:
        """The digest of rows, with an Arrow array of payloads, that go to this log."""
        crc = np.fromiter(
            map(zlib.crc32, rows.payload.to_pylist()), dtype=np.uint64, count=len(rows)
        )
        sizes = pc.binary_length(rows.payload).to_numpy(zero_copy_only=False)
        word = np.full(len(rows), zlib.crc32(log.encode()), np.uint64)
        columns = (crc, sizes, rows.timestamp_ns, rows.type_id, rows.flags)
        for column in columns if rows.seq is None else (*columns, rows.seq):
            word = _mixed(word + np.asarray(column).astype(np.uint64))
        return cls(
            int(word.sum(dtype=np.uint64)),
            int(_mixed(word ^ np.uint64(0x9E3779B97F4A7C15)).sum(dtype=np.uint64)),
        )

    def add(self, other: Digest) -> None:
        """Add the rows of another digest."""
        self.one, self.two = (self.one + other.one) % 2**64, (self.two + other.two) % 2**64

    def __str__(self) -> str:
        return f"{self.one:016x}{self.two:016x}"


def _mixed(word: _Array) -> _Array:
    """The finalizer of SplitMix64: each bit depends on all bits."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: _Array = word ^ (word >> np.uint64(31))
    return mixed
