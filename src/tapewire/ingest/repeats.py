"""Leaves out records that are in their log already, by what identifies them at the venue.

What is left out depends on the records before the job and on its files alone, never on what a
killed run appended: a resumed job leaves out the same.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire.ingest.import_log import ImportLog
from tapewire.ingest.repeated_orders import RepeatedOrders
from tapewire.ingest.repeated_trades import RepeatedTrades
from tapewire.ingest.repeated_updates import RepeatedUpdates
from tapewire.protocol.market import BOOK_EVENT, TRADE_TICK

if TYPE_CHECKING:
    from tapewire.ingest.importer import Chunk
    from tapewire.ingest.running_book import RunningBook

__all__ = ["Repeats"]

_Stream = tuple[str, str, str]
_Filter = RepeatedTrades | RepeatedUpdates | RepeatedOrders


class Repeats:
    """Finds the repeated records of all streams of a job.

    Attributes:
        left_out: Kind → number of records that were left out.
    """

    def __init__(self, forget_loss: Callable[[_Stream], None]) -> None:
        self.left_out: collections.Counter[str] = collections.Counter()
        self._forget_loss = forget_loss
        self._filters: dict[_Stream, tuple[str, _Filter]] = {}
        self._held: dict[_Stream, list[Chunk]] = {}  # of filters of earlier logs

    def new(
        self, stream: _Stream, log: ImportLog, chunk: Chunk, book: RunningBook | None
    ) -> Iterator[Chunk]:
        """The records of a chunk that are not in the log, as chunks to be appended."""
        found = self._filter(stream, log, chunk, book)
        yield from self._held.pop(stream, ())
        if found is None:
            _count_earlier(log, np.asarray(chunk.timestamps_ns))
            yield chunk
            return
        for part in found.new(chunk):
            _count_earlier(log, np.asarray(part.timestamps_ns)[~found.identified(part)])
            yield part
        self.left_out += found.left_out
        found.left_out.clear()
        if found.forgets_loss:
            found.forgets_loss = False
            self._forget_loss(stream)

    def begins(self, stream: _Stream) -> None:
        """The stream continues in another log."""
        _, found = self._filters.pop(stream, ("", None))
        if isinstance(found, RepeatedOrders):
            self._held.setdefault(stream, []).extend(found.rest())

    def rest(self) -> Iterator[tuple[_Stream, Chunk]]:
        """What waits for the record after it, at the end."""
        for stream in list(self._filters):
            self.begins(stream)
        for stream, chunks in self._held.items():
            for chunk in chunks:
                yield stream, chunk

    def _filter(
        self, stream: _Stream, log: ImportLog, chunk: Chunk, book: RunningBook | None
    ) -> _Filter | None:
        of, found = self._filters.get(stream, ("", None))
        if found is not None and (of == log.log or isinstance(found, RepeatedUpdates)):
            return found
        self.begins(stream)
        made: _Filter | None = None
        if chunk.type_id == TRADE_TICK:
            made = RepeatedTrades(log, chunk.unique)
        elif chunk.type_id == BOOK_EVENT and book is not None:
            if book.of_orders:
                made = RepeatedOrders(log) if log.continues else None
            else:
                made = RepeatedUpdates(book)
        if made is not None:
            self._filters[stream] = (log.log, made)
        return made


def _count_earlier(log: ImportLog, times_ns: Any) -> None:
    """Count records without an identity that may be in the log already, by their times."""
    if log.continues and len(times_ns):
        log.overlapping += int((times_ns < log.earlier_end_ns).sum())
