"""Books of levels: one that changes at random, and one that follows a feed."""

import json
from decimal import Decimal, InvalidOperation


class Walk:
    """A random book of whole prices and sizes that is never crossed."""

    def __init__(self, rng, mid=1000, depth=8):
        self._rng = rng
        self._mid = mid
        self.bids = {mid - k: rng.randrange(1, 99) for k in range(1, depth)}
        self.asks = {mid + k: rng.randrange(1, 99) for k in range(1, depth)}

    def step(self):
        """The next change: levels of both sides, a size of 0 removes one."""
        rng, changes = self._rng, ({}, {})
        if rng.random() < 0.3:
            self._mid += rng.choice((-2, -1, 1, 2))
            for side, book in enumerate((self.bids, self.asks)):
                for price in book:
                    if (price >= self._mid) if side == 0 else (price <= self._mid):
                        changes[side][price] = 0
        for _ in range(rng.randrange(1, 4)):
            side = rng.randrange(2)
            price = self._mid + rng.randrange(1, 9) * (1 if side else -1)
            known = price in (self.asks if side else self.bids)
            size = 0 if known and rng.random() < 0.4 else rng.randrange(1, 99)
            changes[side][price] = size
        for book, levels in zip((self.bids, self.asks), changes, strict=True):
            set_levels(book, levels.items())
        return [list(levels.items()) for levels in changes]

    def levels(self):
        """Both sides, best price first."""
        return sides_of(self.bids, self.asks)


def set_levels(book, levels):
    """Apply absolute levels to a dict."""
    for price, size in levels:
        book.pop(price, None)
        if size:
            book[price] = size


def sides_of(bids, asks):
    """Both sides of two dicts, best price first."""
    return tuple(sorted(bids.items(), reverse=True)), tuple(sorted(asks.items()))


def crossed(bids, asks):
    """Whether the best bid is not below the best ask."""
    return bool(bids and asks and max(bids) >= min(asks))


def whole(text, scale):
    """A decimal as an integer at a scale; ValueError if it is none, or has more decimals."""
    if not isinstance(text, str):
        raise ValueError(f"not a text: {text!r}")
    try:
        value = Decimal(text).scaleb(scale)
    except InvalidOperation as error:
        raise ValueError(f"not a number: {text!r}") from error
    if not value.is_finite() or value != int(value):
        raise ValueError(f"not a number of this scale: {text!r}")
    return int(value)


def received(data):
    """The time and the message of a line ``<time>: <json>``."""
    stamp, _, text = data.decode().partition(": ")
    return whole(stamp, 9), json.loads(text)
