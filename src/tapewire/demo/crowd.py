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
        self._resting: list[int] = []

    def adopt(self, engine: Engine) -> None:
        """Go on with the book that is there, as after a kill."""
        bid, ask = engine.best(Side.BUY), engine.best(Side.SELL)
        if bid is not None and ask is not None:
            self._value = (bid + ask) / 2
        self._resting = [order_id for order_id, *_ in engine.orders_of(MARKET)]

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
        # Takers come when the book's best is better than what the crowd believes.
        if best is not None and sign * (self._value - best) > choose.uniform(-1, 2):
            return New(MARKET, number, side, best + sign, qty, immediate=True)
        away = 1 + int(min(choose.expovariate(0.25), _DEPTH))
        self._resting.append(number)
        return New(MARKET, number, side, max(1, round(self._value) - sign * away), qty)

    def _pick(self, engine: Engine) -> int:
        """Any order of the crowd's that is still in the book; those that traded are forgotten."""
        while True:
            at = self._choose.randrange(len(self._resting))
            self._resting[at], self._resting[-1] = self._resting[-1], self._resting[at]
            order_id = self._resting.pop()
            if (MARKET, order_id) in engine:
                return order_id
