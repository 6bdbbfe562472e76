"""Captures of Binance's WebSocket streams, spot and USD-M futures: lines ``<local time> <json>``.

Local times are milliseconds, microseconds or nanoseconds, detected by their magnitude. A line with
``lastUpdateId`` is a REST depth snapshot; it names no symbol and belongs to the only symbol of the
capture. Diffs are written in the order of their update ids.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from tapewire.ingest.capture_lines import (
    MAX_PAYLOAD_BYTES,
    MAX_TIME_NS,
    WRONG_TYPE,
    BadRow,
    LineImporter,
    check_size,
    integer,
    levels,
    parse_json,
)
from tapewire.ingest.last_diffs import LastDiffs
from tapewire.ingest.snapshot_order import SnapshotOrder
from tapewire.protocol.instruments import Instrument
from tapewire.protocol.market import (
    BOOK_EVENT,
    QUOTE,
    TRADE_TICK,
    l2_diff,
    l2_snapshot,
)

__all__ = ["BinanceSpot", "BinanceUsdm"]

MS = 1_000_000
_UNKNOWN = "a snapshot of an unknown symbol"
_KNOWN = frozenset(
    ("markPriceUpdate", "kline", "24hrTicker", "24hrMiniTicker", "forceOrder", "avgPrice")
)


@dataclass(slots=True)
class _Diff:
    """A diff, encoded as of its arrival: values that do not fit make its own line a bad row."""

    instrument: Instrument
    timestamp_ns: int
    first: int
    last: int
    previous: int
    bids: Any
    asks: Any
    exchange_ns: int
    payload: bytes = b""

    def __post_init__(self) -> None:
        self.payload = l2_diff(
            self.instrument,
            self.timestamp_ns,
            bids=self.bids,
            asks=self.asks,
            first=self.first,
            last=self.last,
            prev=self.previous,
            exchange_ns=self.exchange_ns,
        )


@dataclass(slots=True)
class _Snapshot:
    """A REST snapshot, encoded in the same way."""

    instrument: Instrument
    timestamp_ns: int
    last: int
    bids: Any
    asks: Any
    exchange_ns: int
    payload: bytes = b""

    def __post_init__(self) -> None:
        self.payload = l2_snapshot(
            self.instrument,
            self.timestamp_ns,
            bids=self.bids,
            asks=self.asks,
            native_seq=self.last,
            exchange_ns=self.exchange_ns,
        )


class _Binance(LineImporter):
    """Common code of spot and futures, which differ in how a diff refers to the previous one.

    Attributes:
        last_diff_counts: Whether the diff with the update id of a snapshot must be applied to it:
            the venue says which diffs are to be dropped.
    """

    last_diff_counts: ClassVar[bool] = False

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._only: str | None = None  # the last symbol in the capture
        self._many = False
        self._orders: dict[Instrument, SnapshotOrder[_Snapshot]] = {}
        self._last_diffs: dict[Instrument, LastDiffs] = {}

    def formats_of(self, line: bytes) -> frozenset[str]:
        """The markets of a message, by fields that only some of them send."""
        return _markets_of(parse_json(line.partition(b" ")[2]))

    def message(self, line: bytes) -> None:
        """Import a message by the type of its event."""
        if not line.strip():
            self.report.skip("blank line")
            return
        stamp, _, text = line.partition(b" ")
        timestamp_ns = local_time_ns(stamp)
        document = parse_json(text)
        if type(document) is not dict:
            raise BadRow(WRONG_TYPE, "a message must be an object")
        if "lastUpdateId" in document:
            self._add_snapshot(timestamp_ns, document, text)
            return
        data = document.get("data", document)
        kind = data.get("e")
        if kind is None and "result" in data and "id" in data:
            self.report.skip("acknowledgement")
            return
        if kind in _KNOWN:
            self.report.skip(str(kind))
            return
        symbol = data["s"]
        if symbol != self._only and type(symbol) is str:
            self._many = self._many or self._only is not None
            self._only = symbol
        instrument = self.wanted(self.venue, symbol)
        if instrument is None:
            return
        if kind == "depthUpdate":
            self._add_diff(instrument, timestamp_ns, data)
        elif kind in ("trade", "aggTrade"):
            self.not_of_book()
            payload = self._trade(instrument, data)
            self.add(instrument, "trades", TRADE_TICK, timestamp_ns, payload)
        elif kind == "bookTicker" or (kind is None and "u" in data):
            self.not_of_book()
            payload = self.quote(
                instrument,
                bid=(data["b"], data["B"]),
                ask=(data["a"], data["A"]),
                exchange_ns=_time_ns(data.get("T"), timestamp_ns),
            )
            self.add(instrument, "quotes", QUOTE, timestamp_ns, payload)
        else:
            raise BadRow("unknown message", f"e={kind!r:.80}")
        self.keep_wire(instrument, timestamp_ns, text)

    def _add_diff(self, instrument: Instrument, timestamp_ns: int, data: dict[str, Any]) -> None:
        first, last = integer(data["U"]), integer(data["u"])
        diff = _Diff(
            instrument,
            timestamp_ns,
            first,
            last,
            self._previous(first, data),
            levels(data["b"], instrument),
            levels(data["a"], instrument),
            _time_ns(data.get("T", data.get("E")), 0),
        )
        check_size(diff.payload)
        self.wait(instrument, timestamp_ns, (diff.previous, last), diff)

    def _add_snapshot(self, timestamp_ns: int, document: dict[str, Any], text: bytes) -> None:
        symbol = document.get("symbol") or self._only_symbol()
        instrument = self.wanted(self.venue, symbol)
        if instrument is None:
            return
        snapshot = _Snapshot(
            instrument,
            timestamp_ns,
            integer(document["lastUpdateId"]),
            levels(document["bids"], instrument),
            levels(document["asks"], instrument),
            _time_ns(document.get("T"), 0),
        )
        check_size(snapshot.payload)
        self.wait(instrument, timestamp_ns, (0, snapshot.last), snapshot, snapshot=True)
        self.keep_wire(instrument, timestamp_ns, text)

    def in_turn(self, instrument: Instrument, timestamp_ns: int, what: Any) -> None:
        """Add a diff, or a snapshot that is newer than the book."""
        if what.timestamp_ns != timestamp_ns:
            what = dataclasses.replace(what, timestamp_ns=timestamp_ns)
        order = self._orders.setdefault(instrument, SnapshotOrder())
        if isinstance(what, _Snapshot):
            if order.snapshot(what.last, what):
                self._write_snapshot(what)
            return
        snapshot = order.diff(what.previous, what.last)
        if order.contradicted:
            cause = "update ids contradict those of the diff before"
            self.break_book(instrument, timestamp_ns, "venue", cause, what.payload)
            return
        if snapshot is not None:
            self._write_snapshot(snapshot)
        if self.last_diff_counts:
            last_diffs = self._last_diffs.setdefault(instrument, LastDiffs())
            if what.last == last_diffs.snapshot:
                # Readers drop what ends before the snapshot's id, or at it, and does not follow it.
                what = dataclasses.replace(what, previous=what.last)
            last_diffs.add(what.last, what.payload)
        self.add(instrument, "book", BOOK_EVENT, timestamp_ns, what.payload)
        while order.left_out:
            order.left_out -= 1
            self.report.skip("a snapshot older than the book")

    def _write_snapshot(self, snapshot: _Snapshot) -> None:
        if self.last_diff_counts:
            last_diffs = self._last_diffs.setdefault(snapshot.instrument, LastDiffs())
            sides = last_diffs.applied(snapshot.last, snapshot.bids, snapshot.asks)
            if sides is not None:
                snapshot = dataclasses.replace(snapshot, bids=sides[0], asks=sides[1])
        if len(snapshot.payload) > MAX_PAYLOAD_BYTES:
            self.report.skip("a snapshot of too many levels")  # with those of a diff
            return
        self.add(snapshot.instrument, "book", BOOK_EVENT, snapshot.timestamp_ns, snapshot.payload)

    def _only_symbol(self) -> str:
        if self._many:
            raise BadRow(_UNKNOWN, "no symbol, and several in the capture so far")
        if self._only is not None:
            return self._only
        if len(self.options.symbols) == 1:
            return self.options.symbols[0]
        raise BadRow(_UNKNOWN, "no symbol, and none in the capture so far; give --symbol")

    def _trade(self, instrument: Instrument, data: dict[str, Any]) -> bytes:
        maker = data["m"]
        if type(maker) is not bool:
            raise BadRow(WRONG_TYPE, f"m must be true or false: m={maker!r:.80}")
        return self.trade(
            instrument,
            price=data["p"],
            size=data["q"],
            trade_id=integer(data["t"] if data["e"] == "trade" else data["a"]),
            buyer_is_maker=maker,
            exchange_ns=_time_ns(data["T"], 0),
        )

    def _previous(self, first: int, data: dict[str, Any]) -> int:
        """The last update id of the previous diff."""
        raise NotImplementedError


class BinanceSpot(_Binance):
    """Spot: a diff begins one after the last update id of the previous one."""

    name: ClassVar[str] = "binance-spot"
    venue: ClassVar[str] = "binance_spot"

    def _previous(self, first: int, data: dict[str, Any]) -> int:
        if "pu" in data:
            raise BadRow("another market", "field pu is in futures only: import as binance-usdm")
        return max(first - 1, 0)


class BinanceUsdm(_Binance):
    """USD-M futures: a diff has the last update id of the previous one, `pu`.

    Diffs before a snapshot's id are to be dropped; the one with that id belongs to the book.
    """

    last_diff_counts: ClassVar[bool] = True
    name: ClassVar[str] = "binance-usdm"
    venue: ClassVar[str] = "binance_usdm"

    def _previous(self, first: int, data: dict[str, Any]) -> int:
        if "pu" not in data:
            raise BadRow("another market", "field pu of futures is missing: import as binance-spot")
        return integer(data["pu"])


_SPOT, _USDM = frozenset(("binance-spot",)), frozenset(("binance-usdm",))
_COINM = frozenset(("binance-coinm",))


def _markets_of(document: dict[str, Any]) -> frozenset[str]:
    if "lastUpdateId" in document:
        if "pair" in document:
            return _COINM
        return _USDM if "E" in document else frozenset()
    data = document.get("data", document)
    kind = data.get("e")
    if kind is None:
        return _SPOT if "u" in data and "B" in data else frozenset()
    if kind == "trade":
        return _SPOT if "M" in data else _USDM | _COINM
    if kind not in ("depthUpdate", "bookTicker"):
        return frozenset()
    if "ps" in data:
        return _COINM
    return _USDM if "pu" in data or kind == "bookTicker" else _SPOT


def local_time_ns(text: bytes) -> int:
    """A local time in nanoseconds; its unit is detected by its magnitude.

    Example:
        >>> local_time_ns(b"1680652700423575"), local_time_ns(b"1721347020984480942")
        (1680652700423575000, 1721347020984480942)
    """
    if not text.isdigit() or len(text) > 19:
        raise BadRow("no time at the start", f"{text[:40]!r}")
    value = int(text)
    if value < 10**14:  # milliseconds until the year 5138
        value *= 10**6
    elif value < 10**17:  # microseconds until then
        value *= 10**3
    if value > MAX_TIME_NS:
        raise BadRow("no time at the start", f"after the year 2262: {text!r}")
    return value


def _time_ns(milliseconds: Any, absent: int) -> int:
    return absent if milliseconds is None else integer(milliseconds, MAX_TIME_NS // MS) * MS
