"""What goes into the exchange and what comes out of it: plain values, in ticks and lots."""

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

MARKET = ""  # the owner of everything that is no strategy's: the simulated crowd


def other(side: Side) -> Side:
    """The side that this one trades with."""
    return Side.SELL if side is Side.BUY else Side.BUY


# ---- what goes in -------------------------------------------------------------------------------


class New(NamedTuple):
    """An order; `order_id` is its owner's. `immediate`: what does not trade now is cancelled."""

    owner: str
    order_id: int
    side: Side
    price: int
    qty: int
    immediate: bool = False


class Cancel(NamedTuple):
    """Take an order out of the book."""

    owner: str
    order_id: int


class SetLevel(NamedTuple):
    """The crowd shows `qty` at this price, and no more: how a recorded book is replayed."""

    side: Side
    price: int
    qty: int


class Close(NamedTuple):
    """The session is over: strategies' orders are cancelled, new ones rejected."""


Input = New | Cancel | SetLevel | Close

# ---- what comes out -----------------------------------------------------------------------------


class Ack(NamedTuple):
    """To the owner of an order."""

    owner: str
    order_id: int
    status: AckStatus
    leaves: int = 0  # quantity that is still in the book
    exchange_id: int = 0
    reason: RejectReason = RejectReason.NONE


class FillEvent(NamedTuple):
    """To a strategy, one for its side of a trade; `fill_id` counts 1, 2, 3 over all strategies."""

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
    """To everybody. `aggressor`: the side that came last; the orders by the exchange's ids."""

    trade_id: int
    price: int
    qty: int
    aggressor: Side
    buyer_id: int
    seller_id: int


class Level(NamedTuple):
    """To everybody: so much is at this price now; 0, nothing is."""

    side: Side
    price: int
    qty: int


Event = Ack | FillEvent | TradeEvent | Level
