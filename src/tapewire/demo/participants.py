"""Simulated market participants, whose orders make the market move.

Their orders are inputs like any other: they are logged in the exchange's WAL, so they may be
random. After a kill they continue with the orders that are in the book.
"""

from __future__ import annotations

import random

from tapewire.demo.events import MARKET, Cancel, Input, New, Side, other
from tapewire.demo.matching import Engine

__all__ = ["FIRST_MID", "Participants"]

FIRST_MID = 100_000  # ticks
_DEPTH = 20  # ticks around the middle in which orders are placed
_ORDERS = 240  # approximate number of orders in the book


class Participants:
    """Generates orders around a drifting value: makers add, takers trade, others cancel.

    Example:
        >>> engine, participants = Engine(), Participants(seed=7)
        >>> for number in range(1_000):
        ...     _ = engine.apply(participants.next(engine, number))
        >>> engine.best(Side.BUY) < engine.best(Side.SELL)
        True
    """

    def __init__(self, seed: int, value: float = FIRST_MID) -> None:
        self._choose = random.Random(seed)
        self._value = value  # of the instrument: a random walk, which the book follows
        self._trend = 0.0
        self._resting: list[tuple[int, int]] = []  # (order_id, price)

    def adopt(self, engine: Engine) -> None:
        """Continue with the orders of an existing book, as after a kill."""
        bid, ask = engine.best(Side.BUY), engine.best(Side.SELL)
        if bid is not None and ask is not None:
            self._value = (bid + ask) / 2
        self._resting = [(order_id, price) for order_id, _, price, _ in engine.orders_of(MARKET)]

    def next(self, engine: Engine, number: int) -> Input:
        """The next input; `number` is also the id of its order."""
        choose = self._choose
        self._trend = 0.995 * self._trend + choose.gauss(0, 0.004)
        self._value += self._trend
        if len(engine) > _ORDERS and choose.random() < 0.8:
            return Cancel(MARKET, self._pick(engine))
        side = choose.choice((Side.BUY, Side.SELL))
        sign = 1 if side is Side.BUY else -1
        qty = choose.choice((1, 2, 3, 5, 8, 13))
        best = engine.best(other(side))
        # Takers trade if the best price is better than the value. Only half of them do, so that
        # the others add orders away from the market.
        cheap = best is not None and sign * (self._value - best) > choose.uniform(-1, 2)
        if best is not None and cheap and choose.random() < 0.5:
            return New(MARKET, number, side, best + sign, qty, immediate=True)
        away = 1 + int(min(choose.expovariate(0.25), _DEPTH))
        price = max(1, round(self._value) - sign * away)
        self._resting.append((number, price))
        return New(MARKET, number, side, price, qty)

    def _pick(self, engine: Engine) -> int:
        """One of the participants' orders in the book: of four, the furthest from the value.

        So orders that the market has left are cancelled first. Orders that have traded are dropped.
        """
        resting = self._resting
        while True:
            few = (self._choose.randrange(len(resting)) for _ in range(4))
            at = max(few, key=lambda i: abs(resting[i][1] - self._value))
            resting[at], resting[-1] = resting[-1], resting[at]
            order_id, _ = resting.pop()
            if (MARKET, order_id) in engine:
                return order_id
