"""Events of single orders that are in their log since before the job."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire.ingest.event_fields import INGEST_NS
from tapewire.ingest.import_log import ImportLog
from tapewire.ingest.seen_rows import SeenRows, batches_of, rows_of, words_of
from tapewire.protocol.market import L3_RECORD_DTYPE, EventType

if TYPE_CHECKING:
    from tapewire.ingest.importer import Chunk

__all__ = ["RepeatedOrders"]

_Array = np.ndarray[Any, Any]
_INGEST_WORD = INGEST_NS // 8


class RepeatedOrders:
    """The events of one log that has records from before the job.

    An event is repeated if one there has the same sequence number, channel, venue's time and
    content. A reset or loss that an importer puts before a repeated event, because its file begins
    there, is not needed: the log has what is before.
    """

    def __init__(self, log: ImportLog) -> None:
        self.left_out: collections.Counter[str] = collections.Counter()
        self.forgets_loss = False
        self._held: list[Chunk] = []  # resets and losses, before the next event is known
        self._seen = SeenRows(without=(_INGEST_WORD,))
        for batch in batches_of(log, log.first_seq):
            self._seen.add(words_of(batch.view(L3_RECORD_DTYPE)))

    def new(self, chunk: Chunk) -> Iterator[Chunk]:
        """The events of a chunk that the log does not have."""
        rows = rows_of(chunk, L3_RECORD_DTYPE)
        types = rows["head"]["event_type"]
        mark = np.isin(types, (EventType.RESET, EventType.LOSS))
        old = self._seen.holds(words_of(rows)) & ~mark
        events = np.flatnonzero(~mark)
        if not len(events):
            self._held.append(chunk)
            return
        if old.any():
            self.left_out["an order event that is in the log already"] += int(old.sum())
        held, self._held = self._held, []
        if not old[events[0]]:
            yield from held
        elif held:
            self.forgets_loss = True
        # A mark shares the fate of the event after it; those at the end wait for theirs.
        for i in np.flatnonzero(mark).tolist():
            after = events[events > i]
            if len(after) and old[after[0]]:
                old[i] = True
                self.forgets_loss |= bool(types[i] == EventType.LOSS)
        stop = int(events[-1]) + 1
        if stop < len(chunk):
            self._held.append(chunk.part(stop, len(chunk)))
        if not old[:stop].all():
            yield chunk.part(0, stop).where(~old[:stop])

    def identified(self, chunk: Chunk) -> _Array:
        """Which events have a sequence number."""
        found: _Array = rows_of(chunk, L3_RECORD_DTYPE)["head"]["native_seq"] != 0
        return found

    def rest(self) -> Iterator[Chunk]:
        """Resets and losses at the end."""
        held, self._held = self._held, []
        yield from held
