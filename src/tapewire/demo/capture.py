"""A recorded market as inputs: Binance's depth and trade streams, one `TIME JSON` per line.

Levels become liquidity that strategies trade with. Trades become orders that take the same quantity
at the same price, and so may also trade with the strategies' quotes.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tapewire.demo.events import MARKET, Input, New, SetLevel, Side
from tapewire.demo.paths import INSTRUMENT
from tapewire.errors import InvalidOption

__all__ = ["Recorded", "check_capture", "recorded"]

_BAND = 0.002  # of the price: levels further out never trade and would only take memory
_PRICE_SCALE = 10**INSTRUMENT.price_scale  # to ticks
_SIZE_SCALE = 10**INSTRUMENT.size_scale  # to lots


class Recorded(NamedTuple):
    """An input, and how many seconds after the first line it is due."""

    seconds: float
    what: Input


def recorded(path: str | os.PathLike[str]) -> Iterator[Recorded]:
    """Yield every change of a level near the middle, and every trade, in order.

    Raises:
        InvalidOption: A line does not have this format.
    """
    book = _NearLevels()
    first_ns: int | None = None
    for number, line in enumerate(_lines(Path(path)), 1):
        try:
            stamp, text = line.split(b" ", 1)
            at_ns = int(stamp) * (1 if len(stamp) > 16 else 1_000)  # older files count in µs
            changes = book.changes(json.loads(text))
        except _MALFORMED as error:
            raise InvalidOption(
                f"not a line of a depth capture: line={number}: {error}",
                path=os.fspath(path),
                hint="a capture has one `TIME JSON` per line, as Binance's WebSocket sends it",
            ) from error
        first_ns = at_ns if first_ns is None else first_ns
        for what in changes:
            yield Recorded((at_ns - first_ns) / 1e9, what)


# What JSON of another shape, and invalid numbers, can raise.
_MALFORMED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def _lines(path: Path) -> Iterator[bytes]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as lines:
        try:
            yield from lines
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InvalidOption(f"not a gzip file: {error}", path=os.fspath(path)) from error


def check_capture(path: str | os.PathLike[str]) -> None:
    """Check that a file is a capture, by its beginning.

    Raises:
        InvalidOption: It is not a capture, or has neither levels nor trades.
    """
    if next(recorded(path), None) is None:
        raise InvalidOption(
            "the capture has neither a level nor a trade",
            path=os.fspath(path),
            hint="it needs a depth snapshot or a bookTicker, and depth updates after it",
        )


class _NearLevels:
    """The levels near the middle of the book, which are replayed; others are left out."""

    def __init__(self) -> None:
        self._middle: float | None = None
        self._shown: set[tuple[Side, int]] = set()
        self._trades = 0

    def changes(self, message: Any) -> list[Input]:
        """What a message changes: removals first, or a moving market would trade with itself."""
        data = message.get("data", message)
        kind = data.get("e")
        if "lastUpdateId" in data:
            bids, asks = data["bids"], data["asks"]
            self._middle = (float(bids[0][0]) + float(asks[0][0])) / 2
        elif kind == "depthUpdate":
            bids, asks = data["b"], data["a"]
        elif kind in (None, "bookTicker") and "B" in data:
            self._middle = (float(data["b"]) + float(data["a"])) / 2
            return []
        elif kind == "trade":
            return self._trade(data)
        else:
            return []
        sides = ((Side.BUY, bids), (Side.SELL, asks))
        rows = [(side, float(p), float(q)) for side, levels in sides for p, q in levels]
        removed = [
            self._level(side, price, 0) for side, price, qty in rows if not self._near(price, qty)
        ]
        set_levels = [
            self._level(side, price, qty) for side, price, qty in rows if self._near(price, qty)
        ]
        known = [level for level in removed if (level.side, level.price) in self._shown]
        self._shown.difference_update((level.side, level.price) for level in removed)
        self._shown.update((level.side, level.price) for level in set_levels)
        return [*known, *set_levels]

    def _trade(self, data: Any) -> list[Input]:
        self._trades += 1
        side = Side.SELL if data["m"] else Side.BUY  # m: the buyer was in the book
        level = self._level(side, float(data["p"]), float(data["q"]))
        return [New(MARKET, self._trades, side, level.price, level.qty, immediate=True)]

    def _near(self, price: float, qty: float) -> bool:
        if self._middle is None or round(qty * _SIZE_SCALE) <= 0:
            return False
        return abs(price / self._middle - 1) < _BAND

    @staticmethod
    def _level(side: Side, price: float, qty: float) -> SetLevel:
        return SetLevel(side, round(price * _PRICE_SCALE), round(qty * _SIZE_SCALE))
