"""Orders, acknowledgements and fills, as strategies, router and exchange exchange them.

A strategy names its orders by `client_order_id`, which it never uses twice. The router passes a
record of a strategy's queue on with that record's number in `source_seq`, which rises for each
strategy: whoever gets a message twice, after somebody's crash, can tell. `fill_id` is the
exchange's, and unique there. Prices and quantities are integers: ``value / 10 ** scale``. Times are
nanoseconds since 1970; 0 where nobody set one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from tapewire.protocol.fields import char, i64, u8, u64
from tapewire.protocol.messages import Message, message

__all__ = [
    "AckStatus",
    "CancelOrder",
    "Fill",
    "Liquidity",
    "NewOrder",
    "OrderAck",
    "OrderType",
    "RejectReason",
    "Side",
    "TimeInForce",
]


class Side(IntEnum):
    """`side` of an order or a fill."""

    BUY = 1
    SELL = 2


class OrderType(IntEnum):
    """`order_type`: with a limit price, or at any price."""

    LIMIT = 1
    MARKET = 2


class TimeInForce(IntEnum):
    """`time_in_force`: what becomes of the quantity that does not trade at once."""

    GOOD_TILL_CANCEL = 1
    IMMEDIATE_OR_CANCEL = 2


class AckStatus(IntEnum):
    """`status` of an acknowledgement."""

    ACCEPTED = 1
    REJECTED = 2
    CANCELLED = 3
    CANCEL_REJECTED = 4


class RejectReason(IntEnum):
    """`reason` of an acknowledgement that refuses."""

    NONE = 0
    UNKNOWN_SYMBOL = 1
    UNKNOWN_ORDER = 2
    DUPLICATE_ORDER = 3
    BAD_PRICE = 4
    BAD_QUANTITY = 5
    RISK_LIMIT = 6
    BAD_SCALE = 7
    SESSION_CLOSED = 8


class Liquidity(IntEnum):
    """`liquidity` of a fill: whether the order was in the book or came to it."""

    MAKER = 1
    TAKER = 2


@message(0x1101)
class NewOrder(Message):
    """A strategy wants to trade.

    `trigger_seq` and `trigger_ns` name the market data that it answers; `sent_ns` is set by the
    strategy, `routed_ns` by the router.
    """

    strategy: Annotated[str, char[16]]
    symbol: Annotated[str, char[16]]
    client_order_id: u64
    price: i64
    qty: i64
    side: u8
    order_type: u8 = OrderType.LIMIT
    time_in_force: u8 = TimeInForce.GOOD_TILL_CANCEL
    price_scale: u8 = 0
    qty_scale: u8 = 0
    source_seq: u64 = 0
    trigger_seq: u64 = 0
    trigger_ns: i64 = 0
    sent_ns: i64 = 0
    routed_ns: i64 = 0


@message(0x1102)
class CancelOrder(Message):
    """A strategy takes back what is left of its order `client_order_id`."""

    strategy: Annotated[str, char[16]]
    symbol: Annotated[str, char[16]]
    client_order_id: u64
    source_seq: u64 = 0
    sent_ns: i64 = 0
    routed_ns: i64 = 0


@message(0x1103)
class OrderAck(Message):
    """The exchange has taken, refused or cancelled an order; `leaves_qty` is what still rests.

    `source_seq`, `sent_ns` and `routed_ns` are those of the request that it answers.
    """

    strategy: Annotated[str, char[16]]
    symbol: Annotated[str, char[16]]
    client_order_id: u64
    order_id: u64
    status: u8
    reason: u8 = RejectReason.NONE
    side: u8 = 0
    price_scale: u8 = 0
    qty_scale: u8 = 0
    price: i64 = 0
    leaves_qty: i64 = 0
    source_seq: u64 = 0
    sent_ns: i64 = 0
    routed_ns: i64 = 0
    exchange_ns: i64 = 0


@message(0x1104)
class Fill(Message):
    """An order has traded `qty` at `price`; `leaves_qty` of it still rests.

    Each trade is two fills, one for each side, with a `fill_id` each and one `trade_id`.
    `source_seq`, `sent_ns` and `routed_ns` are those of the order.
    """

    fill_id: u64
    trade_id: u64
    order_id: u64
    strategy: Annotated[str, char[16]]
    symbol: Annotated[str, char[16]]
    client_order_id: u64
    price: i64
    qty: i64
    side: u8
    liquidity: u8
    price_scale: u8 = 0
    qty_scale: u8 = 0
    leaves_qty: i64 = 0
    source_seq: u64 = 0
    sent_ns: i64 = 0
    routed_ns: i64 = 0
    exchange_ns: i64 = 0
