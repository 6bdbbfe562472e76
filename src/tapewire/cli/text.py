"""Numbers, times and tables as a person reads them; nothing is ever cut off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rich.console import Console

__all__ = ["bytes_text", "count_text", "instant_text", "print_columns", "time_text"]


def count_text(value: int | None) -> str:
    """A count, exactly.

    Example:
        >>> count_text(1234567), count_text(None)
        ('1,234,567', '?')
    """
    return "?" if value is None else f"{value:,}"


def bytes_text(value: float) -> str:
    """A number of bytes in powers of 1024.

    Example:
        >>> bytes_text(512), bytes_text(1536), bytes_text(5 << 30)
        ('512 B', '1.5 KiB', '5.0 GiB')
    """
    if value < 1024:
        return f"{value:.0f} B"
    units = ["KiB", "MiB", "GiB", "TiB"]
    value /= 1024
    while value >= 1023.95 and len(units) > 1:
        value /= 1024
        del units[0]
    return f"{value:,.1f} {units[0]}"


def time_text(seconds: float) -> str:
    """A span of time.

    Example:
        >>> time_text(0), time_text(25e-6), time_text(0.25), time_text(12), time_text(5000)
        ('0 s', '25.0 µs', '250.0 ms', '12.0 s', '1.4 h')
    """
    if seconds <= 0:
        return "0 s"
    for limit, factor, unit in (
        (1e-3, 1e6, "µs"),
        (1, 1e3, "ms"),
        (120, 1, "s"),
        (3600, 1 / 60, "min"),
    ):
        if seconds < limit:
            return f"{seconds * factor:.1f} {unit}"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:,.1f} d"


def instant_text(timestamp_ns: int) -> str:
    """A moment in UTC, to the nanosecond.

    Example:
        >>> instant_text(1_700_000_000_000_000_007)
        '2023-11-14T22:13:20.000000007Z'
    """
    seconds, ns = divmod(timestamp_ns, 1_000_000_000)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ns:09}Z"
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ns} ns"  # beyond the year 9999


def print_columns(
    console: Console, head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()
) -> None:
    """A table in aligned columns, those of `right` to the right; lines are as long as need be."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        cells = (
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        console.print(("  ".join(cells)).rstrip(), markup=False, soft_wrap=True)
