"""Diffs and snapshots of levels that are in their log already, by the venue's update ids."""

from __future__ import annotations

import collections
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire.ingest.event_fields import EVENT_TYPE, EXCHANGE_NS, NATIVE_SEQ, UPDATE_LAST
from tapewire.protocol.market import EventType

if TYPE_CHECKING:
    from tapewire.ingest.importer import Chunk
    from tapewire.ingest.running_book import RunningBook

__all__ = ["RepeatedUpdates"]

_Array = np.ndarray[Any, Any]
_number = struct.Struct("<Q").unpack_from
_ids = struct.Struct("<QQ").unpack_from  # update_id_last and update_id_prev


class RepeatedUpdates:
    """The updates of one book, as far as the records in its log make it complete.

    A diff that ends at or before the last id of a complete book changes nothing, and a snapshot of
    such an id is older than the book. If its time is later all the same, the venue's ids restarted.
    """

    def __init__(self, book: RunningBook) -> None:
        self.left_out: collections.Counter[str] = collections.Counter()
        self.forgets_loss = False
        known = book.book
        self._last: int | None = known.last_update if known.trusted else None
        self._exchange_ns = known.last_exchange_ns
        self._latest_ns = known.last_timestamp_ns
        # Whether a record of the job follows those before it: until then, a loss is one among
        # records that the log has.
        self._followed = not self._last

    def new(self, chunk: Chunk) -> Iterator[Chunk]:
        """The updates of a chunk that the log does not have."""
        payloads, times_ns = chunk.payloads, chunk.timestamps_ns
        old = np.fromiter(
            (self._is_old(bytes(p), int(t)) for p, t in zip(payloads, times_ns, strict=True)),
            bool,
            len(chunk),
        )
        if not old.all():
            yield chunk.where(~old) if old.any() else chunk

    def identified(self, chunk: Chunk) -> _Array:
        """Whether the ids show that the records are new: those of a complete book."""
        return np.full(len(chunk), bool(self._last))

    def _is_old(self, payload: bytes, timestamp_ns: int) -> bool:
        kind = payload[EVENT_TYPE]
        if kind == EventType.LOSS:
            self.forgets_loss = self.forgets_loss or not self._followed
            return not self._followed
        if kind == EventType.DIFF:
            old = self._is_old_diff(payload, timestamp_ns)
        elif kind == EventType.SNAPSHOT:
            old = self._is_old_snapshot(payload, timestamp_ns)
        else:
            old = False
            self._last = None if kind == EventType.RESET else self._last
        if old:
            self.left_out["a book update that is in the log already"] += 1
            return True
        self._followed = True
        self._exchange_ns = max(self._exchange_ns, _number(payload, EXCHANGE_NS)[0])
        self._latest_ns = max(self._latest_ns, timestamp_ns)
        return False

    def _is_old_diff(self, payload: bytes, timestamp_ns: int) -> bool:
        last, previous = _ids(payload, UPDATE_LAST)
        if not self._last or not (last or previous):
            return False
        if last <= self._last and previous < self._last:
            if self._since_latest(payload, timestamp_ns) <= 0:
                return True
            self._last = None
        else:
            self._last = last if previous <= self._last else None
        return False

    def _is_old_snapshot(self, payload: bytes, timestamp_ns: int) -> bool:
        (update,) = _number(payload, NATIVE_SEQ)
        covered = self._last and 0 < update <= self._last
        if covered and self._since_latest(payload, timestamp_ns) < 0:
            return True
        self._last = update
        return False

    def _since_latest(self, payload: bytes, timestamp_ns: int) -> int:
        """The time since the last update, of the venue or, if it sends none, of its arrival."""
        (exchange_ns,) = _number(payload, EXCHANGE_NS)
        if exchange_ns and self._exchange_ns:
            return int(exchange_ns - self._exchange_ns)
        return timestamp_ns - self._latest_ns
