"""Orders, acknowledgements and fills, exchanged between strategies, router and exchange.

A strategy identifies its orders by `client_order_id`, which it never reuses. The router forwards a
record of a strategy's queue with its sequence number in `source_seq`, which increases for each
strategy: a receiver recognises a message that is repeated after a crash. `fill_id` is assigned by
the exchange and unique there. Prices and quantities are integers: ``value / 10 ** scale``. Times
are nanoseconds since 1970; 0 if not set.
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
    """Values of `side` of an order or a fill."""

    BUY = 1
    SELL = 2


class OrderType(IntEnum):
    """Values of `order_type`: with a limit price, or at any price."""

    LIMIT = 1
    MARKET = 2


class TimeInForce(IntEnum):
    """Values of `time_in_force`: what happens to a quantity that does not trade immediately."""

    GOOD_TILL_CANCEL = 1
    IMMEDIATE_OR_CANCEL = 2


class AckStatus(IntEnum):
    """Values of `status` of an acknowledgement."""

    ACCEPTED = 1
    REJECTED = 2
    CANCELLED = 3
    CANCEL_REJECTED = 4


class RejectReason(IntEnum):
    """Values of `reason` of a rejection."""

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
    """Values of `liquidity` of a fill: the order rested in the book, or arrived."""

    MAKER = 1
    TAKER = 2


@message(0x1101)
class NewOrder(Message):
    """A new order of a strategy.

    `trigger_seq` and `trigger_ns` identify the market data that triggered it; `sent_ns` is set by
    the strategy, `routed_ns` by the router.
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
    """The exchange accepted, rejected or cancelled an order; `leaves_qty` is the open quantity.

    `source_seq`, `sent_ns` and `routed_ns` are copied from the request.
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
    """An order has traded `qty` at `price`; `leaves_qty` is the open quantity.

    Each trade has two fills, one for each side, each with its `fill_id` and both with the same
    `trade_id`. `source_seq`, `sent_ns` and `routed_ns` are copied from the order.
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
