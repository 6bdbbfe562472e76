"""Rates and spans as jobs print them."""

from __future__ import annotations

__all__ = ["rate_text", "span_text"]


def span_text(seconds: float) -> str:
    """A span of time.

    Example:
        >>> span_text(2.53), span_text(75), span_text(7_400)
        ('2.5 s', '1 min 15 s', '2 h 03 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def rate_text(rows: int, seconds: float) -> str:
    """Rows in a second.

    Example:
        >>> rate_text(1_000_000, 2.0), rate_text(5, 0.0)
        ('500,000 rows/s', '? rows/s')
    """
    return f"{rows / seconds:,.0f} rows/s" if seconds > 0 else "? rows/s"
