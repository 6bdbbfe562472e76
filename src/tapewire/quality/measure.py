"""All measures of one symbol's day: reads each of its logs once, from start to end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire.errors import CorruptMetadata, CorruptRecord, InvalidOption
from tapewire.log import open_log
from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.protocol.market import (
    BOOK_EVENT,
    L3_RECORD_DTYPE,
    QUOTE,
    TRADE_TICK,
    BookMode,
    EventType,
    L3Flags,
    L3Type,
    Quote,
    TradeTick,
    headers_of,
)
from tapewire.quality.clocks import ClockMeasure
from tapewire.quality.drift import ByTime, ByTrades, Drift, venue_book
from tapewire.quality.limits import QualityLimits
from tapewire.quality.spans import BookSpans
from tapewire.replay import Replay
from tapewire.replay._native import empty_book

if TYPE_CHECKING:
    from tapewire.book import L2Book, L3Book
    from tapewire.log import Batch

__all__ = ["DayLogs", "DayMeasures", "UnreadableSpan", "measure"]

Array = np.ndarray[Any, Any]
BATCH = 16_384
_NEVER = 2**63 - 2  # later than any record
AUCTION = L3Flags.OPENING_AUCTION | L3Flags.CLOSING_AUCTION
_TIMED: dict[int, Any] = {TRADE_TICK: TradeTick, QUOTE: Quote}


@dataclass(frozen=True)
class DayLogs:
    """The logs of one symbol's day.

    Attributes:
        venue: The venue.
        symbol: The symbol.
        streams: Path of each stream's log: "book", "trades", "book_snapshot_25", …
        before: Book logs of the days before, in order, whose final book is the one at the start of
            this day.
        instruments: Path of an `instruments.json`; None takes the one nearest to the log.
    """

    venue: str
    symbol: str
    streams: Mapping[str, str]
    before: tuple[str, ...] = ()
    instruments: str | None = None


@dataclass(frozen=True)
class UnreadableSpan:
    """Bytes from which no record could be read."""

    stream: str
    path: str
    offset: int
    bytes: int
    what: str


@dataclass
class DayMeasures:
    """The measures of a day; `book` and `drift` are None if there is no book."""

    clocks: dict[str, ClockMeasure] = field(default_factory=dict)
    book: BookSpans | None = None
    drift: Drift | None = None
    gaps: list[tuple[int, int, str, int, int]] = field(default_factory=list)
    damage: list[UnreadableSpan] = field(default_factory=list)
    price_scale: int = 0
    size_scale: int = 0

    @property
    def records(self) -> int:
        """Number of records of all streams."""
        return sum(clock.records for clock in self.clocks.values())


def measure(day: DayLogs, limits: QualityLimits | None = None) -> DayMeasures:
    """Read a day and measure it.

    Raises:
        InvalidOption: No instruments file has the scales of its book.
    """
    limits = limits or QualityLimits()
    found = DayMeasures()
    for stream, path in sorted(day.streams.items()):
        clock = found.clocks[stream] = ClockMeasure(limits)
        if stream == "book":
            _BookPass(day, path, limits, found, clock).run()
        else:
            for batch, _ in _batches(path, stream, found):
                _add_times(batch, clock)
    return found


def _batches(path: str, stream: str, found: DayMeasures) -> Iterator[tuple[Batch, Any]]:
    """Yield ``(batch, what was skipped before it)``; damage is skipped and recorded."""
    with open_log(path) as log:
        skipped = None
        while True:
            try:
                batch = log.read_batch(BATCH)
            except (CorruptRecord, CorruptMetadata) as error:
                skipped = log.skip_damaged()
                found.damage.append(
                    UnreadableSpan(
                        stream,
                        error.path or path,
                        error.offset or 0,
                        skipped.bytes,
                        error.message,
                    )
                )
                if not skipped.bytes:
                    raise
                continue
            if not len(batch):
                return
            yield batch, skipped
            skipped = None


def _add_times(batch: Batch, clock: ClockMeasure) -> None:
    """Add the receive and exchange times of the market data in a batch."""
    received, types = batch.timestamp_ns, batch.type_id
    exchange = np.zeros(len(batch), np.int64)
    if (types == BOOK_EVENT).any():
        exchange[types == BOOK_EVENT] = headers_of(batch)["exchange_ts_ns"].astype(np.int64)
    for type_id, kind in _TIMED.items():
        if (types == type_id).all():
            exchange = kind.decode(batch)["timestamp_ns"].astype(np.int64)
        else:
            for i in np.flatnonzero(types == type_id).tolist():
                exchange[i] = kind.decode(batch[i]).timestamp_ns
    clock.add(received, exchange)


class _BookPass:
    """One pass over the log of a book."""

    def __init__(
        self,
        day: DayLogs,
        path: str,
        limits: QualityLimits,
        found: DayMeasures,
        clock: ClockMeasure,
    ) -> None:
        self._day, self._path, self._found, self._clock = day, path, found, clock
        instrument = _instrument(day, path)
        self._is_l3 = instrument.book_mode == "l3"
        found.price_scale, found.size_scale = instrument.price_scale, instrument.size_scale
        self._book, known = _first_book(day, instrument)
        self._spans = found.book = BookSpans(known)
        self._drift = found.drift = Drift()
        self._known_gaps = len(self._book.gaps)
        self._levels = limits.levels
        self._trades = 0
        self._tops: list[Array] = []  # of the current batch
        self._causes: dict[int, str] = {}  # by `seq`: why there is no book from this record on
        self._by_time: list[ByTime] = []
        self._by_trades: list[ByTrades] = []
        for stream, where in day.streams.items():
            if stream.startswith("book_snapshot_"):
                if self._is_l3:
                    self._by_trades.append(ByTrades(stream, where, limits.levels))
                else:
                    self._by_time.append(ByTime(stream, where, limits.levels))

    def run(self) -> None:
        """Read the log and measure it."""
        before: Batch | None = None
        for batch, skipped in _batches(self._path, "book", self._found):
            if before is not None:
                self._take(before, last=False)
            if skipped is not None:
                first, last = skipped.first_seq, skipped.last_seq
                self._book.record_gap(first or 0, last or first or 0)
                self._causes = {int(batch.seq[0]): "records before it are damaged"}
            before = batch
        if before is not None:
            self._take(before, last=True)
        for by_trades in self._by_trades:
            by_trades.finish(self._drift)
        for by_time in self._by_time:
            by_time.finish(self._drift)
        self._spans.finish()
        self._found.gaps += [
            (gap.first, gap.last, gap.cause, gap.seq, gap.timestamp_ns)
            for gap in self._book.gaps[self._known_gaps :]
        ]

    def _take(self, batch: Batch, last: bool) -> None:
        _add_times(batch, self._clock)
        types = batch.type_id
        if (types != BOOK_EVENT).any():
            at = np.flatnonzero(types == BOOK_EVENT)
            for i in at.tolist():  # other messages in between are rare, so this need not be fast
                self._events(batch[i : i + 1], last and i == at[-1])
            return
        self._events(batch, last)

    def _events(self, batch: Batch, last: bool) -> None:
        headers, times = headers_of(batch), batch.timestamp_ns
        auction = np.zeros(len(batch), bool)
        if self._is_l3 and (headers["book_mode"] == BookMode.L3).all():
            auction = (batch.view(L3_RECORD_DTYPE)["order"]["flags"] & AUCTION) != 0
            auction &= headers["event_type"] != EventType.LOSS  # which is no order
        self._tops.clear()
        resets = batch.seq[headers["event_type"] == EventType.RESET].tolist()
        self._causes |= dict.fromkeys(resets, "reset by the venue")
        if self._is_l3 and self._by_trades:
            self._orders(batch, headers, auction)
        else:
            self._levels_of(batch, headers, times, last)
        self._spans.add(np.concatenate(self._tops), batch.seq, auction, self._causes)
        self._causes = {}

    def _levels_of(self, batch: Batch, headers: Array, times: Array, last: bool) -> None:
        cuts: dict[int, list[tuple[str, Any]]] = {}
        for i in np.flatnonzero(headers["event_type"] == EventType.SNAPSHOT).tolist():
            cuts.setdefault(i, []).append(("", None))
        for stream in self._by_time:
            for at, one in stream.due(headers, times, last):
                cuts.setdefault(at, []).append((stream.stream, one))
        done = 0
        for at in sorted(cuts):
            self._apply(batch[done:at])
            done = at
            for name, one in cuts[at]:
                if one is not None:
                    self._compare(name, one)
                elif not self._is_l3:
                    self._compare_snapshot(batch[at])
        self._apply(batch[done:])

    def _orders(self, batch: Batch, headers: Array, auction: Array) -> None:
        kinds = batch.view(L3_RECORD_DTYPE)["order"]["event_type"]
        kinds = np.where(headers["event_type"] == EventType.LOSS, 0, kinds)
        counted = self._trades + np.cumsum(kinds == L3Type.TRADE)
        done = 0
        for i in range(len(batch)):
            count = int(counted[i])
            if any(stream.wanted(count) for stream in self._by_trades):
                self._apply(batch[done : i + 1])
                done = i + 1
                exchange = int(headers["exchange_ts_ns"][i])
                for stream in self._by_trades:
                    stream.compare(count, exchange, not auction[i], self._book, self._drift)
        self._apply(batch[done:])
        self._trades = int(counted[-1])

    def _apply(self, batch: Batch) -> None:
        if len(batch):
            known = len(self._book.gaps)
            self._tops.append(self._book.tops(batch))
            self._causes |= {gap.seq: gap.cause for gap in self._book.gaps[known:]}

    @property
    def _has_book(self) -> bool:
        book = self._book
        return book.trusted and (book.best_bid is not None or book.best_ask is not None)

    def _compare(self, stream: str, one: Any) -> None:
        if self._has_book:
            self._drift.compare(stream, one, self._book)
        else:
            self._drift.not_comparable += 1

    def _compare_snapshot(self, record: Any) -> None:
        if not self._has_book:
            return  # the book starts with this snapshot
        one = venue_book(record, self._levels)
        if one.native_seq in (0, self._book.last_update):
            self._drift.compare("book", one, self._book)
        else:
            self._drift.not_comparable += 1


def _instrument(day: DayLogs, path: str) -> Instrument:
    known = Instruments.load(day.instruments or path)
    one = known.get(day.venue, day.symbol)
    if one is None:
        raise InvalidOption(
            f"unknown instrument: venue={day.venue}, symbol={day.symbol}",
            path=path,
            hint="put an instruments.json with its scales above the log, or give the path of one",
        )
    return one


def _first_book(day: DayLogs, instrument: Instrument) -> tuple[L2Book | L3Book, bool]:
    """The final book of the days before, and whether there is one."""
    if day.before:
        instruments = Instruments([instrument])
        # From the latest snapshot of those days on; their damage is not reported for this day.
        with Replay(
            list(day.before),
            [instrument],
            time_from=_NEVER,
            instruments=instruments,
            skip_damaged=True,
        ) as earlier:
            earlier.run()
            book = earlier.books.get((day.venue, day.symbol))
        if book is not None and book.trusted and (book.best_bid or book.best_ask):
            return type(book).load(book.save(), on_gap="resync"), True
    return empty_book(instrument, "resync"), False
