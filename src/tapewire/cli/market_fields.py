"""Market data messages as JSON: names instead of ids, prices and sizes as decimal text."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tapewire.errors import TapewireError
from tapewire.log import Record
from tapewire.protocol import market
from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.protocol.messages import Message, asdict

__all__ = ["MarketFields"]

# The scale of each scaled field, by message.
_DECIMALS = {
    market.QUOTE: {
        "bid_price": "price_scale",
        "bid_size": "size_scale",
        "ask_price": "price_scale",
        "ask_size": "size_scale",
    },
    market.TRADE_TICK: {"price": "price_scale", "size": "size_scale"},
}


class MarketFields:
    """The fields of market data records of one log, with the names of its instruments.

    Prices and sizes are exact decimal text with all decimals of the scale: ``"101.50"``.
    """

    def __init__(self, directory: str, report: Callable[[str], None]) -> None:
        try:
            self._instruments = Instruments.load(directory)
        except (TapewireError, OSError) as error:
            report(f"{error} (instruments are shown by their ids)")
            self._instruments = Instruments()

    def name_for(self, record: Record) -> str | None:
        """The name of its type, or None if the record does not have the size of such a message."""
        least = market.HEADER_DTYPE.itemsize if record.type_id == market.BOOK_EVENT else 0
        if record.type_id in market.MESSAGES:
            if len(record) != market.MESSAGES[record.type_id].layout().size:
                return None
        elif len(record) < least:
            return None
        return market.NAMES[record.type_id]

    def of(self, record: Record, declared: type[Message] | None) -> dict[str, Any] | None:
        """The fields; None if it is not a valid message, or the log `declared` another layout."""
        if record.type_id == market.BOOK_EVENT:
            try:
                return self._book_event(market.BookEvent.decode(record))
            except TapewireError:
                return None
        if record.type_id == market.VENUE_RAW:
            return _text(record)
        known = market.MESSAGES[record.type_id].layout()
        if len(record) != known.size or (declared is not None and declared.layout() != known):
            return None
        return self._message(market.MESSAGES[record.type_id].decode(record))

    def _message(self, message: Message) -> dict[str, Any] | None:
        fields = asdict(message)
        if message.type_id not in _DECIMALS:
            return {name: _finite(value) for name, value in fields.items()}
        try:
            for name, scale in _DECIMALS[message.type_id].items():
                fields[name] = market.unscaled(fields[name], fields[scale])
        except TapewireError:
            return None  # an invalid scale
        return _named(self._instruments.by_market(fields["market_id"])) | fields

    def _book_event(self, event: market.BookEvent) -> dict[str, Any]:
        order = event.order
        kind = (
            market.EventType(event.event_type) if order is None else market.L3Type(order.event_type)
        )
        fields: dict[str, Any] = {
            "event": kind.name.lower(),
            "book": market.BookMode(event.book_mode).name.lower(),
            **_named(self._instruments.by_id(event.venue_id, event.market_id)),
            "venue_id": event.venue_id,
            "market_id": event.market_id,
            "stream_id": event.stream_id,
            "exchange_ts_ns": event.exchange_ts_ns,
            "native_seq": event.native_seq,
        }
        if order is not None:
            return fields | _order(order)
        if event.loss is not None:
            cause, fields["first"], fields["last"] = event.loss
            fields["cause"] = market.LossCause(cause).name.lower()
        if kind == market.EventType.DIFF:
            fields["delta"] = event.delta
            fields["update_first"] = event.update_first
            fields["update_last"] = event.update_last
            fields["update_prev"] = event.update_prev
        if kind in (market.EventType.DIFF, market.EventType.SNAPSHOT):
            fields["bids"] = _levels(event.bids, event.price_scale, event.size_scale)
            fields["asks"] = _levels(event.asks, event.price_scale, event.size_scale)
        return fields


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _named(instrument: Instrument | None) -> dict[str, Any]:
    if instrument is None:
        return {"venue": None, "symbol": None}
    return {"venue": instrument.venue, "symbol": instrument.symbol}


def _levels(
    levels: np.ndarray[Any, Any], price_scale: int, size_scale: int
) -> list[tuple[str, str]]:
    return [
        (market.unscaled(price, price_scale), market.unscaled(size, size_scale))
        for price, size in levels.tolist()
    ]


def _order(order: market.L3Order) -> dict[str, Any]:
    return {
        "side": market.Side(order.side).name.lower(),
        "order_id": order.order_id,
        "bid_order_id": order.bid_order_id,
        "ask_order_id": order.ask_order_id,
        "price": market.unscaled(order.price, order.price_scale),
        "qty": market.unscaled(order.qty, order.size_scale),
        "amt": order.amt,
        "ord_type": _letter(order.ord_type),
        "exec_type": _letter(order.exec_type),
        "flags": [
            name.lower() for name, flag in market.L3Flags.__members__.items() if flag & order.flags
        ],
    }


def _letter(code: int) -> str | int | None:
    """A venue's letter, or its code if it is not printable; None for 0."""
    if code == 0:
        return None
    return chr(code) if 0x20 < code < 0x7F else code


def _text(record: Record) -> dict[str, Any] | None:
    try:
        return {"text": str(record.payload, "utf-8")}
    except UnicodeDecodeError:
        return None
