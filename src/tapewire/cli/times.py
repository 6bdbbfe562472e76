"""Parse and format times for the command line."""

from __future__ import annotations

import functools
import re
import time

from tapewire.clock import to_ns

__all__ = ["iso", "parse_time"]

_UNITS_NS = {
    "d": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}
_SPAN = re.compile(r"(\d+)(d|h|ms|us|ns|m|s)")
_RELATIVE = re.compile(rf"-(?:{_SPAN.pattern})+")


def iso(timestamp_ns: int) -> str:
    """ISO 8601 in UTC, always with nine digits, so that times align.

    Example:
        >>> iso(1709294400000000001)
        '2024-03-01T12:00:00.000000001Z'
    """
    seconds, ns = divmod(timestamp_ns, 1_000_000_000)
    return f"{_to_the_second(seconds)}.{ns:09}Z"


@functools.lru_cache(maxsize=16)  # adjacent records mostly have the same second
def _to_the_second(seconds: int) -> str:
    t = time.gmtime(seconds)
    return f"{t.tm_year:04}-{t.tm_mon:02}-{t.tm_mday:02}T{t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02}"


def parse_time(text: str, now_ns: int | None = None) -> int:
    """Parse ISO 8601 with a zone, nanoseconds since the epoch, or a span before now (``-5m``).

    Example:
        >>> parse_time("-1h30m", now_ns=6_000_000_000_000)
        600000000000
        >>> parse_time("1709294400000000001")
        1709294400000000001
        >>> parse_time("2024-03-01T12:00Z")
        1709294400000000000
    """
    ns = _nanoseconds(text, now_ns)
    if not -(2**63) <= ns < 2**63:
        raise ValueError(
            f"time out of range: time={text!r}, must be from {iso(-(2**63))} to {iso(2**63 - 1)}"
        )
    return ns


def _nanoseconds(text: str, now_ns: int | None) -> int:
    if _RELATIVE.fullmatch(text):
        back = sum(int(count) * _UNITS_NS[unit] for count, unit in _SPAN.findall(text))
        return (time.time_ns() if now_ns is None else now_ns) - back
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return to_ns(text)
    except ValueError as error:
        if "time=" in str(error) and not text.startswith("-"):  # a more specific message
            raise
        raise ValueError(
            f"invalid time: time={text!r}; give ISO 8601 with a zone (2024-03-01T12:00Z), "
            "nanoseconds, or how long ago (-5m, -1h30m)"
        ) from None
