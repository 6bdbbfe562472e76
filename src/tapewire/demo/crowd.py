"""The crowd: simulated participants whose orders make the market move.

Its orders are inputs like any other: logged in the exchange's WAL, so they need not be
repeatable. After a kill the crowd goes on with what it finds in the book.
"""

from __future__ import annotations

import random

from tapewire.demo.events import MARKET, Cancel, Input, New, Side, other
from tapewire.demo.matching import Engine

__all__ = ["FIRST_MID", "Crowd"]

FIRST_MID = 100_000  # ticks
_DEPTH = 20  # ticks around the middle in which orders are placed
_ORDERS = 240  # resting at a time, about


class Crowd:
    """Orders around a drifting value: makers thicken the book, takers move it, the rest cancel.

    Example:
        >>> engine, crowd = Engine(), Crowd(seed=7)
        >>> for number in range(1_000):
        ...     _ = engine.apply(crowd.next(engine, number))
        >>> engine.best(Side.BUY) < engine.best(Side.SELL)
        True
    """

    def __init__(self, seed: int, value: float = FIRST_MID) -> None:
        self._choose = random.Random(seed)
        self._value = value  # what the instrument is worth: walks, and the book follows
        self._trend = 0.0
        self._resting: list[tuple[int, int]] = []  # (order_id, price)

    def adopt(self, engine: Engine) -> None:
        """Go on with the book that is there, as after a kill."""
        bid, ask = engine.best(Side.BUY), engine.best(Side.SELL)
        if bid is not None and ask is not None:
            self._value = (bid + ask) / 2
        self._resting = [(order_id, price) for order_id, _, price, _ in engine.orders_of(MARKET)]

    def next(self, engine: Engine, number: int) -> Input:
        """The crowd's next input; `number` is also its order's id."""
        choose = self._choose
        self._trend = 0.995 * self._trend + choose.gauss(0, 0.004)
        self._value += self._trend
        if len(engine) > _ORDERS and choose.random() < 0.8:
            return Cancel(MARKET, self._pick(engine))
        side = choose.choice((Side.BUY, Side.SELL))
        sign = 1 if side is Side.BUY else -1
        qty = choose.choice((1, 2, 3, 5, 8, 13))
        best = engine.best(other(side))
        # Takers come when the book's best is better than what the crowd believes; not all of them
        # hurry, so that the other half thickens the book behind the market.
        cheap = best is not None and sign * (self._value - best) > choose.uniform(-1, 2)
        if best is not None and cheap and choose.random() < 0.5:
            return New(MARKET, number, side, best + sign, qty, immediate=True)
        away = 1 + int(min(choose.expovariate(0.25), _DEPTH))
        price = max(1, round(self._value) - sign * away)
        self._resting.append((number, price))
        return New(MARKET, number, side, price, qty)

    def _pick(self, engine: Engine) -> int:
        """An order of the crowd's that is in the book: of a few, the one furthest from the value.

        Who was left behind by the market goes first; orders that have traded are forgotten.
        """
        resting = self._resting
        while True:
            few = (self._choose.randrange(len(resting)) for _ in range(4))
            at = max(few, key=lambda i: abs(resting[i][1] - self._value))
            resting[at], resting[-1] = resting[-1], resting[at]
            order_id, _ = resting.pop()
            if (MARKET, order_id) in engine:
                return order_id
