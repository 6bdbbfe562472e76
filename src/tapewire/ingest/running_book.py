"""The book of each stream that an import writes: it finds gaps and begins each day's log."""

from __future__ import annotations

import collections
import dataclasses
import os
from typing import TYPE_CHECKING, Any

import numpy as np

import tapewire as tw
from tapewire.book import L2Book, L3Book
from tapewire.book.gaps import Gap, kind_of
from tapewire.errors import CorruptMetadata
from tapewire.ingest.import_log import ImportLog
from tapewire.ingest.seen_rows import batches_of
from tapewire.protocol.market import (
    EventType,
    L3Flags,
    L3Type,
    Side,
    l2_diff,
    l2_snapshot,
    l3_rows,
    loss,
)

if TYPE_CHECKING:
    from tapewire.protocol.instruments import Instrument

__all__ = ["RunningBook"]

_BATCH = 16384
MAX_LEVELS = 65_535  # of a side in one event
_PHASE_FLAGS = {
    "opening": L3Flags.OPENING_AUCTION,
    "closing": L3Flags.CLOSING_AUCTION,
    "continuous": L3Flags(0),
}
_CAUSES = {
    "venue_gap": "the venue's update ids do not follow each other",
    "feed_gap": "sequence numbers of the feed are missing",
    "feed_order": "sequence numbers or times of the feed go back",
    "rejected": "a row was rejected: see rejected.jsonl",
    "damaged_source": "the source is damaged",
    "no_snapshot": "the source begins without a snapshot or reset",
    "unknown_order": "an event of an order that was never added",
    "duplicate_order": "an order that is in the book was added again",
    "venue_loss": "the venue or the vendor reports lost messages",
    "crossed": "the book is crossed outside an auction",
    "partial_source": "the source has only events of orders at the best levels",
}


class RunningBook:
    """A book that follows the logs of a stream while they are written.

    It reads the records from the log itself, so a gap has the sequence number of its record.
    """

    def __init__(self, instrument: Instrument, stream: str) -> None:
        self.instrument = instrument
        self.stream = stream
        self.book = self._empty()
        self._reader: Any = None
        self._log: ImportLog | None = None
        # Records read of each log: if times go back over midnight, the earlier log continues.
        self._read: collections.Counter[str] = collections.Counter()
        self._noted: list[tuple[ImportLog, Gap]] = []

    def __repr__(self) -> str:
        return f"RunningBook({self.instrument.venue}:{self.instrument.symbol}, {self.book!r})"

    def _empty(self) -> L2Book | L3Book:
        one = self.instrument
        if one.book_mode == "l3" and self.stream == "book":
            return L3Book(
                one.rules,
                price_scale=one.price_scale,
                size_scale=one.size_scale,
                on_gap="resync",
            )
        return L2Book(one.price_scale, one.size_scale, on_gap="resync", rules=one.rules)

    @property
    def of_orders(self) -> bool:
        """Whether it is a book of single orders."""
        return isinstance(self.book, L3Book)

    @property
    def numbered(self) -> bool:
        """Whether it shows which of the next records are in its log already."""
        return self.book.trusted and (self.of_orders or self.book.last_update > 0)

    def begin(self, log: ImportLog) -> None:
        """Become the book that the records in `log` from before the job give.

        Its gaps are in the ledger; they are noted, so that one that ends is updated there.
        """
        self.book = self._empty()
        for batch in batches_of(log, log.first_seq):
            self.book.apply_batch(batch)
        self._noted = [(log, self._entry(gap)) for gap in self.book.gaps]

    def snapshot(self, timestamp_ns: int) -> list[bytes] | np.ndarray[Any, Any]:
        """The book as events that begin the next log.

        Of levels: a snapshot of the best ones, and diffs without ids if it has more than fit a
        record. Of orders: a reset and all orders. Of an untrusted book, a loss; nothing of levels
        with update ids, which show what is missing.
        """
        if isinstance(self.book, L3Book):
            if self.book.trusted:
                return _orders(self.instrument, self.book, timestamp_ns)
            return [loss(self.instrument, timestamp_ns, "no_snapshot")]
        if not self.book.trusted:
            # Without update ids, a reader would apply what follows to the book of another day.
            if self.book.last_update or not self.book.gaps:
                return []
            return [loss(self.instrument, timestamp_ns, "missing")]
        bids, asks = self.book.bids(), self.book.asks()
        events: list[bytes] = [
            l2_snapshot(
                self.instrument,
                timestamp_ns,
                bids=bids[:MAX_LEVELS],
                asks=asks[:MAX_LEVELS],
                native_seq=self.book.last_update,
            )
        ]
        for start in range(MAX_LEVELS, max(len(bids), len(asks)), MAX_LEVELS):
            part = slice(start, start + MAX_LEVELS)
            events.append(l2_diff(self.instrument, timestamp_ns, bids=bids[part], asks=asks[part]))
        return events

    def snapshot_in_between(self, timestamp_ns: int) -> list[bytes] | np.ndarray[Any, Any]:
        """The book as events that continue an earlier log, after records in another one.

        Nothing for levels with update ids: these show what is missing from the earlier log.
        """
        if isinstance(self.book, L2Book) and self.book.last_update:
            return []
        return self.snapshot(timestamp_ns)

    def catch_up(self, log: ImportLog) -> None:
        """Apply what the job has written to `log` since the last call; add gaps to its ledger."""
        if log is not self._log:
            self.close()
            self._log = log
            log.follower = self
        if self._reader is None:
            self._reader = tw.open_log(log.path)
            self._reader.seek_seq(log.first_seq + self._read[log.log])
        while (left := log.count - self._read[log.log]) > 0:
            batch = self._reader.read_batch(min(left, _BATCH))
            if len(batch) == 0:
                raise CorruptMetadata(
                    f"records of this import are not in its log: records={left}, "
                    f"first_seq={log.next_seq - left}",
                    path=os.fspath(log.path),
                    hint="another process removes records from the archive: import into a new one",
                )
            self.book.apply_batch(batch)
            self._read[log.log] += len(batch)
        self._note_gaps(log)

    def _note_gaps(self, log: ImportLog) -> None:
        """Add new gaps to the ledger of the log they were found in; update those that ended."""
        found = self.book.gaps
        changed: dict[str, tuple[ImportLog, list[Gap]]] = {}  # a ledger is synced once a call
        for i, old in enumerate(found):
            if i == len(self._noted):
                where, entry = log, self._entry(old)
                log.gaps += 1
                self._noted.append((where, entry))
            else:
                where, entry = self._noted[i]
                action = _action(old)
                if entry.action == action:
                    continue
                entry = dataclasses.replace(entry, action=action)
                self._noted[i] = (where, entry)
            changed.setdefault(where.log, (where, []))[1].append(entry)
        for where, entries in changed.values():
            where.ledger.add(*entries)

    def _entry(self, gap: Any) -> Gap:
        return Gap(
            kind=kind_of(gap.cause),
            venue=self.instrument.venue,
            symbol=self.instrument.symbol,
            stream=self.stream,
            first=gap.first,
            last=gap.last,
            seq=gap.seq,
            timestamp_ns=gap.timestamp_ns,
            cause=_CAUSES.get(gap.cause, gap.cause.replace("_", " ")),
            action=_action(gap),
        )

    def close(self) -> None:
        """Close the log; the book stays."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def _orders(instrument: Instrument, book: L3Book, timestamp_ns: int) -> np.ndarray[Any, Any]:
    """A reset, then every order with a price, each level in the order of its queue."""
    queues = [
        (side, price, book.orders(name, price))
        for side, name, levels in ((Side.BUY, "buy", book.bids()), (Side.SELL, "sell", book.asks()))
        for price in levels["price"].tolist()
    ]
    rows = l3_rows(instrument, 1 + sum(len(orders) for _, _, orders in queues))
    rows["head"]["ingest_ts_ns"] = timestamp_ns
    rows["head"]["event_type"][0] = EventType.RESET
    order = rows["order"]
    order["flags"] = _PHASE_FLAGS[book.phase]  # in an auction the book may be crossed
    order["event_type"] = L3Type.ADD
    order["event_type"][0] = L3Type.RESET
    at = 1
    for side, price, orders in queues:
        part = order[at : at + len(orders)]
        part["side"], part["price"] = side, price
        part["order_id"], part["qty"] = orders["order_id"], orders["remaining"]
        at += len(orders)
    return rows


def _action(gap: Any) -> str:
    return "resynced" if gap.resynced else "untrusted"
