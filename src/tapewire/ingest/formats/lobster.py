"""LOBSTER: a NASDAQ stock's day as a CSV file of messages, with its order book beside it.

The rows of the order book become a book of levels, each at the time of its message. A file has only
the messages of the best levels, so no book can be built from its orders: their events are in a
stream of their own, untrusted. Executions and crosses become trades. Ingest time is the exchange's:
a file has no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from tapewire.clock import DAY_NS
from tapewire.config import check_whole
from tapewire.errors import InvalidOption
from tapewire.ingest.file_options import FileOptions
from tapewire.ingest.formats.lobster_book import LevelBook
from tapewire.ingest.formats.lobster_levels import LevelEvents
from tapewire.ingest.formats.lobster_rows import OrderbookRows
from tapewire.ingest.importer import Chunk, Importer
from tapewire.ingest.local_time import NEW_YORK, midnight_ns
from tapewire.ingest.order_chunks import across, book_chunk, trades_chunk
from tapewire.ingest.symbols import directory_name, known_instrument
from tapewire.ingest.tables import TableBlock, TableColumn, bare_blocks

if TYPE_CHECKING:
    from tapewire.ingest.report import Report
    from tapewire.ingest.source import SourceFile
    from tapewire.protocol.instruments import Instrument

__all__ = ["Lobster", "LobsterOptions"]

_Array = np.ndarray[Any, Any]
PRICE_DECIMALS = 4
ORDERS = "book_orders"  # the stream of single orders

NEW, CUT, DELETED, EXECUTED, HIDDEN, CROSS, HALT = range(1, 8)
_ORDERS = (NEW, CUT, DELETED, EXECUTED)
_TRADES = (EXECUTED, HIDDEN, CROSS)
_L3_TYPE = np.array([0, 1, 2, 2, 4, 0, 0, 0], np.uint8)  # L3Type of each of the orders' types
_HALTS = {-1: "trading halted", 0: "quoting resumed", 1: "trading resumed"}  # by the price
_NAME = re.compile(
    r"(?P<ticker>[^/]+)_(?P<date>\d{4}-\d{2}-\d{2})_(?P<hours>\d+_\d+)"
    r"_(?P<kind>message|orderbook)_(?P<levels>\d+)(\.[A-Za-z]+)*"
)


@dataclass(frozen=True, kw_only=True)
class LobsterOptions(FileOptions):
    """Options of the LOBSTER importer.

    Attributes:
        date: The trading day, ``YYYY-MM-DD``; without it, the one in the file's name.
        ticker: The stock; without it, the one in the file's name.
        zone: Time zone of the exchange: times are since its midnight.
        check_orderbook: Refuse a file of messages without the file of its order book. Otherwise it
            is imported, and its book is untrusted. If the file is given, it is always checked: each
            row must be the previous row changed by the message. One that is not is a bad row.
    """

    price_scale: int = PRICE_DECIMALS
    size_scale: int = 0
    date: str | None = None
    ticker: str | None = None
    zone: str = NEW_YORK
    check_orderbook: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        midnight_ns("2000-01-01" if self.date is None else self.date, self.zone)
        if self.ticker is not None and directory_name(self.ticker.encode()) is None:
            raise InvalidOption(f"not a stock name: ticker={self.ticker!r}")
        check_whole("price_scale", self.price_scale, PRICE_DECIMALS, PRICE_DECIMALS + 9)
        check_whole("size_scale", self.size_scale, 0, 9)


class _Day(NamedTuple):
    """The kind, stock and day of a file."""

    kind: Literal["message", "orderbook"]
    ticker: str
    date: str
    rest: str  # equal for an order book and its messages


def _day_of(options: LobsterOptions, source: SourceFile) -> _Day:
    found = _NAME.fullmatch(source.name.rpartition("!")[2].rpartition("/")[2])
    ticker = options.ticker or (found and found["ticker"])
    date = options.date or (found and found["date"])
    if not ticker or not date:
        raise InvalidOption(
            f"the file name does not contain the stock and the day: file={source.name!r}",
            hint="name it as LOBSTER does, TICKER_YYYY-MM-DD_START_END_message_LEVELS.csv, or give "
            "ticker= and date=YYYY-MM-DD; on the command line, --option ticker=… --option date=…",
        )
    if found is None:
        return _Day("message", ticker, date, "")
    kind: Literal["message", "orderbook"]
    kind = "orderbook" if found["kind"] == "orderbook" else "message"
    return _Day(kind, ticker, date, f"{found['ticker']}_{found['date']}_{found['hours']}")


class Lobster(Importer):
    """Importer of LOBSTER files."""

    name: ClassVar[str] = "lobster"
    venue: ClassVar[str] = "nasdaq"
    Options: ClassVar[type[LobsterOptions]] = LobsterOptions

    def __init__(self, options: LobsterOptions) -> None:
        self._options = options

    def chunks(self, files: Sequence[SourceFile], report: Report) -> Iterator[Chunk]:
        """The records of the files of messages; each is a session that begins with a reset."""
        days = [(source, _day_of(self._options, source)) for source in files]
        books = {day[1:]: source for source, day in days if day.kind == "orderbook"}
        sessions = {day[1:] for _, day in days if day.kind == "message"}
        for source, day in days:
            if day.kind == "orderbook":
                if day[1:] not in sessions:
                    report.skip("file of an order book without its messages")
                continue
            instrument = self._instrument(day.ticker, report)
            if instrument is None:
                report.skip("file of another symbol")
                continue
            yield from self._session(source, day, instrument, books.get(day[1:]), report)

    def _session(
        self,
        source: SourceFile,
        day: _Day,
        instrument: Instrument,
        orderbook: SourceFile | None,
        report: Report,
    ) -> Iterator[Chunk]:
        book = self._level_book(source, instrument, orderbook, report)
        midnight = midnight_ns(day.date, self._options.zone)
        orders = _KnownOrders()
        for parsed in bare_blocks(source, _columns(self._options), report, further=1):
            block = _valid(parsed, report)
            times_ns = block["time"] + midnight
            if len(block) and orders.day is None:
                # Both before any loss: then it is known which file's losses each stream has.
                first_ns = int(times_ns[0])
                orders.day = first_ns // DAY_NS
                of = source if orderbook is None else orderbook
                yield _beginning(instrument, ORDERS, first_ns, 0, source.index, partial=True)
                yield _beginning(instrument, "book", first_ns, 0, of.index, partial=book is None)
            yield from self._chunks(instrument, block, times_ns, orders, report)
            if book is not None:
                yield from book.follow(block, times_ns, int(parsed.line[-1]))
        if book is not None:
            yield from book.finish()
        if orders.unknown:
            report.skipped["of an order that was never added"] += orders.unknown

    def _level_book(
        self,
        source: SourceFile,
        instrument: Instrument,
        orderbook: SourceFile | None,
        report: Report,
    ) -> LevelBook | None:
        """The book of a session, or None if the file of the order book is not given."""
        if orderbook is None:
            if self._options.check_orderbook:
                raise InvalidOption(
                    f"no order book for this file of messages: file={source.name!r}",
                    hint="also give the file of its order book, or check_orderbook=False",
                )
            return None
        factors = self._price_factor, int(10**self._options.size_scale)
        rows = OrderbookRows(orderbook, *factors, report)
        return LevelBook(rows, LevelEvents(instrument, *factors), instrument, report)

    def _chunks(
        self,
        instrument: Instrument,
        block: TableBlock,
        times_ns: _Array,
        orders: _KnownOrders,
        report: Report,
    ) -> Iterator[Chunk]:
        types = block["type"]
        for price in block["price"][types == HALT].tolist():
            report.skip(_HALTS.get(price // self._price_factor, "halt"))
        at = np.flatnonzero(np.isin(types, _ORDERS))
        if len(at):
            rows = block.where(at)
            orders.add(rows["type"] == NEW, rows["order_id"])
            # A day's log begins with a reset too: it is read alone.
            for part in np.split(at, np.flatnonzero(np.diff(times_ns[at] // DAY_NS)) + 1):
                first_ns, line = int(times_ns[part[0]]), int(block.line[part[0]])
                if first_ns // DAY_NS != orders.day:
                    orders.day = first_ns // DAY_NS
                    yield _beginning(
                        instrument, ORDERS, first_ns, line - 1, block.source.index, partial=True
                    )
                yield _orders(instrument, block.where(part), times_ns[part])
        at = np.flatnonzero(np.isin(types, _TRADES))
        if len(at):
            yield _trades(instrument, block.where(at), times_ns[at])

    @property
    def _price_factor(self) -> int:
        return int(10 ** (self._options.price_scale - PRICE_DECIMALS))

    def _instrument(self, ticker: str, report: Report) -> Instrument | None:
        """The instrument of a stock, or None if it is not imported."""
        from tapewire.protocol.instruments import Instrument

        options, name = self._options, directory_name(ticker.encode())
        if name is None:
            raise InvalidOption(f"not a stock name: ticker={ticker!r}", hint="give ticker=…")
        if options.symbols and ticker not in options.symbols and name not in options.symbols:
            return None
        made = Instrument.of(self.venue, name, options.price_scale, options.size_scale)
        return known_instrument(report, made, options)


class _KnownOrders:
    """Counts events of orders that no message of the session added."""

    def __init__(self) -> None:
        self.unknown = 0
        self.day: int | None = None  # of the log with the last event, UTC
        self._known: set[int] = set()

    def add(self, new: _Array, order_id: _Array) -> None:
        """Add the next events: whether each is a new order, and its order id."""
        ids, of = np.unique(order_id, return_inverse=True)
        known = np.fromiter((i in self._known for i in ids.tolist()), bool, len(ids))
        # Unknown: events before the first one that adds the order.
        added = np.full(len(ids), len(order_id))
        at = np.flatnonzero(new)
        np.minimum.at(added, of[at], at)
        unknown = ~known[of] & (np.arange(len(order_id)) < added[of])
        self.unknown += int(unknown.sum())
        self._known.update(ids[added < len(order_id)].tolist())


def _columns(options: LobsterOptions) -> list[TableColumn]:
    return [
        TableColumn("time", scale=9),
        TableColumn("type"),
        TableColumn("order_id"),
        TableColumn("size", scale=options.size_scale),
        TableColumn("price", scale=options.price_scale - PRICE_DECIMALS),
        TableColumn("direction"),
    ]


def _valid(block: TableBlock, report: Report) -> TableBlock:
    """The valid rows; the others are reported as bad."""
    block = block.without(
        (block["time"] < 0) | (block["time"] >= DAY_NS), report, "not a time of day"
    )
    block = block.without(
        (block["type"] < NEW) | (block["type"] > HALT), report, "unknown message type"
    )
    halt = block["type"] == HALT
    block = block.without(
        ~halt & ((block["size"] <= 0) | (block["price"] <= 0)),
        report,
        "size or price is zero",
    )
    block = block.without(
        (block["type"] <= HIDDEN) & (np.abs(block["direction"]) != 1),
        report,
        "neither a buy nor a sell",
    )
    of_an_order = block["type"] <= EXECUTED
    return block.without(of_an_order & (block["order_id"] <= 0), report, "invalid order id")


def _beginning(
    instrument: Instrument, stream: str, time_ns: int, line: int, source: int, *, partial: bool
) -> Chunk:
    """A reset after a line; with `partial`, the book is then untrusted."""
    from tapewire.protocol.market import BOOK_EVENT, BookMode, loss, reset

    mode = BookMode.L3 if stream == ORDERS else BookMode.L2
    events = [reset(instrument, time_ns, book_mode=mode, exchange_ns=time_ns)]
    if partial:
        events.append(loss(instrument, time_ns, "partial", book_mode=mode, exchange_ns=time_ns))
    times_ns, lines = [time_ns] * len(events), [line] * len(events)
    return Chunk(
        instrument.venue, instrument.symbol, stream, BOOK_EVENT, times_ns, events, lines, source
    )


def _orders(instrument: Instrument, rows: TableBlock, times_ns: _Array) -> Chunk:
    from tapewire.protocol.market import L3Type, Side

    types = _L3_TYPE[rows["type"]]
    side = np.where(rows["direction"] > 0, Side.BUY, Side.SELL).astype(np.uint8)
    return book_chunk(
        instrument,
        times_ns,
        exchange_ns=times_ns,
        native_seq=rows.line,
        event_type=types,
        # The direction is that of the resting order; the side of a trade is the aggressor's.
        side=np.where(types == L3Type.TRADE, across(side), side),
        exec_type=rows["type"] + ord("0"),
        order_id=rows["order_id"],
        price=rows["price"],
        qty=np.where(rows["type"] == DELETED, 0, rows["size"]),  # 0: all that remains
        lines=rows.line,
        source=rows.source.index,
        stream=ORDERS,
    )


def _trades(instrument: Instrument, rows: TableBlock, times_ns: _Array) -> Chunk:
    from tapewire.protocol.market import Maker

    maker = np.where(rows["direction"] > 0, Maker.BUYER, Maker.SELLER)
    return trades_chunk(
        instrument,
        times_ns,
        exchange_ns=times_ns,
        price=rows["price"],
        size=rows["size"],
        trade_id=rows.line,
        maker=np.where(rows["type"] == CROSS, Maker.UNKNOWN, maker),
        order_id=np.where(rows["type"] == EXECUTED, rows["order_id"], 0),
        lines=rows.line,
        source=rows.source.index,
    )
