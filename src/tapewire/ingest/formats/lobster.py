"""LOBSTER: a NASDAQ stock's day as a CSV file of messages, with its order book beside it.

Orders become events of the book, executions and crosses trades. Ingest time is the exchange's: a
file has no other. The file of the order book is not imported, but messages can be checked against
it.
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
from tapewire.ingest.formats.lobster_check import OrderbookCheck
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
        check_orderbook: Check the order book, whose file is given with that of the messages: each
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
        for source, day in days:
            if day.kind == "orderbook":
                if not self._options.check_orderbook:
                    report.skip("file of an order book")
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
        check = None
        if self._options.check_orderbook:
            if orderbook is None:
                raise InvalidOption(
                    f"no order book for this file of messages: file={source.name!r}",
                    hint="also give the file of its order book, or check_orderbook=False",
                )
            check = OrderbookCheck(orderbook, report)
        midnight = midnight_ns(day.date, self._options.zone)
        orders = _KnownOrders()
        for parsed in bare_blocks(source, _columns(self._options), report, further=1):
            block = _valid(parsed, report)
            if check is not None:
                check.follow(parsed, self._price_factor, 10**self._options.size_scale)
            yield from self._chunks(instrument, block, midnight, orders, report)
        if check is not None:
            check.finish()
        if orders.unknown:
            report.skipped["of an order that was never added"] += orders.unknown

    def _chunks(
        self,
        instrument: Instrument,
        block: TableBlock,
        midnight: int,
        orders: _KnownOrders,
        report: Report,
    ) -> Iterator[Chunk]:
        types = block["type"]
        for price in block["price"][types == HALT].tolist():
            report.skip(_HALTS.get(price // self._price_factor, "halt"))
        of_orders = block.where(np.isin(types, _ORDERS))
        if len(of_orders):
            orders.add(of_orders["type"] == NEW, of_orders["order_id"])
            # Orders end with their session, whichever import brings the next one.
            yield _book(instrument, of_orders, midnight, after_reset=not orders.written)
            orders.written = True
        traded = block.where(np.isin(types, _TRADES))
        if len(traded):
            yield _trades(instrument, traded, midnight)

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
        made = Instrument.of(
            self.venue, name, options.price_scale, options.size_scale, book_mode="l3"
        )
        return known_instrument(report, made, options)


class _KnownOrders:
    """Counts events of orders that no message of the session added."""

    def __init__(self) -> None:
        self.unknown = 0
        self.written = False
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


def _book(instrument: Instrument, rows: TableBlock, midnight: int, after_reset: bool) -> Chunk:
    from tapewire.protocol.market import L3Type, Side

    types = _L3_TYPE[rows["type"]]
    times_ns = rows["time"] + midnight
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
        after_reset=after_reset,
        lines=rows.line,
        source=rows.source.index,
    )


def _trades(instrument: Instrument, rows: TableBlock, midnight: int) -> Chunk:
    from tapewire.protocol.market import Maker

    times_ns = rows["time"] + midnight
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
