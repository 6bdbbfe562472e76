"""Records as columns, as a batch of a log is read, compared and appended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapewire.log import Batch

__all__ = ["USER_FLAGS", "RecordColumns", "first_difference", "plain"]

USER_FLAGS = np.uint16(0xFF00)  # the low bits belong to the writer
_Array = np.ndarray[Any, Any]


@dataclass
class RecordColumns:
    """Records as `append_batch` takes them.

    Attributes:
        timestamp_ns: The time of each record.
        type_id: The type of each record, or of all of them.
        flags: The user's flags of each record, or of all of them.
        payload: The payloads: an Arrow array of binary, a `Batch`, a sequence of bytes, or a 2-D or
            structured numpy array.
        seq: Sequence numbers, ascending; None where the log assigns them.
    """

    timestamp_ns: _Array
    type_id: _Array | int
    flags: _Array | int
    payload: Any
    seq: _Array | None

    @classmethod
    def of_batch(cls, batch: Batch) -> RecordColumns:
        """A batch that was read from a log; its payloads stay in the mapping."""
        flags = batch.flags & USER_FLAGS
        return cls(batch.timestamp_ns, batch.type_id, flags, batch, batch.seq)

    def __len__(self) -> int:
        return len(self.timestamp_ns)

    def take(self, rows: _Array) -> RecordColumns:
        """These rows, in this order; the payload must be an Arrow array."""
        import pyarrow as pa

        return RecordColumns(
            self.timestamp_ns[rows],
            self.type_id if isinstance(self.type_id, int) else self.type_id[rows],
            self.flags if isinstance(self.flags, int) else self.flags[rows],
            plain(self.payload).take(pa.array(rows)),
            None if self.seq is None else self.seq[rows],
        )

    def part(self, start: int, stop: int) -> RecordColumns:
        """Rows from `start` up to `stop`, without a copy."""
        return RecordColumns(
            self.timestamp_ns[start:stop],
            self.type_id if isinstance(self.type_id, int) else self.type_id[start:stop],
            self.flags if isinstance(self.flags, int) else self.flags[start:stop],
            self.payload[start:stop],
            None if self.seq is None else self.seq[start:stop],
        )

    def seqs(self) -> _Array:
        """The sequence numbers of rows that have them."""
        if self.seq is None:
            raise ValueError("these rows have no sequence numbers")
        return self.seq

    def payloads(self) -> Iterable[memoryview | bytes]:
        """The bytes of each payload."""
        if isinstance(self.payload, Batch):
            return (self.payload.payload(i) for i in range(len(self)))
        if hasattr(self.payload, "to_pylist"):  # Arrow
            return list(self.payload.to_pylist())
        return (memoryview(row).cast("B") for row in self.payload)


def first_difference(one: RecordColumns, other: RecordColumns) -> int:
    """The index of the first record that differs; the shorter length when none does.

    Compared are sequence numbers, times, types, user flags and payloads.
    """
    length = min(len(one), len(other))
    equal = np.ones(length, dtype=bool)
    for mine, theirs in (
        (one.seqs(), other.seqs()),
        (one.timestamp_ns, other.timestamp_ns),
        (one.type_id, other.type_id),
        (one.flags, other.flags),
    ):
        equal &= _words(mine, length) == _words(theirs, length)
    if not equal.all():
        length = int(equal.argmin())
    pairs = zip(range(length), one.payloads(), other.payloads(), strict=False)
    return next((i for i, mine, theirs in pairs if mine != theirs), length)


def plain(payload: Any) -> Any:
    """Payloads as Arrow's `binary`: views, which point into a mapped log, are copied."""
    import pyarrow as pa

    return payload if pa.types.is_binary(payload.type) else payload.cast(pa.binary())


def _words(column: _Array | int, length: int) -> Any:
    """Integers of any type as u64: numpy compares i64 with u64 as floats."""
    if isinstance(column, int):
        return np.uint64(column)
    return column[:length].astype(np.uint64, copy=False)
