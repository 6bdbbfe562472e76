"""Compares the book built from diffs with the venue's own snapshots.

A venue sends snapshots in the log of the book, or as a separate stream of snapshots of N levels
(``book_snapshot_N``). Each is compared with the book of the same moment:

- A snapshot in the log is compared with the book just before it, if that has the same update id or
  the venue has no ids.
- A snapshot of a separate stream of price levels is compared with the book after the last event
  with the same receive and exchange time, otherwise after the last event up to its receive time.
- A snapshot of a separate stream next to single orders is matched by the venue's count of trades:
  it is valid if one of the books between that trade and the next equals it. It is compared only
  during continuous trading.
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
    """A snapshot of the venue, best levels first."""

    seq: int
    timestamp_ns: int
    exchange_ns: int
    native_seq: int
    bids: Levels
    asks: Levels


@dataclass(frozen=True)
class Difference:
    """A snapshot that differs from the book.

    Attributes:
        stream: The stream of the snapshot.
        seq: The sequence number of its record.
        timestamp_ns: Its time.
        levels: Number of levels compared.
        differing: Number of prices with different sizes, or in one of the two books only.
        price: The first of those, from the best price on, scaled.
        venue_size: The venue's size at this price; 0 if it has no such level.
        book_size: The book's size at this price; 0 if it has no such level.
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
    """Compares snapshots, counts them, and keeps the differences."""

    def __init__(self) -> None:
        self.compared = 0
        self.differing = 0
        self.not_comparable = 0
        self.differences: list[Difference] = []

    def compare(self, stream: str, venue: VenueBook, book: Any) -> bool:
        """Compare a snapshot with a book, and count it; return whether they are equal."""
        found = self.difference(stream, venue, book)
        self.count(found)
        return found is None

    def count(self, found: Difference | None) -> None:
        """Count a comparison; None means equal."""
        self.compared += 1
        if found is not None:
            self.differing += 1
            if len(self.differences) < MAX_DIFFERENCES:
                self.differences.append(found)

    def difference(self, stream: str, venue: VenueBook, book: Any) -> Difference | None:
        """The difference of the best levels; None if they are equal."""
        return difference(stream, venue, levels_of(book, len(venue.bids), len(venue.asks)))


def levels_of(book: Any, bids: int, asks: int) -> tuple[Levels, Levels]:
    """The best levels of a book, as many as given."""
    sides = (book.bids(bids), book.asks(asks))
    first, second = (
        list(zip(side["price"].tolist(), side["size"].tolist(), strict=True)) for side in sides
    )
    return first, second


def difference(stream: str, venue: VenueBook, book: tuple[Levels, Levels]) -> Difference | None:
    """The difference between a venue's book and as many levels of our book; None if equal."""
    differing = 0
    first: tuple[int, int, int] | None = None
    for theirs, ours in zip((venue.bids, venue.asks), book, strict=True):
        if theirs == ours:
            continue
        by_price, own = dict(theirs), dict(ours)
        unequal = [p for p in by_price | own if own.get(p, 0) != by_price.get(p, 0)]
        differing += len(unequal)
        if first is None and unequal:
            first = (unequal[0], by_price.get(unequal[0], 0), own.get(unequal[0], 0))
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
            except (CorruptRecord, CorruptMetadata):  # reported by the measure of the clocks
                if not log.skip_damaged().bytes:
                    return
                continue
            if record is None:
                return
            yield venue_book(record, levels)


class ByTime:
    """Finds the position of a stream's snapshots among the events, by receive and exchange time."""

    def __init__(self, stream: str, path: str, levels: int) -> None:
        self.stream = stream
        self._next = _snapshots(path, levels)
        self._waiting: list[VenueBook] = []
        self._clock_ns = -(2**63)

    def due(self, headers: Array, times_ns: Array, last: bool) -> list[tuple[int, VenueBook]]:
        """``(number of events of this batch to apply first, snapshot)``, sorted by that number.

        A snapshot with the time of the batch's last event waits for the next batch, unless this is
        the last batch.
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
        """End the day; snapshots after its last event are not comparable."""
        drift.not_comparable += len(self._waiting) + sum(1 for _ in self._next)
        self._waiting = []


class ByTrades:
    """Compares the snapshots of a stream next to orders, by the number of trades so far."""

    def __init__(self, stream: str, path: str, levels: int) -> None:
        self.stream = stream
        self._next = _snapshots(path, levels)
        self._ahead: VenueBook | None = next(self._next, None)
        self._open: list[VenueBook] = []
        self._last: dict[int, Difference] = {}  # by the snapshot's `seq`
        self._began_ns: int | None = None  # of continuous trading, by the venue's clock
        self._ended_ns: int | None = None
        self._trades = 0

    def wanted(self, trades: int) -> bool:
        """Whether a snapshot is of the books between this trade and the next one."""
        return bool(self._open) or (self._ahead is not None and self._ahead.native_seq <= trades)

    def compare(
        self, trades: int, exchange_ns: int, continuous: bool, book: Any, drift: Drift
    ) -> None:
        """Compare the open snapshots with the book after an event, with `trades` so far."""
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
            ours = (bids[: len(one.bids)], asks[: len(one.asks)])
            if ours == (one.bids, one.asks) and self._in_session(one):
                drift.count(None)
                self._last.pop(one.seq, None)
                continue
            if self._in_session(one):
                found = difference(self.stream, one, ours)
                if found is not None:
                    self._last[one.seq] = found
            left.append(one)
        self._open = left

    def _in_session(self, one: VenueBook) -> bool:
        begun = self._began_ns is not None and one.exchange_ns >= self._began_ns
        return begun and (self._ended_ns is None or one.exchange_ns < self._ended_ns)

    def _give_up(self, drift: Drift) -> None:
        for one in self._open:
            # Only now is it known whether trading had ended before it.
            if one.seq in self._last and self._in_session(one):
                drift.count(self._last[one.seq])
            else:
                drift.not_comparable += 1
        self._open.clear()
        self._last.clear()

    def finish(self, drift: Drift) -> None:
        """End the day; snapshots after its last event are not comparable."""
        self._give_up(drift)
        if self._ahead is not None:
            drift.not_comparable += 1 + sum(1 for _ in self._next)
            self._ahead = None
