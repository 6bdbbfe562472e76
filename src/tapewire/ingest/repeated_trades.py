"""Trades that are in their log already: with the same id, time, price and size."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire.ingest.import_log import ImportLog
from tapewire.ingest.seen_rows import SeenRows, batches_of, rows_of, words_of
from tapewire.protocol.market import TradeTick

if TYPE_CHECKING:
    from tapewire.ingest.importer import Chunk

__all__ = ["RepeatedTrades"]

_Array = np.ndarray[Any, Any]


class RepeatedTrades:
    """The trades of one log.

    A trade without an id (0) is never repeated. As long as ids rise, nothing is looked up.

    Args:
        log: The log, before its next record.
        unique: Whether a trade of the job may repeat one of the same job; if not, only one from
            before the job.
    """

    def __init__(self, log: ImportLog, unique: bool) -> None:
        self.left_out: collections.Counter[str] = collections.Counter()
        self.forgets_loss = False
        self._log = log
        self._unique = unique
        self._seen: SeenRows | None = None
        self._most = 0
        for batch in batches_of(log, self._end_seq()):
            self._most = max(self._most, int(TradeTick.decode(batch)["trade_id"].max()))

    def new(self, chunk: Chunk) -> Iterator[Chunk]:
        """The trades of a chunk that the log does not have."""
        rows = rows_of(chunk, TradeTick.dtype)
        ids = rows["trade_id"]
        before = np.maximum.accumulate(np.concatenate([[np.uint64(self._most)], ids]))[:-1]
        old = (ids != 0) & (ids <= before)
        if self._unique:
            self._most = max(self._most, int(ids.max()))
        words = words_of(rows)
        if old.any():
            if self._seen is None:
                self._seen = self._loaded()
            again = self._seen.holds(words)
            if self._unique:
                again |= ~_first(self._seen.prints(words))
            old &= again
            self.left_out["a trade that is in the log already"] += int(old.sum())
        if self._unique and self._seen is not None:
            self._seen.add(words[~old])
        if not old.all():
            yield chunk.where(~old) if old.any() else chunk

    def identified(self, chunk: Chunk) -> _Array:
        """Which trades have an id."""
        found: _Array = rows_of(chunk, TradeTick.dtype)["trade_id"] != 0
        return found

    def _end_seq(self) -> int:
        return self._log.next_seq if self._unique else self._log.first_seq

    def _loaded(self) -> SeenRows:
        seen = SeenRows()
        for batch in batches_of(self._log, self._end_seq()):
            seen.add(words_of(TradeTick.decode(batch)))
        return seen


def _first(prints: _Array) -> _Array:
    """Which rows are the first ones with their fingerprint."""
    first = np.zeros(len(prints), bool)
    first[np.unique(prints, return_index=True)[1]] = True
    return first
