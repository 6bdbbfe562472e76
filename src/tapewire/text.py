"""Counts, sizes and durations for people, and hints for misspelled names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

__all__ = [
    "BARS",
    "bytes_text",
    "count_text",
    "counted",
    "did_you_mean",
    "duration",
    "end_of",
    "rate_text",
    "short_count",
    "span_text",
    "sparkline",
    "time_text",
]

_UNKNOWN = "–"
BARS = "▁▂▃▄▅▆▇█"


def _scaled(value: float, step: float, units: Sequence[str]) -> str:
    power = 0
    # 999.5 would otherwise become 1000 of the smaller unit.
    while value >= step - 0.5 and power < len(units) - 1:
        value /= step
        power += 1
    digits = 0 if value >= 99.95 or (power == 0 and value == int(value)) else 1
    return f"{value:.{digits}f}{units[power]}"


def count_text(value: int | None) -> str:
    """Format a count with all its digits.

    Example:
        >>> count_text(1234567), count_text(None)
        ('1,234,567', '?')
    """
    return "?" if value is None else f"{value:,}"


def counted(value: int, one: str, many: str | None = None) -> str:
    """Format a count with its noun.

    Example:
        >>> counted(1, "log"), counted(1200, "log"), counted(2, "entry", "entries")
        ('1 log', '1,200 logs', '2 entries')
    """
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def short_count(value: float | None) -> str:
    """Format a count or a rate with three digits.

    Example:
        >>> short_count(950), short_count(12_345), short_count(7e9), short_count(None)
        ('950', '12.3k', '7.0G', '–')
    """
    return _UNKNOWN if value is None else _scaled(value, 1000, ("", "k", "M", "G", "T"))


def bytes_text(value: float | None) -> str:
    """Format a number of bytes with three digits, in powers of 1024.

    Example:
        >>> bytes_text(512), bytes_text(1536), bytes_text(5 << 30)
        ('512 B', '1.5 KiB', '5.0 GiB')
    """
    if value is None:
        return _UNKNOWN
    return _scaled(value, 1024, (" B", " KiB", " MiB", " GiB", " TiB"))


def time_text(seconds: float | None) -> str:
    """Format a duration in seconds with three digits.

    Example:
        >>> time_text(0), time_text(25e-6), time_text(0.25), time_text(12), time_text(4000)
        ('0 s', '25.0 µs', '250 ms', '12.0 s', '1.1 h')
    """
    if seconds is None:
        return _UNKNOWN
    if seconds <= 0:
        return "0 s"
    for limit, factor, unit in (
        (1e-3, 1e6, "µs"),
        (1.0, 1e3, "ms"),
        (120.0, 1.0, "s"),
        (3600.0, 1 / 60, "min"),
        (172_800.0, 1 / 3600, "h"),
    ):
        if seconds < limit:
            value = seconds * factor
            return f"{value:.{0 if value >= 99.95 else 1}f} {unit}"
    return f"{seconds / 86_400:.1f} d"


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw the last `width` values as bars, from 0 to their maximum.

    Example:
        >>> sparkline([9, 0, 1, 2, 4], 4)
        '▁▃▅█'
    """
    shown = values[-width:] if width else []
    top = max(shown, default=0)
    if top <= 0:
        return BARS[0] * len(shown)
    return "".join(BARS[round(value / top * (len(BARS) - 1))] for value in shown)


def end_of(name: str, width: int) -> str:
    """Shorten a name to `width` characters, keeping its end: the informative part of a path.

    Example:
        >>> end_of("orders_in", 12), end_of("streams/raw/coinbase/queue", 16)
        ('orders_in', '…/coinbase/queue')
    """
    return name if len(name) <= width else "…" + name[len(name) - width + 1 :]


def span_text(seconds: float) -> str:
    """Format a duration in its two largest units.

    Example:
        >>> span_text(2.53), span_text(75), span_text(7_400)
        ('2.5 s', '1 min 15 s', '2 h 03 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    rounded = round(seconds)
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"


def rate_text(rows: int, seconds: float) -> str:
    """Format a rate of rows per second.

    Example:
        >>> rate_text(1_000_000, 2.0), rate_text(5, 0.0)
        ('500,000 rows/s', '? rows/s')
    """
    return f"{rows / seconds:,.0f} rows/s" if seconds > 0 else "? rows/s"


def duration(ns: float) -> str:
    """Format a duration in nanoseconds with three digits; it may be negative.

    Example:
        >>> duration(1_234_000), duration(87), duration(999_999), duration(-2.5e9), duration(5.4e12)
        ('1.23 ms', '87 ns', '1000 µs', '-2.5 s', '1.5 h')
    """
    if math.isnan(ns):
        return "–"
    for size, unit in ((3.6e12, "h"), (1.2e11, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= size:
            value = ns / (6e10 if unit == "min" else size)
            return f"{value:.0f} {unit}" if abs(value) >= 99.95 else f"{value:.3g} {unit}"
    return f"{ns:.0f} ns"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the hint for an unknown name: the most similar known name, or all of them.

    Example:
        >>> did_you_mean("typs", ["types", "symbols"]), did_you_mean("x", ["b", "a"])
        ('did you mean types?', 'one of: a, b')
    """
    import difflib  # only here: the import takes milliseconds

    known = sorted(known)
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else f"one of: {', '.join(known)}"
