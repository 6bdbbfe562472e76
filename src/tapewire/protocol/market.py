"""Market data messages: book events, quotes and trades, protocol version 3.

Prices and sizes are integers with a scale: ``price / 10 ** price_scale``. A book event (0x1000) is
made by one of the encoders below and appended with the same `timestamp_ns` that it contains;
`BookTicker`, `Trade`, `Quote` and `TradeTick` are ordinary messages.

`record.decode()` decodes these types after ``import tapewire``; the first one imports this module.

Example:
    >>> import tapewire as tw
    >>> from tapewire.protocol import market
    >>> from tapewire.protocol.instruments import Instrument
    >>> btc = Instrument.of("binance", "BTCUSDT", price_scale=2, size_scale=3)
    >>> with tw.open_publisher(tmp / "book", segment_bytes=1 << 20) as writer:
    ...     event = market.l2_snapshot(btc, 1_000, bids=[(9_999_950, 1_250)], asks=[], native_seq=6)
    ...     _ = writer.append(market.BOOK_EVENT, event, timestamp_ns=1_000)
    >>> with tw.open_log(tmp / "book") as log:
    ...     book_event = log.next().decode()
    >>> book_event.bids.tolist(), book_event.native_seq
    ([(9999950, 1250)], 6)
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Any, ClassVar, Protocol

import numpy as np

from tapewire import log
from tapewire.protocol._native import (
    BOOK_EVENT,
    BOOK_TICKER,
    LOSS_VERSION,
    MAX_SCALE,
    OLDEST_VERSION,
    QUOTE,
    TRADE,
    TRADE_TICK,
    VENUE_RAW,
    VERSION,
    BookEvent,
    L3Order,
    LossRange,
    headers_of,
    heartbeat,
    l2_diff,
    l2_snapshot,
    l3_event,
    l3_header,
    levels_of,
    loss,
    reset,
    scaled,
    scaled_levels,
    scaled_many,
    struct_dtype,
    symbol_hash,
    unscaled,
)
from tapewire.protocol.fields import f64, i64, u8, u32, u64
from tapewire.protocol.messages import Message, message

__all__ = [
    "BOOK_EVENT",
    "BOOK_TICKER",
    "HEADER_DTYPE",
    "L3_DTYPE",
    "L3_RECORD_DTYPE",
    "LEVEL_DTYPE",
    "LEVEL_ROW_DTYPE",
    "LOSS_RECORD_DTYPE",
    "LOSS_VERSION",
    "MAX_SCALE",
    "MESSAGES",
    "NAMES",
    "OLDEST_VERSION",
    "QUOTE",
    "TRADE",
    "TRADE_TICK",
    "VENUE_RAW",
    "VERSION",
    "BookEvent",
    "BookMode",
    "BookTicker",
    "EventFlags",
    "EventType",
    "L3Flags",
    "L3Order",
    "L3Type",
    "LossCause",
    "LossRange",
    "Maker",
    "Quote",
    "Side",
    "Trade",
    "TradeTick",
    "VenueRaw",
    "decode",
    "headers_of",
    "heartbeat",
    "l2_diff",
    "l2_snapshot",
    "l3_event",
    "l3_rows",
    "levels_of",
    "loss",
    "reset",
    "scaled",
    "scaled_levels",
    "scaled_many",
    "symbol_hash",
    "unscaled",
]

# From the native structs, so that there is one definition.
HEADER_DTYPE: np.dtype[Any] = struct_dtype("BookEventHeader")
LEVEL_DTYPE: np.dtype[Any] = struct_dtype("Level")
LEVEL_ROW_DTYPE: np.dtype[Any] = struct_dtype("LevelRow")
L3_DTYPE: np.dtype[Any] = struct_dtype("L3Event")
L3_RECORD_DTYPE: np.dtype[Any] = np.dtype([("head", HEADER_DTYPE), ("order", L3_DTYPE)])
# As large as the one above: losses can be rows of the same array.
LOSS_RECORD_DTYPE: np.dtype[Any] = np.dtype(
    [("head", HEADER_DTYPE), ("loss", struct_dtype("Loss"))]
)


class EventType(IntEnum):
    """Values of `event_type` of a book event."""

    SNAPSHOT = 1
    DIFF = 2
    RESET = 3
    HEARTBEAT = 4
    LOSS = 5


class BookMode(IntEnum):
    """Values of `book_mode`: price levels, or single orders."""

    L2 = 0
    L3 = 1


class EventFlags(IntFlag):
    """Bits of `flags` of a book event."""

    ABSOLUTE = 1
    DELTA = 2
    HAS_SCALE = 4


class L3Type(IntEnum):
    """Values of `event_type` of an order event."""

    ADD = 1
    CANCEL = 2
    MODIFY = 3
    TRADE = 4
    RESET = 5
    HEARTBEAT = 6


class L3Flags(IntFlag):
    """Bits of `flags` of an order event."""

    PRICE_IS_MARKET = 1
    OPENING_AUCTION = 2
    CLOSING_AUCTION = 4
    RESTRICTED_CANCEL = 8
    HAS_BID = 16
    HAS_ASK = 32


class LossCause(IntEnum):
    """Why a book is untrusted from a loss event on."""

    REJECTED = 1
    MISSING = 2
    OUT_OF_ORDER = 3
    DAMAGED = 4
    NO_SNAPSHOT = 5
    UNKNOWN_ORDER = 6
    VENUE = 7
    PARTIAL = 8


class Side(IntEnum):
    """Values of `side` of an order event; for a trade, the side of the aggressor."""

    UNKNOWN = 0
    BUY = 1
    SELL = 2


class Maker(IntEnum):
    """Values of `is_buyer_maker` of a trade: whose order rested in the book."""

    SELLER = 0
    BUYER = 1
    UNKNOWN = 2


@message(BOOK_TICKER)
class BookTicker(Message):
    """The best bid and ask as floats, for exchange with chronicle-rs; `Quote` is exact."""

    timestamp_ns: u64
    bid_price: f64
    bid_qty: f64
    ask_price: f64
    ask_qty: f64
    symbol_hash: u64


@message(TRADE)
class Trade(Message):
    """A trade with floats, for exchange with chronicle-rs; `TradeTick` is exact."""

    timestamp_ns: u64
    price: f64
    qty: f64
    trade_id: u64
    buyer_order_id: u64
    seller_order_id: u64
    is_buyer_maker: u8
    symbol_hash: u64


@message(QUOTE)
class Quote(Message):
    """The best bid and ask of one market.

    `timestamp_ns` is the venue's time, or the ingest time if the venue sends none; the record
    always has the ingest time.
    """

    timestamp_ns: u64
    bid_price: i64
    bid_size: i64
    ask_price: i64
    ask_size: i64
    symbol_hash: u64
    market_id: u32
    price_scale: u8
    size_scale: u8


@message(TRADE_TICK)
class TradeTick(Message):
    """One trade.

    `timestamp_ns` is the venue's time, or the ingest time if the venue sends none; the record
    always has the ingest time. `is_buyer_maker` is a `Maker`.
    """

    timestamp_ns: u64
    price: i64
    size: i64
    trade_id: u64
    buyer_order_id: u64
    seller_order_id: u64
    symbol_hash: u64
    market_id: u32
    price_scale: u8
    size_scale: u8
    is_buyer_maker: u8 = Maker.UNKNOWN


class VenueRaw(bytes):
    """A message of a venue, unchanged, stored beside the messages decoded from it."""

    type_id: ClassVar[int] = VENUE_RAW

    def __tapewire_append__(
        self, writer: Any, timestamp_ns: Any = None, flags: int = 0, seq: int | None = None
    ) -> int:
        appended_seq: int = writer.append(VENUE_RAW, self, timestamp_ns, flags, seq)
        return appended_seq

    def __repr__(self) -> str:
        return f"VenueRaw({bytes(self)!r})"


class _Instrument(Protocol):
    @property
    def venue_id(self) -> int: ...
    @property
    def market_id(self) -> int: ...
    @property
    def price_scale(self) -> int: ...
    @property
    def size_scale(self) -> int: ...


def l3_rows(instrument: _Instrument, n: int) -> np.ndarray[Any, Any]:
    """Make an array of `n` order events, of `L3_RECORD_DTYPE`, to fill and append as a batch.

    ``rows["head"]`` has the values of the instrument; set ``ingest_ts_ns`` (as passed to
    `append_batch`), ``exchange_ts_ns`` and ``native_seq``. ``rows["order"]`` has the scales.

    Example:
        >>> import numpy as np
        >>> import tapewire as tw
        >>> from tapewire.protocol import market
        >>> from tapewire.protocol.instruments import Instrument
        >>> rows = market.l3_rows(Instrument.of("szse", "000001", 2, 0, book_mode="l3"), 2)
        >>> times = np.array([1_000, 1_001])
        >>> rows["head"]["ingest_ts_ns"] = times
        >>> rows["order"]["event_type"] = market.L3Type.ADD
        >>> rows["order"]["side"] = market.Side.BUY
        >>> rows["order"]["order_id"] = [1, 2]
        >>> rows["order"]["price"], rows["order"]["qty"] = 1_050, [300, 200]
        >>> with tw.open_publisher(tmp / "orders", segment_bytes=1 << 20) as writer:
        ...     _ = writer.append_batch(market.BOOK_EVENT, rows, timestamps_ns=times)
        >>> with tw.open_log(tmp / "orders") as orders:
        ...     orders.next().decode().order.qty
        300
    """
    rows = np.zeros(n, L3_RECORD_DTYPE)
    rows["head"] = np.frombuffer(l3_header(instrument), HEADER_DTYPE)[0]
    rows["order"]["price_scale"] = instrument.price_scale
    rows["order"]["size_scale"] = instrument.size_scale
    return rows


MESSAGES: dict[int, type[Message]] = {
    cls.type_id: cls for cls in (BookTicker, Trade, Quote, TradeTick)
}
NAMES: dict[int, str] = {
    BOOK_EVENT: "BookEvent",
    VENUE_RAW: "VenueRaw",
    **{type_id: cls.__name__ for type_id, cls in MESSAGES.items()},
}


def decode(record: log.Record) -> BookEvent | Message | VenueRaw:
    """Decode a record of one of these types, as `record.decode()` does."""
    if record.type_id == BOOK_EVENT:
        return BookEvent.decode(record)
    if record.type_id == VENUE_RAW:
        return VenueRaw(memoryview(record))
    return MESSAGES[record.type_id].decode(record)


log.register_decoder(BOOK_EVENT, BookEvent.decode)
log.register_decoder(VENUE_RAW, decode)
