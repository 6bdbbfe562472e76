"""Numbers as a person reads them at a glance; three digits are enough there."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["BARS", "bytes_text", "count_text", "end_of", "sparkline", "time_text"]

_UNKNOWN = "–"
BARS = "▁▂▃▄▅▆▇█"


def _scaled(value: float, step: float, units: Sequence[str]) -> str:
    power = 0
    # 999.5 would be shown as 1000 of the smaller unit.
    while value >= step - 0.5 and power < len(units) - 1:
        value /= step
        power += 1
    digits = 0 if value >= 99.95 or (power == 0 and value == int(value)) else 1
    return f"{value:.{digits}f}{units[power]}"


def count_text(value: float | None) -> str:
    """A count or a rate.

    Example:
        >>> count_text(0), count_text(950), count_text(12_345), count_text(7e9), count_text(None)
        ('0', '950', '12.3k', '7.0G', '–')
    """
    return _UNKNOWN if value is None else _scaled(value, 1000, ("", "k", "M", "G", "T"))


def bytes_text(value: float | None) -> str:
    """A number of bytes, in powers of 1024.

    Example:
        >>> bytes_text(512), bytes_text(1536), bytes_text(5 << 30)
        ('512 B', '1.5 KiB', '5.0 GiB')
    """
    if value is None:
        return _UNKNOWN
    return _scaled(value, 1024, (" B", " KiB", " MiB", " GiB", " TiB"))


def time_text(seconds: float | None) -> str:
    """A span of time.

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
    """The latest `width` values as bars, from 0 to the highest of them.

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
    """A name in at most `width` characters; of a path, its end tells most.

    Example:
        >>> end_of("orders_in", 12), end_of("streams/raw/coinbase/queue", 16)
        ('orders_in', '…/coinbase/queue')
    """
    return name if len(name) <= width else "…" + name[len(name) - width + 1 :]
