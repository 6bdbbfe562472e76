"""The inputs and output events of the exchange: plain values, in ticks and lots."""

from __future__ import annotations

from typing import NamedTuple

from tapewire.protocol.orders import AckStatus, RejectReason, Side

__all__ = [
    "MARKET",
    "Ack",
    "AckStatus",
    "Cancel",
    "Close",
    "Event",
    "FillEvent",
    "Input",
    "Level",
    "New",
    "RejectReason",
    "SetLevel",
    "Side",
    "TradeEvent",
    "other",
]

MARKET = ""  # the owner of all orders that are not a strategy's: those of the participants


def other(side: Side) -> Side:
    """The side that this one trades with."""
    return Side.SELL if side is Side.BUY else Side.BUY


# ---- inputs -------------------------------------------------------------------------------------


class New(NamedTuple):
    """An order; `order_id` is its owner's. `immediate`: cancel what does not trade at once."""

    owner: str
    order_id: int
    side: Side
    price: int
    qty: int
    immediate: bool = False


class Cancel(NamedTuple):
    """Remove an order from the book."""

    owner: str
    order_id: int


class SetLevel(NamedTuple):
    """Set the participants' quantity at this price: how a recorded book is replayed."""

    side: Side
    price: int
    qty: int


class Close(NamedTuple):
    """The session is over: strategies' orders are cancelled, new ones rejected."""


Input = New | Cancel | SetLevel | Close

# ---- events -------------------------------------------------------------------------------------


class Ack(NamedTuple):
    """An acknowledgement, sent to the owner of an order."""

    owner: str
    order_id: int
    status: AckStatus
    leaves: int = 0  # remaining quantity in the book
    exchange_id: int = 0
    reason: RejectReason = RejectReason.NONE


class FillEvent(NamedTuple):
    """A strategy's side of a trade; `fill_id` counts 1, 2, 3 over all strategies."""

    fill_id: int
    owner: str
    order_id: int
    side: Side
    price: int
    qty: int
    leaves: int
    maker: bool
    exchange_id: int
    trade_id: int


class TradeEvent(NamedTuple):
    """A trade, published. `aggressor`: the side that came last. Orders by the exchange's ids."""

    trade_id: int
    price: int
    qty: int
    aggressor: Side
    buyer_id: int
    seller_id: int


class Level(NamedTuple):
    """The new quantity at a price, published; 0 removes the level."""

    side: Side
    price: int
    qty: int


Event = Ack | FillEvent | TradeEvent | Level
