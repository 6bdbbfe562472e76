"""The book that diffs have made, held against what the venue says it is.

A venue says so by a snapshot on the tape, or by a stream of snapshots of N levels beside it
(``book_snapshot_N``). Each is compared with the book of the same moment:

- a snapshot on the tape with the book just before it, when that stands at the same update id, or
  the venue has no ids;
- one of a stream of price levels with the book after the last event of the same two times, or of
  the same receive time or before it;
- one of a stream beside single orders by how many trades the venue had counted: such a snapshot is
  right when one of the books between that trade and the next equals it. Outside continuous trading
  there is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapewire.errors import CorruptMetadata, CorruptRecord
from tapewire.log import open_log

__all__ = ["MAX_DIFFERENCES", "ByTime", "ByTrades", "Difference", "Drift", "VenueBook"]

MAX_DIFFERENCES = 10_000  # kept; the rest is counted

Array = np.ndarray[Any, Any]
Levels = list[tuple[int, int]]


@dataclass(frozen=True)
class VenueBook:
    """What the venue says, best levels first."""

    seq: int
    timestamp_ns: int
    exchange_ns: int
    native_seq: int
    bids: Levels
    asks: Levels


@dataclass(frozen=True)
class Difference:
    """A snapshot that the book did not equal.

    Attributes:
        stream: Where the snapshot is.
        seq: Its record's number there.
        timestamp_ns: Its time.
        levels: How many levels were compared.
        differing: How many prices have another size, or are on one side of the comparison alone.
        price: The first of those from the best price on, scaled.
        venue_size: The venue's size there; 0: it has no such level.
        book_size: The book's.
    """

    stream: str
    seq: int
    timestamp_ns: int
    levels: int
    differing: int
    price: int
    venue_size: int
    book_size: int


class Drift:
    """Compares, counts, and keeps what differs."""

    def __init__(self) -> None:
        self.compared = 0
        self.differing = 0
        self.not_comparable = 0
        self.differences: list[Difference] = []

    def compare(self, stream: str, venue: VenueBook, book: Any) -> bool:
        """Compare and count."""
        found = self.difference(stream, venue, book)
        self.count(found)
        return found is None

    def count(self, found: Difference | None) -> None:
        """A comparison; None: equal."""
        self.compared += 1
        if found is not None:
            self.differing += 1
            if len(self.differences) < MAX_DIFFERENCES:
                self.differences.append(found)

    def difference(self, stream: str, venue: VenueBook, book: Any) -> Difference | None:
        """None where the best levels are the same."""
        return difference(stream, venue, levels_of(book, len(venue.bids), len(venue.asks)))


def levels_of(book: Any, bids: int, asks: int) -> tuple[Levels, Levels]:
    """So many of the best levels of a book."""
    sides = (book.bids(bids), book.asks(asks))
    first, second = (
        list(zip(side["price"].tolist(), side["size"].tolist(), strict=True)) for side in sides
    )
    return first, second


def difference(stream: str, venue: VenueBook, made: tuple[Levels, Levels]) -> Difference | None:
    """What tells a venue's book from as many levels of ours."""
    differing = 0
    first: tuple[int, int, int] | None = None
    for said, ours in zip((venue.bids, venue.asks), made, strict=True):
        if said == ours:
            continue
        by_price, own = dict(said), dict(ours)
        wrong = [p for p in by_price | own if own.get(p, 0) != by_price.get(p, 0)]
        differing += len(wrong)
        if first is None and wrong:
            first = (wrong[0], by_price.get(wrong[0], 0), own.get(wrong[0], 0))
    if first is None:
        return None
    levels = len(venue.bids) + len(venue.asks)
    return Difference(stream, venue.seq, venue.timestamp_ns, levels, differing, *first)


def _sorted(levels: Array, best_first: int) -> Levels:
    return sorted(levels.tolist(), key=lambda level: best_first * level[0])


def venue_book(record: Any, levels: int) -> VenueBook:
    """The best levels of the snapshot in a record."""
    event = record.decode()
    return VenueBook(
        record.seq,
        record.timestamp_ns,
        event.exchange_ts_ns,
        event.native_seq,
        _sorted(event.bids, -1)[:levels],
        _sorted(event.asks, 1)[:levels],
    )


def _snapshots(path: str, levels: int) -> Iterator[VenueBook]:
    from tapewire.protocol.market import BOOK_EVENT

    with open_log(path, types={BOOK_EVENT}) as log:
        while True:
            try:
                record = log.next()
            except (
                CorruptRecord,
                CorruptMetadata,
            ):  # who reads the stream for its clocks tells of it
                if not log.skip_damaged().bytes:
                    return
                continue
            if record is None:
                return
            yield venue_book(record, levels)


class ByTime:
    """Where in a batch of events the snapshots of a stream belong, by receive and exchange time."""

    def __init__(self, stream: str, path: str, levels: int) -> None:
        self.stream = stream
        self._next = _snapshots(path, levels)
        self._waiting: list[VenueBook] = []
        self._clock_ns = -(2**63)

    def due(self, headers: Array, times_ns: Array, last: bool) -> list[tuple[int, VenueBook]]:
        """``(events of this batch to apply first, snapshot)``, in that order.

        A snapshot of the batch's last moment waits for the next batch, unless this is the last.
        """
        clock = np.maximum.accumulate(np.maximum(times_ns, self._clock_ns))
        end_ns = int(clock[-1]) if len(clock) else self._clock_ns
        while not self._waiting or self._waiting[-1].timestamp_ns <= end_ns:
            one = next(self._next, None)
            if one is None:
                break
            self._waiting.append(one)
        found, left = [], []
        for one in self._waiting:
            if one.timestamp_ns < end_ns or (last and one.timestamp_ns == end_ns):
                at = int(np.searchsorted(clock, one.timestamp_ns, "right"))
                begin = int(np.searchsorted(clock, one.timestamp_ns, "left"))
                same = headers["exchange_ts_ns"][begin:at] == one.exchange_ns
                if same.any():
                    at = begin + int(np.flatnonzero(same)[-1]) + 1
                found.append((at, one))
            else:
                left.append(one)
        self._waiting = left
        self._clock_ns = end_ns
        return sorted(found, key=lambda pair: pair[0])

    def finish(self, drift: Drift) -> None:
        """The day is over; snapshots after its last event are not comparable."""
        drift.not_comparable += len(self._waiting) + sum(1 for _ in self._next)
        self._waiting = []


class ByTrades:
    """The snapshots of a stream beside orders, by how many trades had been."""

    def __init__(self, stream: str, path: str, levels: int) -> None:
        self.stream = stream
        self._next = _snapshots(path, levels)
        self._ahead: VenueBook | None = next(self._next, None)
        self._open: list[VenueBook] = []
        self._last: dict[int, Difference] = {}  # by the snapshot's number
        self._began_ns: int | None = None  # of continuous trading, by the venue's clock
        self._ended_ns: int | None = None
        self._trades = 0

    def wanted(self, trades: int) -> bool:
        """Whether a snapshot speaks of the books between this many trades and one more."""
        return bool(self._open) or (self._ahead is not None and self._ahead.native_seq <= trades)

    def look(
        self, trades: int, exchange_ns: int, continuous: bool, book: Any, drift: Drift
    ) -> None:
        """The book after an event, `trades` being counted so far."""
        if continuous and self._began_ns is None:
            self._began_ns = exchange_ns
        if not continuous and self._began_ns is not None and self._ended_ns is None:
            self._ended_ns = exchange_ns
        if trades != self._trades:
            self._give_up(drift)
            self._trades = trades
        while self._ahead is not None and self._ahead.native_seq <= trades:
            self._open.append(self._ahead)
            self._ahead = next(self._next, None)
        depth = max((len(side) for one in self._open for side in (one.bids, one.asks)), default=0)
        bids, asks = levels_of(book, depth, depth)
        left = []
        for one in self._open:
            if one.native_seq != trades:
                drift.not_comparable += 1
                continue
            made = (bids[: len(one.bids)], asks[: len(one.asks)])
            if made == (one.bids, one.asks) and self._in_session(one):
                drift.count(None)
                self._last.pop(one.seq, None)
                continue
            if self._in_session(one):
                found = difference(self.stream, one, made)
                if found is not None:
                    self._last[one.seq] = found
            left.append(one)
        self._open = left

    def _in_session(self, one: VenueBook) -> bool:
        begun = self._began_ns is not None and one.exchange_ns >= self._began_ns
        return begun and (self._ended_ns is None or one.exchange_ns < self._ended_ns)

    def _give_up(self, drift: Drift) -> None:
        for one in self._open:
            # Only now it is known whether trading had ended before it.
            if one.seq in self._last and self._in_session(one):
                drift.count(self._last[one.seq])
            else:
                drift.not_comparable += 1
        self._open.clear()
        self._last.clear()

    def finish(self, drift: Drift) -> None:
        """The day is over; snapshots after its last event are not comparable."""
        self._give_up(drift)
        if self._ahead is not None:
            drift.not_comparable += 1 + sum(1 for _ in self._next)
            self._ahead = None
