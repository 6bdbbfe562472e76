"""Which records of one size are in a log already."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

import tapewire as tw
from tapewire.ingest.import_log import ImportLog

if TYPE_CHECKING:
    from tapewire.ingest.importer import Chunk

__all__ = ["SeenRows", "batches_of", "rows_of", "words_of"]

_Array = np.ndarray[Any, Any]
_BATCH = 65_536
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def batches_of(log: ImportLog, end_seq: int) -> Iterator[Any]:
    """The batches of records before a sequence number, from the start of the log."""
    with contextlib.closing(tw.open_log(log.path)) as reader:
        at = 0
        while at < end_seq:
            batch = reader.read_batch(min(end_seq - at, _BATCH))
            if len(batch) == 0 or int(batch.seq[0]) >= end_seq:
                return
            yield batch
            at = int(batch.seq[-1]) + 1


def rows_of(chunk: Chunk, dtype: Any) -> _Array:
    """The payloads of a chunk, all of one size, as rows of a structured array."""
    rows = chunk.payloads
    if not isinstance(rows, np.ndarray):
        return np.frombuffer(b"".join(rows), dtype)
    return rows if rows.dtype.names else np.ascontiguousarray(rows).view(dtype)[:, 0]


def words_of(rows: _Array) -> _Array:
    """Rows of a structured array as words of eight bytes.

    Bytes between the fields count as well: numpy copies them only if it does not know the fields.
    """
    plain = np.ascontiguousarray(rows.view(np.dtype((np.void, rows.dtype.itemsize))))
    return plain.view(np.uint64).reshape(len(rows), -1)


class SeenRows:
    """Fingerprints of rows, 8 bytes for each: 64 bits of a hash of all their words but some.

    Args:
        without: Words of eight bytes that do not identify a row.

    Example:
        >>> seen = SeenRows()
        >>> seen.add(np.array([[7, 1], [8, 1]], np.uint64))
        >>> seen.holds(np.array([[8, 1], [8, 2]], np.uint64)).tolist()
        [True, False]
    """

    def __init__(self, without: tuple[int, ...] = ()) -> None:
        self._without = without
        self._sorted: list[_Array] = []  # each at least twice as long as the next one

    def add(self, words: _Array) -> None:
        """Add rows, given as words."""
        made = np.sort(self.prints(words))
        while self._sorted and len(self._sorted[-1]) < 2 * len(made):
            made = np.sort(np.concatenate([self._sorted.pop(), made]))
        self._sorted.append(made)

    def holds(self, words: _Array) -> _Array:
        """Which of these rows were added."""
        prints = self.prints(words)
        found = np.zeros(len(prints), bool)
        for known in self._sorted:
            if len(known):
                at = np.minimum(np.searchsorted(known, prints), len(known) - 1)
                found |= known[at] == prints
        return found

    def prints(self, words: _Array) -> _Array:
        """The fingerprint of each row."""
        made = np.zeros(len(words), np.uint64)
        for column in range(words.shape[1]):
            if column not in self._without:
                made = (made ^ words[:, column]) * _MULTIPLIER
                made ^= made >> _SHIFT
        return made
