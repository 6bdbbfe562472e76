"""The book of one symbol over time, downsampled for a plot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["PICTURE_LEVELS", "PICTURE_POINTS", "BookPicture", "span_for"]

Array = np.ndarray[Any, Any]
PICTURE_POINTS = 900  # maximum: about one per pixel
PICTURE_LEVELS = 20
_SPANS_NS = [
    *(n * 10**6 for n in (1, 10, 100)),
    *(n * 10**9 for n in (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 86_400)),
]


def span_for(begin_ns: int, end_ns: int, points: int = PICTURE_POINTS) -> str:
    """Return the shortest round span, as for `sample`, with at most `points` points.

    Example:
        >>> span_for(0, 86_400 * 10**9), span_for(0, 10 * 10**9), span_for(5, 5)
        ('300s', '100ms', '1ms')
    """
    span = next((n for n in _SPANS_NS if (end_ns - begin_ns) // n < points), _SPANS_NS[-1])
    return f"{span // 10**9}s" if span >= 10**9 else f"{span // 10**6}ms"


@dataclass(frozen=True)
class BookPicture:
    """The best levels at points in time.

    Attributes:
        name: Name of the instrument.
        times_ns: The points in time.
        trusted: Whether the book was trusted.
        bid_prices: One row per point, best price first, nan after the last level.
        bid_sizes: The sizes at these prices.
        ask_prices: As `bid_prices`.
        ask_sizes: As `bid_sizes`.
    """

    name: str
    times_ns: Array
    trusted: Array
    bid_prices: Array
    bid_sizes: Array
    ask_prices: Array
    ask_sizes: Array

    @classmethod
    def of(cls, name: str, rows: Mapping[str, Any]) -> BookPicture:
        """Make a picture from the columns of the view `book`, for one symbol, sorted by time."""
        times = np.asarray(rows["timestamp_ns"], np.int64)
        depth = max(
            [len(side) for key in ("bid_prices", "ask_prices") for side in rows[key]], default=0
        )
        prices = 10.0 ** np.asarray(rows["price_scale"], float)[:, None]
        sizes = 10.0 ** np.asarray(rows["size_scale"], float)[:, None]

        def levels(key: str, unit: Array) -> Array:
            made = np.full((len(times), depth), np.nan)
            for row, values in zip(made, rows[key], strict=True):
                row[: len(values)] = values
            scaled: Array = made / unit
            return scaled

        return cls(
            name,
            times,
            np.asarray(rows["trusted"], bool),
            levels("bid_prices", prices),
            levels("bid_sizes", sizes),
            levels("ask_prices", prices),
            levels("ask_sizes", sizes),
        )

    def __len__(self) -> int:
        return len(self.times_ns)

    def best(self, side: str) -> Array:
        """Return the best prices of "bid" or "ask", nan if there is none."""
        prices: Array = self.bid_prices if side == "bid" else self.ask_prices
        return prices[:, 0] if prices.shape[1] else np.full(len(self), np.nan)

    @property
    def spread_bps(self) -> Array:
        """The spread in basis points of the mid."""
        bid, ask = self.best("bid"), self.best("ask")
        with np.errstate(divide="ignore", invalid="ignore"):
            spread: Array = np.where(bid + ask > 0, 20_000 * (ask - bid) / (ask + bid), np.nan)
        return spread

    def thin(self, points: int) -> BookPicture:
        """Return every n-th point, at most `points` in total."""
        step = -(-len(self) // points) if len(self) else 1
        arrays = (self.times_ns, self.trusted, self.bid_prices, self.bid_sizes)
        return BookPicture(
            self.name, *(a[::step] for a in (*arrays, self.ask_prices, self.ask_sizes))
        )
