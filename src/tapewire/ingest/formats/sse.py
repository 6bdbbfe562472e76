"""Shanghai: orders, trades and snapshots as lines of key=value, or orders and trades as CSV.

Orders and trades of a channel are numbered together (`BizIndex`, in older files `ApplSeqNum`);
merged by that number they are the events of the book. In continuous trading an order that trades at
once appears only with its remaining size, after its trades: a trade reduces the resting side only.
See docs/howto/china-l3.md for the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tapewire.errors import CorruptSource
from tapewire.ingest._parsers import L2Grouper
from tapewire.ingest.channel_events import (
    ADD,
    CANCEL,
    DAY_NS,
    PRICE_IS_MARKET,
    SHANGHAI_NS,
    TRADE,
    ChannelChunks,
    DatedOptions,
    Symbols,
    day_of,
    empty_events,
    keys,
    phase_flags,
    times,
    with_keys,
    without_negatives,
)
from tapewire.ingest.channels import ChannelCheck
from tapewire.ingest.importer import Chunk, Importer
from tapewire.ingest.merging import Reader
from tapewire.ingest.tables import (
    MISSING,
    TableBlock,
    TableColumn,
    csv_blocks,
    csv_header,
    pair_blocks,
)

if TYPE_CHECKING:
    from tapewire.ingest.report import Report
    from tapewire.ingest.source import SourceFile

__all__ = ["Sse", "SseOptions"]

_Array = np.ndarray[Any, Any]

DEPTH = 10  # levels of a snapshot
SNAPSHOT, TRADE_MESSAGE, ORDER_MESSAGE = 111, 191, 192  # MsgType
_BUY, _SELL = 1, 2


@dataclass(frozen=True, kw_only=True)
class SseOptions(DatedOptions):
    """Options of the Shanghai importer; the exchange itself uses thousandths."""

    price_scale: int = 3
    size_scale: int = 3


class Sse(Importer):
    """Importer of Shanghai's order and trade files."""

    name: ClassVar[str] = "sse"
    venue: ClassVar[Literal["sse"]] = "sse"
    Options: ClassVar[type[SseOptions]] = SseOptions

    def __init__(self, options: SseOptions) -> None:
        self._options = options
        self._symbols = Symbols(suffix=".SH")

    def chunks(self, files: Sequence[SourceFile], report: Report) -> Iterator[Chunk]:
        """Events of all files in the order of their numbers, with the snapshots in between."""
        out = ChannelChunks(self.venue, self._options, self._symbols, report)
        snapshots = _Snapshots(self._options, self._symbols, out, report)
        readers = [self._reader(source, snapshots) for source in files]
        return ChannelCheck(out).chunks(readers, others=snapshots.take)

    def _reader(self, source: SourceFile, snapshots: _Snapshots) -> Reader:
        """The reader of a file; its first line determines the kind of the file."""
        with source.open() as file:
            first = file.readline(1 << 16)
        if b"MsgType=" in first:
            day = day_of(self._options, source)
            return lambda report: _log_lanes(
                source, day, self._symbols, snapshots, report, self._options
            )
        header = csv_header(source)
        own_day = None if "MDDate" in header else day_of(self._options, source)
        for mark, columns, kind in (
            ("OrderNO", _order_columns, "orders"),
            ("TradeBuyNo", _trade_columns, "trades"),
        ):
            if mark in header:
                return _csv_reader(
                    source, columns(self._options), kind, self._options, self._symbols, own_day
                )
        raise CorruptSource(
            f"neither orders, trades nor a log of Shanghai: has={', '.join(header[:40])[:400]}",
            path=str(source.path),
            hint="orders have a column OrderNO, trades TradeBuyNo, lines of a log MsgType=",
        )


# ---- CSV


def _shared_columns(options: SseOptions) -> list[TableColumn]:
    return [
        TableColumn("MDDate", "date", absent=True),
        TableColumn("MDTime", "clock"),
        TableColumn("SecurityID", "text"),
        TableColumn("ChannelNo"),
        TableColumn("ApplSeqNum"),
        TableColumn("BizIndex", optional=True, absent=True),
        TableColumn("ReceiveDateTime", "datetime", optional=True, absent=True),
    ]


def _order_columns(options: SseOptions) -> list[TableColumn]:
    return [
        *_shared_columns(options),
        TableColumn("OrderType", "word", words=_ORDER_TYPES),
        TableColumn("OrderPrice", "rounded", options.price_scale),
        TableColumn("OrderQty", "rounded", options.size_scale),
        TableColumn("OrderBSFlag", "word", words=_SIDES),
        TableColumn("OrderNO", "decimal"),
    ]


def _trade_columns(options: SseOptions) -> list[TableColumn]:
    return [
        *_shared_columns(options),
        TableColumn("TradeBuyNo"),
        TableColumn("TradeSellNo"),
        TableColumn("TradeBSFlag", "word", words=_AGGRESSORS),
        TableColumn("TradePrice", "rounded", options.price_scale),
        TableColumn("TradeQty", "rounded", options.size_scale),
        TableColumn("TradeMoney", "rounded", options.price_scale, optional=True, absent=True),
    ]


# Words as vendors write them, and their meanings.
_ORDER_TYPES = ("A", "2", "1", "D", "10")
_ORDER_KINDS = np.array([ADD, ADD, ADD, CANCEL, CANCEL], np.uint8)
_ORDER_LETTERS = np.frombuffer(b"A21DD", np.uint8)
_SIDES = ("1", "2", "B", "S")
_SIDE_OF = np.array([_BUY, _SELL, _BUY, _SELL], np.uint8)
_AGGRESSORS = ("0", "1", "2", "N", "B", "S")
_AGGRESSOR_OF = np.array([0, _BUY, _SELL, 0, _BUY, _SELL], np.uint8)
_EXEC_LETTERS = np.frombuffer(b"NBSNBS", np.uint8)


_WHOLE_NUMBERS = {
    "orders": ("OrderNO", "OrderQty"),
    "trades": ("TradeBuyNo", "TradeSellNo", "TradeQty"),
}


def _csv_reader(
    source: SourceFile,
    columns: list[TableColumn],
    kind: str,
    options: SseOptions,
    symbols: Symbols,
    day: int | None,
) -> Reader:
    def days_of(block: TableBlock) -> _Array | int:
        return block["MDDate"] if day is None else day

    def read(report: Report | None) -> Iterator[Sequence[_Array]]:
        number = ""
        for rows in csv_blocks(source, columns, report, symbols.owner("SecurityID")):
            # The first row decides for the file: it uses one of the two numbers throughout.
            number = number or ("ApplSeqNum" if rows["BizIndex"][0] == MISSING else "BizIndex")
            valid = with_keys(rows, days_of(rows), "ChannelNo", number, report)
            block = _named(valid, symbols, report)
            block = without_negatives(block, _WHOLE_NUMBERS[kind], report)
            received = block["ReceiveDateTime"]
            early = (days_of(block) < 1) | ((received < DAY_NS) & (received != MISSING))
            block = block.without(early, report, "a time before 1970")
            events = empty_events(len(block))
            days = days_of(block)
            events["key"] = keys(days, block["ChannelNo"], block[number])
            events["symbol"] = symbols.column(block, "SecurityID")
            events["line"], events["source"] = block.line, source.index
            receive_ns = block["ReceiveDateTime"] if options.clock == "receive" else None
            times(events, days, block["MDTime"], receive_ns)
            (_orders if kind == "orders" else _trades)(events, block)
            events["flags"] |= phase_flags(events["type"], block["MDTime"])
            yield [events]

    return read


def _named(block: TableBlock, symbols: Symbols, report: Report | None) -> TableBlock:
    return block.without(symbols.column(block, "SecurityID") < 0, report, "not a stock name")


def _orders(events: _Array, block: TableBlock) -> None:
    events["type"] = _ORDER_KINDS[block["OrderType"]]
    events["ord_type"] = _ORDER_LETTERS[block["OrderType"]]
    events["side"] = _SIDE_OF[block["OrderBSFlag"]]
    events["order_id"] = block["OrderNO"]
    _price(events, block["OrderPrice"], block["OrderQty"])


def _trades(events: _Array, block: TableBlock) -> None:
    events["type"] = TRADE
    events["exec_type"] = _EXEC_LETTERS[block["TradeBSFlag"]]
    events["side"] = _AGGRESSOR_OF[block["TradeBSFlag"]]
    events["bid_order_id"] = block["TradeBuyNo"]
    events["ask_order_id"] = block["TradeSellNo"]
    events["price"] = block["TradePrice"]
    events["qty"] = block["TradeQty"]
    money = block["TradeMoney"]
    events["amt"] = np.where(money == MISSING, 0, money)


def _price(events: _Array, price: _Array, qty: _Array) -> None:
    at_market = (price <= 0) & (events["type"] == ADD)
    events["price"] = np.where(at_market, 0, price)
    events["flags"][at_market] |= PRICE_IS_MARKET
    events["qty"] = qty


# ---- the log of key=value lines


_NEEDS = {
    ORDER_MESSAGE: [
        "ChannelNo",
        "BizIndex",
        "OrderNo",
        "Price",
        "OrderQty",
        "OrdType",
        "Side",
        "TransactTime",
    ],
    TRADE_MESSAGE: [
        "ChannelNo",
        "BizIndex",
        "BidApplSeqNum",
        "OfferApplSeqNum",
        "LastPx",
        "LastQty",
        "ExecType",
        "TransactTime",
    ],
    SNAPSHOT: ["DataTimeStamp", "NumTrades"],
}


def _log_columns() -> list[TableColumn]:
    names = dict.fromkeys(key for needs in _NEEDS.values() for key in needs)
    levels = [
        f"{side}Level[{i}].{what}"
        for i in range(DEPTH)
        for side in ("Bid", "Ask")
        for what in ("Price", "Qty")
    ]
    numbers = [TableColumn(name) for name in ["MsgType", *names, *levels]]
    return [TableColumn("SecurityID", "text"), *numbers]


def _log_lanes(
    source: SourceFile,
    day: int,
    symbols: Symbols,
    snapshots: _Snapshots,
    report: Report | None,
    options: SseOptions,
) -> Iterator[Sequence[_Array]]:
    thousandths = _Thousandths(options)
    for rows in pair_blocks(source, _log_columns(), report, symbols.owner("SecurityID")):
        known = np.isin(rows["MsgType"], list(_NEEDS))
        block = rows.without(~known, report, "not an order, a trade or a snapshot")
        block = block.without(block["SecurityID"] == MISSING, report, "no stock name")
        block = _named(block, symbols, report)
        parts = {}
        for kind, needs in _NEEDS.items():
            part = block.where(block["MsgType"] == kind)
            for key in needs:
                part = part.without(part[key] < 0, report, f"no {key}")
            parts[kind] = part
        if report is not None:
            snapshots.add(parts[SNAPSHOT], day, thousandths)
        yield [
            _log_events(parts[ORDER_MESSAGE], day, symbols, thousandths, report, orders=True),
            _log_events(parts[TRADE_MESSAGE], day, symbols, thousandths, report, orders=False),
        ]


class _Thousandths:
    """Converts the log's prices and sizes from thousandths to the scales of the import."""

    def __init__(self, options: SseOptions) -> None:
        self._shift = {"price": options.price_scale - 3, "size": options.size_scale - 3}

    def lost(self, what: str, values: _Array) -> _Array:
        """Which values lose digits or do not fit 64 bits."""
        shift = self._shift[what]
        if shift < 0:
            return np.asarray(values % 10**-shift != 0)
        return np.asarray(np.abs(values) > np.iinfo(np.int64).max // 10**shift)

    def at_scale(self, what: str, values: _Array) -> _Array:
        shift = self._shift[what]
        return np.asarray(values * 10**shift if shift >= 0 else values // 10**-shift)


def _clock_ns(hundredths: _Array) -> _Array:
    """Nanoseconds since midnight of HHMMSScc; -1 if that is not a time."""
    cc, rest = hundredths % 100, hundredths // 100
    seconds, minutes, hours = rest % 100, rest // 100 % 100, rest // 10_000
    ns = (((hours * 60 + minutes) * 60 + seconds) * 100 + cc) * 10_000_000
    valid = (hours >= 0) & (hours < 24) & (minutes < 60) & (seconds < 60)
    return np.where(valid, ns, -1)


def _log_events(
    block: TableBlock,
    day: int,
    symbols: Symbols,
    thousandths: _Thousandths,
    report: Report | None,
    orders: bool,
) -> _Array:
    price, qty = ("Price", "OrderQty") if orders else ("LastPx", "LastQty")
    block = with_keys(block, day, "ChannelNo", "BizIndex", report)
    block = block.without(_clock_ns(block["TransactTime"]) < 0, report, "not a time")
    for what, name in (("price", price), ("size", qty)):
        lost = thousandths.lost(what, block[name])
        block = block.without(lost, report, f"{name} does not fit the {what} scale")
    letters, sides = (
        (("OrdType", b"AD"), ("Side", b"BS")) if orders else (("ExecType", b"NBS"),) * 2
    )
    for name, allowed in (letters, sides):
        block = block.without(~np.isin(block[name], list(allowed)), report, f"unknown {name}")

    events = empty_events(len(block))
    clock_ns = _clock_ns(block["TransactTime"])
    events["key"] = keys(day, block["ChannelNo"], block["BizIndex"])
    events["symbol"] = symbols.column(block, "SecurityID")
    events["line"], events["source"] = block.line, block.source.index
    times(events, day, clock_ns, None)
    events["side"] = np.select(
        [block[sides[0]] == ord("B"), block[sides[0]] == ord("S")], [_BUY, _SELL]
    )
    if orders:
        events["type"] = np.where(block["OrdType"] == ord("A"), ADD, CANCEL)
        events["ord_type"] = block["OrdType"]
        events["order_id"] = block["OrderNo"]
    else:
        events["type"] = TRADE
        events["exec_type"] = block["ExecType"]
        events["bid_order_id"] = block["BidApplSeqNum"]
        events["ask_order_id"] = block["OfferApplSeqNum"]
    _price(
        events,
        thousandths.at_scale("price", block[price]),
        thousandths.at_scale("size", block[qty]),
    )
    events["flags"] |= phase_flags(events["type"], clock_ns)
    return events


class _Snapshots:
    """Writes the exchange's own snapshots of ten levels into a separate stream."""

    stream = f"book_snapshot_{DEPTH}"

    def __init__(
        self, options: SseOptions, symbols: Symbols, out: ChannelChunks, report: Report
    ) -> None:
        self._symbols = symbols
        self._out = out
        self._report = report
        self._groupers: dict[tuple[int, int], L2Grouper] = {}  # by stock and file

    def add(self, block: TableBlock, day: int, thousandths: _Thousandths) -> None:
        """Add rows of a file; `native_seq` is the exchange's count of trades."""
        seconds = block["DataTimeStamp"]
        invalid = (seconds >= 240_000) | (_clock_ns(seconds * 100) < 0)
        for i in range(DEPTH):
            for side in ("Bid", "Ask"):
                for key, what in (("Price", "price"), ("Qty", "size")):
                    values = block[f"{side}Level[{i}].{key}"]
                    invalid |= (values != MISSING) & thousandths.lost(what, values)
        block = block.without(invalid, self._report, "a snapshot that does not fit the scales")
        numbers = self._symbols.column(block, "SecurityID")
        for number in np.unique(numbers).tolist():
            self._add(number, block.where(numbers == number), day, thousandths)

    def _add(self, number: int, block: TableBlock, day: int, thousandths: _Thousandths) -> None:
        instrument = self._out.instrument(number)
        if instrument is None:
            self._report.skipped["another symbol"] += len(block)
            return
        rows = np.zeros((len(block), DEPTH, 2, 8), np.int64)
        time_ns = day * DAY_NS + _clock_ns(block["DataTimeStamp"] * 100) - SHANGHAI_NS
        rows[..., 0] = rows[..., 1] = time_ns[:, None, None]
        rows[..., 2] = block["NumTrades"][:, None, None]
        rows[..., 3] = 2  # each line is a complete book
        rows[..., 7] = block.line[:, None, None]
        key = (number, block.source.index)
        for i in range(DEPTH):
            for side, name in enumerate(("Bid", "Ask")):
                price, qty = block[f"{name}Level[{i}].Price"], block[f"{name}Level[{i}].Qty"]
                present = (price > 0) & (qty > 0)
                rows[:, i, side, 4] = np.where(present, side, -1)
                rows[:, i, side, 5] = thousandths.at_scale("price", price)
                rows[:, i, side, 6] = thousandths.at_scale("size", qty)
        if key not in self._groupers:
            self._groupers[key] = L2Grouper(
                instrument.venue_id,
                instrument.market_id,
                instrument.price_scale,
                instrument.size_scale,
            )
        self._groupers[key].add(rows.reshape(-1, 8))
        self._groupers[key].finish()

    def take(self) -> Iterator[Chunk]:
        """The snapshots since the last call."""
        from tapewire.protocol.market import BOOK_EVENT

        for (number, source), grouper in self._groupers.items():
            times_ns, payloads, lines, _ = grouper.take()
            instrument = self._out.instrument(number)
            if payloads and instrument is not None:
                yield Chunk(
                    instrument.venue,
                    instrument.symbol,
                    self.stream,
                    BOOK_EVENT,
                    times_ns,
                    payloads,
                    lines,
                    source,
                )
