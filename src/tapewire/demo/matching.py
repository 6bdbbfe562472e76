"""The rules of the exchange: a book with price-time priority.

It uses no clock, no file and no random number: the same inputs give the same events, also in the
process that is started after a kill. Therefore the exchange logs only its inputs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapewire.demo.events import (
    MARKET,
    Ack,
    AckStatus,
    Cancel,
    Close,
    Event,
    FillEvent,
    Input,
    Level,
    New,
    RejectReason,
    SetLevel,
    Side,
    TradeEvent,
    other,
)

__all__ = ["ORDER_DTYPE", "Engine"]


@dataclass(slots=True)
class _Order:
    owner: str
    order_id: int
    side: Side
    price: int
    qty: int
    exchange_id: int


class _Queue:
    """The orders at one price, oldest first (a dict keeps the order of insertion)."""

    __slots__ = ("orders", "qty")

    def __init__(self) -> None:
        self.orders: dict[tuple[str, int], _Order] = {}
        self.qty = 0


class _Half:
    """One side of the book. `keys` is sorted with the best price last, which is cheap to remove."""

    __slots__ = ("keys", "levels", "sign")

    def __init__(self, side: Side) -> None:
        self.sign = 1 if side is Side.BUY else -1
        self.keys: list[int] = []
        self.levels: dict[int, _Queue] = {}

    @property
    def best(self) -> int | None:
        return self.sign * self.keys[-1] if self.keys else None

    def add(self, order: _Order) -> int:
        """Add an order after those at its price; return the quantity at that price."""
        level = self.levels.get(order.price)
        if level is None:
            level = self.levels[order.price] = _Queue()
            insort(self.keys, self.sign * order.price)
        level.orders[order.owner, order.order_id] = order
        level.qty += order.qty
        return level.qty

    def reduce(self, order: _Order, qty: int) -> int:
        """Reduce an order by `qty`, remove it if empty; return the quantity left at its price."""
        level = self.levels[order.price]
        order.qty -= qty
        level.qty -= qty
        if order.qty == 0:
            del level.orders[order.owner, order.order_id]
            if not level.orders:
                del self.levels[order.price]
                del self.keys[bisect_left(self.keys, self.sign * order.price)]
        return level.qty

    def __iter__(self) -> Iterator[tuple[int, _Queue]]:
        """Prices and their queues, best first."""
        return ((self.sign * key, self.levels[self.sign * key]) for key in reversed(self.keys))


ORDER_DTYPE = np.dtype(
    [
        ("owner", "S16"),
        ("order_id", "<u8"),
        ("side", "<i8"),
        ("price", "<i8"),
        ("qty", "<i8"),
        ("exchange_id", "<i8"),
    ]
)


class Engine:
    """One instrument's book.

    Example:
        >>> engine = Engine()
        >>> engine.apply(New("a", order_id=1, side=Side.SELL, price=101, qty=5))[0].status.name
        'ACCEPTED'
        >>> ack, taken, made, trade, level = engine.apply(New("b", 1, Side.BUY, 102, 3))
        >>> made.owner, made.price, made.qty, made.leaves  # at the resting order's price
        ('a', 101, 3, 2)
    """

    def __init__(self) -> None:
        self._halves = {side: _Half(side) for side in Side}
        self._orders: dict[tuple[str, int], _Order] = {}
        self.next_fill_id = 1
        self.next_trade_id = 1
        self.next_exchange_id = 1
        self.closed = False

    # ---- queries --------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of orders in the book."""
        return len(self._orders)

    def __contains__(self, order: tuple[str, int]) -> bool:
        """Whether ``(owner, order_id)`` is in the book."""
        return order in self._orders

    def best(self, side: Side) -> int | None:
        """The best price of a side, or None."""
        return self._halves[side].best

    def levels(self, depth: int | None = None) -> list[tuple[int, int, int]]:
        """(side, price, qty) of every level, best of each side first."""
        return [
            (int(side), price, level.qty)
            for side, half in self._halves.items()
            for _, (price, level) in zip(range(depth or len(half.keys)), half, strict=False)
        ]

    def orders_of(self, owner: str) -> list[tuple[int, Side, int, int]]:
        """(order_id, side, price, qty) of an owner's orders, in the order of the book."""
        return [(o.order_id, o.side, o.price, o.qty) for o in self._book() if o.owner == owner]

    # ---- inputs ---------------------------------------------------------------------------------

    def apply(self, what: Input) -> list[Event]:
        """Apply one input; return its events in order: acks and fills, trades, changed levels."""
        match what:
            case New():
                return self._new(what)
            case Cancel():
                return self._cancel(what)
            case SetLevel():
                return self._set_level(what)
            case Close():
                return self._close()

    def _new(self, new: New) -> list[Event]:
        key = (new.owner, new.order_id)
        reason = self._refusal(new)
        if reason is not None:
            return self._ack(Ack(*key, AckStatus.REJECTED, reason=reason))
        order = _Order(*key, new.side, new.price, new.qty, self.next_exchange_id)
        self.next_exchange_id += 1
        events = self._ack(Ack(*key, AckStatus.ACCEPTED, new.qty, order.exchange_id))
        trades: list[Event] = []
        levels: dict[tuple[Side, int], int] = {}
        self._match(order, events, trades, levels)
        if order.qty and not new.immediate:
            self._orders[key] = order
            levels[new.side, new.price] = self._halves[new.side].add(order)
        elif order.qty:
            events += self._ack(Ack(*key, AckStatus.CANCELLED, 0, order.exchange_id))
        changed = (Level(side, price, qty) for (side, price), qty in levels.items())
        return [*events, *trades, *changed]

    def _refusal(self, new: New) -> RejectReason | None:
        if self.closed:
            return RejectReason.SESSION_CLOSED
        if new.price <= 0:
            return RejectReason.BAD_PRICE
        if new.qty <= 0:
            return RejectReason.BAD_QUANTITY
        if (new.owner, new.order_id) in self._orders:
            return RejectReason.DUPLICATE_ORDER
        return None

    def _match(
        self,
        taker: _Order,
        events: list[Event],
        trades: list[Event],
        levels: dict[tuple[Side, int], int],
    ) -> None:
        """Trade with the other side, best price first, oldest order first."""
        half = self._halves[other(taker.side)]
        limit = half.sign * taker.price
        while taker.qty and half.keys and half.keys[-1] >= limit:
            price = half.sign * half.keys[-1]
            maker = next(iter(half.levels[price].orders.values()))
            qty = min(taker.qty, maker.qty)
            taker.qty -= qty
            levels[maker.side, price] = half.reduce(maker, qty)
            if maker.qty == 0:
                del self._orders[maker.owner, maker.order_id]
            for order in (taker, maker):
                self._fill(events, order, price, qty, maker=order is maker)
            ids = (taker.exchange_id, maker.exchange_id)
            buyer, seller = ids if taker.side is Side.BUY else reversed(ids)
            trades.append(TradeEvent(self.next_trade_id, price, qty, taker.side, buyer, seller))
            self.next_trade_id += 1

    @staticmethod
    def _ack(ack: Ack) -> list[Event]:
        """The acknowledgement as an event; none for orders of the participants."""
        return [] if ack.owner == MARKET else [ack]

    def _fill(
        self, events: list[Event], order: _Order, price: int, qty: int, *, maker: bool
    ) -> None:
        if order.owner == MARKET:
            return
        events.append(
            FillEvent(
                self.next_fill_id,
                order.owner,
                order.order_id,
                order.side,
                price,
                qty,
                order.qty,
                maker,
                order.exchange_id,
                self.next_trade_id,
            )
        )
        self.next_fill_id += 1

    def _remove(self, order: _Order) -> Level:
        del self._orders[order.owner, order.order_id]
        left = self._halves[order.side].reduce(order, order.qty)
        return Level(order.side, order.price, left)

    def _cancel(self, cancel: Cancel) -> list[Event]:
        order = self._orders.get((cancel.owner, cancel.order_id))
        if order is None:
            unknown = RejectReason.UNKNOWN_ORDER
            return self._ack(Ack(*cancel, AckStatus.CANCEL_REJECTED, reason=unknown))
        level = self._remove(order)
        return [*self._ack(Ack(*cancel, AckStatus.CANCELLED, 0, order.exchange_id)), level]

    def _set_level(self, what: SetLevel) -> list[Event]:
        if self.closed:
            return []
        # One order of the participants represents the level; its id encodes side and price.
        order_id = what.price * 2 + (what.side is Side.SELL)
        events: list[Event] = []
        order = self._orders.get((MARKET, order_id))
        if order is not None:
            events.append(self._remove(order))
        if what.qty > 0:
            events += self._new(New(MARKET, order_id, what.side, what.price, what.qty))
        return events

    def _close(self) -> list[Event]:
        events: list[Event] = []
        levels: list[Event] = []
        for order in [o for o in self._book() if o.owner != MARKET]:
            levels.append(self._remove(order))
            key = (order.owner, order.order_id)
            events += self._ack(Ack(*key, AckStatus.CANCELLED, 0, order.exchange_id))
        self.closed = True
        return [*events, *levels]

    # ---- the state, for a checkpoint ------------------------------------------------------------

    def _book(self) -> Iterator[_Order]:
        """Orders by side, price and time: an order that a checkpoint preserves, unlike a dict's."""
        for half in self._halves.values():
            for _, level in half:
                yield from level.orders.values()

    def counters(self) -> tuple[int, int, int, bool]:
        """The counters that `from_state` needs, besides the orders."""
        return self.next_fill_id, self.next_trade_id, self.next_exchange_id, self.closed

    def state(self) -> np.ndarray[Any, Any]:
        """Every order, by priority within its level; with the counters, the complete state."""
        rows = [(o.owner, o.order_id, o.side, o.price, o.qty, o.exchange_id) for o in self._book()]
        return np.array(rows, ORDER_DTYPE)

    @classmethod
    def from_state(
        cls,
        rows: np.ndarray[Any, Any],
        counters: tuple[int, int, int, bool],
    ) -> Engine:
        """Restore an engine from its `state` and `counters`."""
        engine = cls()
        engine.next_fill_id, engine.next_trade_id, engine.next_exchange_id, engine.closed = counters
        for owner, order_id, side, price, qty, exchange_id in rows.tolist():
            order = _Order(owner.decode(), order_id, Side(side), price, qty, exchange_id)
            engine._orders[order.owner, order_id] = order
            engine._halves[order.side].add(order)
        return engine
