"""What goes into the exchange and what comes out of it: plain values, in ticks and lots."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

__all__ = [
    "MARKET",
    "Ack",
    "AckStatus",
    "Cancel",
    "Close",
    "Event",
    "Fill",
    "Input",
    "Level",
    "New",
    "SetLevel",
    "Side",
    "Trade",
]

MARKET = ""  # the owner of everything that is no strategy's: the simulated crowd


class Side(IntEnum):
    """Which side of the book."""

    BUY = 1
    SELL = 2

    @property
    def other(self) -> Side:
        """The side this one trades with."""
        return Side.SELL if self is Side.BUY else Side.BUY


class AckStatus(IntEnum):
    """What became of an order or of a cancel, apart from fills."""

    ACCEPTED = 1
    CANCELLED = 2  # by its owner, at the close, or the rest of an immediate order
    REJECTED = 3
    CANCEL_REJECTED = 4  # there is no such order (any more)


# ---- what goes in ------------------------------------------------------------------------------------


class New(NamedTuple):
    """An order. `immediate`: what does not trade at once is cancelled."""

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

# ---- what comes out ----------------------------------------------------------------------------------


class Ack(NamedTuple):
    """To the owner of an order."""

    owner: str
    order_id: int
    status: AckStatus
    leaves: int  # quantity that is still in the book


class Fill(NamedTuple):
    """To a strategy, one for its side of a trade; `fill_id` counts 1, 2, 3 over all strategies."""

    fill_id: int
    owner: str
    order_id: int
    side: Side
    price: int
    qty: int
    leaves: int
    maker: bool


class Trade(NamedTuple):
    """To everybody. `aggressor`: the side that came last."""

    trade_id: int
    price: int
    qty: int
    aggressor: Side


class Level(NamedTuple):
    """To everybody: so much is at this price now; 0, nothing is."""

    side: Side
    price: int
    qty: int


Event = Ack | Fill | Trade | Level
