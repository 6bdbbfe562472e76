"""Builds bars from batches of trades, in exact integers and bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import numpy as np

from tapewire.clock import DAY_NS
from tapewire.errors import InvalidOption, TapewireError
from tapewire.replay._features import parse_span

__all__ = ["KINDS", "Bar", "BarBuilder", "BarSpec"]

KINDS = ("time", "tick", "volume", "dollar")
_INT64 = 2**63
_MAX_DIGITS = 60

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class BarSpec:
    """When a bar ends.

    Attributes:
        kind: "time", "tick", "volume" or "dollar".
        size: Size of a bar: nanoseconds, trades, volume, or money (price times size).

    Example:
        >>> BarSpec.parse("time", "1m").size, BarSpec.parse("volume", "2.5").size
        (Fraction(60000000000, 1), Fraction(5, 2))
    """

    kind: str
    size: Fraction

    @classmethod
    def parse(cls, kind: str, size: str | int | float | Decimal) -> BarSpec:
        """Parse a kind and a size, which is a span, a count or a number.

        Raises:
            InvalidOption: The kind is unknown, or the size is invalid.
        """
        if kind not in KINDS:
            raise InvalidOption(
                f"unknown kind of bar: kind={kind!r}", hint=f"give one of {', '.join(KINDS)}"
            )
        if kind == "time":
            span = parse_span(str(size))
            if DAY_NS % span:
                raise InvalidOption(
                    f"invalid size of a time bar: size={size!r}, must divide a day",
                    hint="bars start again with each UTC day; give 1s, 5m, 1h, 1d, …",
                )
            return cls(kind, Fraction(span))
        try:
            # A float as it is printed: 0.1 is a tenth.
            given = Decimal(str(size))
            # A number with more digits is invalid, and might not fit into memory as a fraction.
            number = Fraction(given) if abs(given.adjusted()) < _MAX_DIGITS else Fraction(0)
        except (InvalidOperation, ValueError, OverflowError):
            number = Fraction(0)
        if number <= 0 or (kind == "tick" and number.denominator != 1):
            wanted = "a positive integer" if kind == "tick" else "a positive number"
            raise InvalidOption(f"invalid size of a {kind} bar: size={size!r}, must be {wanted}")
        return cls(kind, number)

    def threshold(self, price_scale: int, size_scale: int) -> int:
        """The size at which a bar is complete, as a scaled integer."""
        digits = {"volume": size_scale, "dollar": price_scale + size_scale}.get(self.kind, 0)
        scaled: Fraction = self.size * 10**digits
        return math.ceil(scaled)


@dataclass(frozen=True)
class Bar:
    """One bar; prices, volumes and notional are scaled integers.

    Attributes:
        start_ns: Time bars: the start of their span. Others: their first trade.
        end_ns: Time bars: the end of their span (exclusive). Others: their last trade.
        notional: Sum of price times size, scaled by both scales.
        complete: False for the last bar of a day if it did not reach its size.
    """

    start_ns: int
    end_ns: int
    open: int
    high: int
    low: int
    close: int
    volume: int
    buy_volume: int
    notional: int
    trades: int
    complete: bool = True

    def vwap(self, price_scale: int) -> float | None:
        """Mean price weighted by size, rounded once; None if the volume is 0."""
        return self.notional / (self.volume * 10**price_scale) if self.volume else None


def _exact(values: Array, reach: int) -> Array:
    """Values with exact sums: int64 if `reach` fits, otherwise Python integers."""
    return values.astype(np.int64) if reach < _INT64 else values.astype(object)


class BarBuilder:
    """Builds the bars of one instrument's day from batches of trades, in the order of the log.

    A trade is never split: a bar ends with the trade that brings it to its size or beyond, and the
    next one starts at zero. Spans without a trade have no bar.

    Args:
        spec: When a bar ends.
        price_scale: Price scale of the trades.
        size_scale: Size scale of the trades.

    Example:
        >>> import numpy as np
        >>> builder = BarBuilder(BarSpec.parse("tick", 2), price_scale=2, size_scale=0)
        >>> columns = np.array([[1, 100, 5], [2, 103, 1], [3, 99, 4]]).T
        >>> [bar] = builder.add(*columns, is_buy=np.array([True, False, True]))
        >>> (bar.open, bar.high, bar.low, bar.close, bar.volume, bar.vwap(2))
        (100, 103, 100, 103, 6, 1.005)
        >>> builder.finish().complete
        False
    """

    def __init__(self, spec: BarSpec, price_scale: int, size_scale: int) -> None:
        self._spec = spec
        self._threshold = spec.threshold(price_scale, size_scale)
        self._open: Bar | None = None
        self._reached = 0  # volume or money of the open bar

    def add(self, times_ns: Array, prices: Array, sizes: Array, is_buy: Array) -> list[Bar]:
        """Add trades; return the bars that they complete.

        Raises:
            TapewireError: A trade has a negative size.
        """
        count = len(times_ns)
        if not count:
            return []
        if int(sizes.min()) < 0:
            raise TapewireError(f"a trade has a negative size: size={int(sizes.min())}")
        largest_price = max(abs(int(prices.max())), abs(int(prices.min())))
        volumes = _exact(sizes, int(sizes.max()) * count)
        reach = largest_price * int(sizes.max()) * count
        notionals = _exact(prices, reach) * _exact(sizes, reach)
        ends = self._ends(times_ns, volumes, notionals)
        # If the open bar ends before the first of these trades, it has none of them.
        closed = []
        if self._open is not None and ends and ends[0] == 0:
            closed.append(self._open)
            self._open = None
        ends = [end for end in ends if end]
        starts = [0, *ends] if not ends or ends[-1] < count else [0, *ends[:-1]]
        bought = np.where(is_buy, volumes, volumes * 0)
        columns = zip(
            starts,
            [*starts[1:], count],
            np.maximum.reduceat(prices, starts).tolist(),
            np.minimum.reduceat(prices, starts).tolist(),
            np.add.reduceat(volumes, starts).tolist(),
            np.add.reduceat(bought, starts).tolist(),
            np.add.reduceat(notionals, starts).tolist(),
            strict=True,
        )
        done = set(ends)
        for start, end, high, low, volume, buy_volume, notional in columns:
            begin_ns, end_ns = self._times(int(times_ns[start]), int(times_ns[end - 1]))
            bar = Bar(
                begin_ns,
                end_ns,
                int(prices[start]),
                high,
                low,
                int(prices[end - 1]),
                volume,
                buy_volume,
                notional,
                end - start,
                complete=self._spec.kind == "time",
            )
            if self._open is not None:
                bar = _joined(self._open, bar)
                self._open = None
            if end in done:
                closed.append(replace(bar, complete=True))
            else:
                self._open = bar
        return closed

    def finish(self) -> Bar | None:
        """Return the open bar, which no trade has completed; None if there is none."""
        bar, self._open = self._open, None
        return bar

    def _times(self, first_ns: int, last_ns: int) -> tuple[int, int]:
        if self._spec.kind != "time":
            return first_ns, last_ns
        start = first_ns // self._threshold * self._threshold
        return start, start + self._threshold

    def _ends(self, times_ns: Array, volumes: Array, notionals: Array) -> list[int]:
        """Index after the last trade of each bar that ends here; 0: the open one has ended."""
        before = self._open
        if self._spec.kind == "time":
            spans = times_ns // self._threshold
            ends: list[int] = (np.flatnonzero(np.diff(spans)) + 1).tolist()
            if before is not None and before.start_ns != int(spans[0]) * self._threshold:
                ends.insert(0, 0)
            return ends
        if self._spec.kind == "tick":
            first = self._threshold - (before.trades if before else 0)
            return list(range(first, len(times_ns) + 1, self._threshold))
        # Prices may be negative; the money of a trade is not.
        totals = np.add.accumulate(volumes if self._spec.kind == "volume" else abs(notionals))
        ends, base = [], -self._reached
        while (place := int(np.searchsorted(totals, base + self._threshold))) < len(totals):
            ends.append(place + 1)
            base = int(totals[place])
        self._reached = int(totals[-1]) - base
        return ends


def _joined(first: Bar, then: Bar) -> Bar:
    return Bar(
        first.start_ns,
        then.end_ns,
        first.open,
        max(first.high, then.high),
        min(first.low, then.low),
        then.close,
        first.volume + then.volume,
        first.buy_volume + then.buy_volume,
        first.notional + then.notional,
        first.trades + then.trades,
        then.complete,
    )
