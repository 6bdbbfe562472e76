"""Chunks from columns of orders and trades: common code of importers of single orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire.ingest.importer import Chunk

if TYPE_CHECKING:
    from tapewire.protocol.instruments import Instrument

__all__ = ["across", "book_chunk", "trades_chunk"]

_Array = np.ndarray[Any, Any]


def across(side: _Array) -> _Array:
    """The opposite side: that of a trade's aggressor, if `side` is that of the resting order."""
    other: _Array = np.array([0, 2, 1], np.uint8)[side]
    return other


def book_chunk(
    instrument: Instrument,
    times_ns: _Array,
    *,
    exchange_ns: _Array,
    native_seq: _Array,
    event_type: _Array,
    side: _Array,
    exec_type: _Array,
    order_id: _Array,
    price: _Array,
    qty: _Array,
    flags: _Array | None = None,
    after_reset: bool = False,
    lines: _Array | None = None,
    source: int = 0,
    stream: str = "book",
) -> Chunk:
    """Events of orders, one for each row of the columns.

    `after_reset` adds a reset before them: orders end with their session.
    """
    from tapewire.protocol.market import BOOK_EVENT, EventType, L3Type, l3_rows

    records = l3_rows(instrument, len(times_ns) + after_reset)
    if after_reset:
        records["head"]["exchange_ts_ns"][0] = exchange_ns[0]
        records["order"]["event_type"][0] = L3Type.RESET
        times_ns = np.concatenate([times_ns[:1], times_ns])
        # The reset is before whatever is missing before the first row.
        lines = None if lines is None else np.concatenate([lines[:1] - 1, lines])
    rows = records[after_reset:]
    rows["head"]["exchange_ts_ns"] = exchange_ns
    rows["head"]["native_seq"] = native_seq
    for name, column in (
        ("event_type", event_type),
        ("side", side),
        ("exec_type", exec_type),
        ("order_id", order_id),
        ("price", price),
        ("qty", qty),
    ):
        rows["order"][name] = column
    if flags is not None:
        rows["order"]["flags"] = flags
    records["head"]["ingest_ts_ns"] = times_ns
    resets = records["order"]["event_type"] == L3Type.RESET
    records["head"]["event_type"][resets] = EventType.RESET
    venue, symbol = instrument.venue, instrument.symbol
    return Chunk(venue, symbol, stream, BOOK_EVENT, times_ns, records, lines, source)


def trades_chunk(
    instrument: Instrument,
    times_ns: _Array,
    *,
    exchange_ns: _Array,
    price: _Array,
    size: _Array,
    trade_id: _Array,
    maker: _Array,
    order_id: _Array | int,
    lines: _Array | None = None,
    source: int = 0,
) -> Chunk:
    """Trades; `order_id` is the resting order, on the side of `maker`."""
    from tapewire.protocol.market import Maker, TradeTick

    ticks = np.zeros(len(times_ns), TradeTick.dtype)
    ticks["timestamp_ns"] = exchange_ns
    ticks["price"] = price
    ticks["size"] = size
    ticks["trade_id"] = trade_id
    for name, rested in (("buyer_order_id", Maker.BUYER), ("seller_order_id", Maker.SELLER)):
        ticks[name] = np.where(maker == rested, order_id, 0)
    ticks["symbol_hash"] = instrument.symbol_hash
    ticks["market_id"] = instrument.market_id
    ticks["price_scale"] = instrument.price_scale
    ticks["size_scale"] = instrument.size_scale
    ticks["is_buyer_maker"] = maker
    venue, symbol = instrument.venue, instrument.symbol
    return Chunk(venue, symbol, "trades", TradeTick.type_id, times_ns, ticks, lines, source)
