"""Seeded market events, the same on every machine: level changes (L2) and single orders (L3).

Shaped after captures of a perpetual future (L2) and of a stock exchange's order feed (L3): how many
levels a diff has, how far from the touch they are, how long orders live. The book never crosses,
not even within a diff: libraries define a crossed book differently.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

Events = np.ndarray[Any, np.dtype[Any]]

BUY, SELL = 1, 2
ADD, CANCEL, MODIFY, TRADE = 1, 2, 3, 4
PRICE_SCALE, SIZE_SCALE = 1, 3  # a tick is 0.1, the least size 0.001
MIDDLE = 600_000

# `diff` is the message that a change belongs to; 0 is the snapshot. Size 0 removes the level.
L2_DTYPE = np.dtype([("diff", "u4"), ("side", "u1"), ("price", "i8"), ("size", "i8")])
# `price` is where the order rests afterwards, `size` that of the event (of an order added, its
# size; modified, its new one; traded, how much; cancelled, 0), `left` the remainder after it.
L3_DTYPE = np.dtype(
    [
        ("type", "u1"),
        ("side", "u1"),
        ("order", "u8"),
        ("price", "i8"),
        ("size", "i8"),
        ("left", "i8"),
    ]
)

SNAPSHOT_LEVELS = 1_000  # a side
AT_TOUCH, INSIDE = 0.04, 0.02  # share of all changes; the others are farther away
REMOVED = 0.125


class _Side:
    """One side of a price book; a higher `rank` is a better price on both sides."""

    def __init__(self, sign: int) -> None:
        self.sign = sign
        self.sizes: dict[int, int] = {}
        self.best = 0  # a rank

    def set(self, rank: int, size: int) -> None:
        if size:
            self.sizes[rank] = size
            self.best = max(self.best, rank)
        elif self.sizes.pop(rank, 0) and rank == self.best:
            while self.best not in self.sizes:
                self.best -= 1


def _snapshot(rng: np.random.Generator, side: _Side, first: int) -> list[int]:
    """The ranks, best first."""
    ranks = first - np.concatenate(([0], np.cumsum(rng.integers(1, 4, SNAPSHOT_LEVELS - 1))))
    side.best = first
    side.sizes = dict(
        zip(ranks.tolist(), rng.integers(1, 50_000, len(ranks)).tolist(), strict=True)
    )
    return ranks.tolist()


def l2_events(count: int, seed: int = 1) -> Events:
    """A snapshot, then diffs of about 23 changed levels, bids before asks: `count` changes."""
    rng = np.random.default_rng(seed)
    bids, asks = _Side(1), _Side(-1)
    rows: list[tuple[int, int, int, int]] = []
    for side, number in ((bids, BUY), (asks, SELL)):
        ranks = _snapshot(rng, side, side.sign * MIDDLE - 1)
        rows += [(0, number, side.sign * rank, side.sizes[rank]) for rank in ranks]
    # Drawn as arrays: a call of the generator for each change would take most of the time.
    wanted = max(0, count - len(rows))
    sizes = np.clip(rng.lognormal(2.85, 0.75, wanted + 1).astype(np.int64), 1, 800)
    diff = np.repeat(np.arange(1, wanted + 2, dtype=np.int64), sizes)[:wanted]
    is_ask = rng.random(wanted) < 0.5
    order = np.lexsort((is_ask, diff))
    kind, fate = rng.random(wanted).tolist(), rng.random(wanted).tolist()
    away = np.minimum(2.0 ** rng.normal(8.5, 2.0, wanted), 2**14).astype(np.int64).tolist()
    size = np.maximum(1, rng.lognormal(6.0, 2.0, wanted)).astype(np.int64).tolist()
    for i, (number, ask) in enumerate(zip(diff.tolist(), is_ask[order].tolist(), strict=True)):
        side, other = (asks, bids) if ask else (bids, asks)
        room = -other.best - side.best - 1  # ticks between the two touches
        new_size = size[i]
        if kind[i] < AT_TOUCH:
            rank = side.best
            if fate[i] < 0.3:
                new_size = 0
        elif kind[i] < AT_TOUCH + INSIDE and room > 0:
            rank = side.best + 1 + away[i] % room
        else:
            rank = side.best - away[i]
            if fate[i] < REMOVED:
                new_size = 0
                rank = next((r for r in range(rank, rank - 64, -1) if r in side.sizes), rank)
        if not new_size and len(side.sizes) == 1:
            new_size = size[i]  # no side may be empty: one of the books has no best price then
        side.set(rank, new_size)
        rows.append((number, SELL if ask else BUY, side.sign * rank, new_size))
    return np.array(rows[:count], L2_DTYPE)


ORDERS = 20_000  # resting at any time, approximately
OPENING = 2_000  # orders before anything else may happen


class _Orders:
    """The orders of one side in their queues; `rank` as in `_Side`."""

    def __init__(self, sign: int) -> None:
        self.sign = sign
        self.best = sign * MIDDLE - 1
        self.queues: dict[int, deque[int]] = {}

    def add(self, rank: int, order: int) -> None:
        self.queues.setdefault(rank, deque()).append(order)
        self.best = max(self.best, rank)

    def remove(self, rank: int, order: int) -> None:
        queue = self.queues[rank]
        queue.remove(order)
        if not queue:
            del self.queues[rank]
            while rank == self.best and self.queues and self.best not in self.queues:
                self.best = rank = rank - 1


def _kind(drawn: float, resting: int) -> int:
    """The next kind of event; keeps the number of resting orders near ORDERS."""
    if drawn < 0.44 + 0.1 * (1 - resting / ORDERS):
        return ADD
    if drawn > 0.9:
        return TRADE
    return MODIFY if drawn > 0.84 else CANCEL


def l3_events(count: int, seed: int = 1) -> Events:
    """About 44 % new orders, 40 % cancelled, 6 % modified, 10 % trades: `count` events."""
    rng = np.random.default_rng(seed)
    sides = {BUY: _Orders(1), SELL: _Orders(-1)}
    live: dict[int, list[int]] = {}  # order: side, rank, left, place in `ids`
    ids: list[int] = []
    rows: list[tuple[int, int, int, int, int, int]] = []
    kind, pick, turn = (rng.random(count).tolist() for _ in range(3))
    away = np.minimum(rng.lognormal(2.3, 1.3, count), 5_000).astype(np.int64).tolist()
    lots = np.maximum(1, rng.lognormal(4.0, 1.0, count)).astype(np.int64).tolist()
    recent = rng.exponential(400, count).astype(np.int64).tolist()
    number = 0

    def forget(order: int) -> None:
        number, rank, _, place = live.pop(order)
        sides[number].remove(rank, order)
        last = ids.pop()
        if last != order:
            ids[place] = last
            live[last][3] = place

    def price_near(i: int, number: int) -> int:
        """A rank at a distance from the touch, sometimes inside the spread."""
        side, other = sides[number], sides[3 - number]
        room = -other.best - side.best - 1
        return side.best + 1 + away[i] % room if room > 0 and turn[i] < 0.1 else side.best - away[i]

    for i in range(count):
        number_of_side = BUY if turn[i] * 10 % 1 < 0.5 else SELL
        what = ADD if i < OPENING else _kind(kind[i], len(ids))
        if what == ADD:
            number += 1
            order, side = number, sides[number_of_side]
            rank = price_near(i, number_of_side)
            live[order] = [number_of_side, rank, lots[i], len(ids)]
            ids.append(order)
            side.add(rank, order)
            rows.append((ADD, number_of_side, order, side.sign * rank, lots[i], lots[i]))
        elif what == TRADE:
            side = sides[number_of_side]
            order = side.queues[side.best][0]
            entry = live[order]
            done = min(entry[2], lots[i])
            entry[2] -= done
            rows.append((TRADE, number_of_side, order, side.sign * entry[1], done, entry[2]))
            if not entry[2]:
                forget(order)
        else:
            order = (
                number - recent[i]
            )  # mostly one of the last few hundred: most orders are short-lived
            if order not in live:
                order = ids[int(pick[i] * len(ids))]
            entry = live[order]
            side = sides[entry[0]]
            if what == CANCEL:
                rows.append((CANCEL, entry[0], order, side.sign * entry[1], 0, 0))
                forget(order)
            else:
                moved = pick[i] < 0.5
                less = max(1, entry[2] // 2)
                if (
                    moved or less == entry[2]
                ):  # a new price or a larger size: to the end of the queue
                    rank = price_near(i, entry[0]) if moved else entry[1]
                    side.remove(entry[1], order)
                    side.add(rank, order)
                    entry[1], entry[2] = rank, lots[i] if moved else entry[2] + lots[i]
                else:
                    entry[2] = less
                rows.append((MODIFY, entry[0], order, side.sign * entry[1], entry[2], entry[2]))
    return np.array(rows, L3_DTYPE)


def resting_orders(count: int, seed: int = 1) -> Events:
    """Orders that are only added, to measure memory per order."""
    rng = np.random.default_rng(seed)
    events = np.zeros(count, L3_DTYPE)
    events["type"], events["order"] = ADD, np.arange(1, count + 1)
    events["side"] = rng.integers(BUY, SELL + 1, count)
    away = 1 + np.minimum(rng.lognormal(5.0, 1.5, count), 20_000).astype(np.int64)
    events["price"] = MIDDLE + np.where(events["side"] == BUY, -away, away)
    events["size"] = events["left"] = rng.integers(1, 1_000, count)
    return events
