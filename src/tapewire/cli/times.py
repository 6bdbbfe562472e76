"""Times as a person types and reads them."""

from __future__ import annotations

import functools
import re
import time

from tapewire.clock import to_ns

__all__ = ["iso", "parse_time", "seconds_text"]

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
    """ISO 8601 in UTC with all nine digits, so that times of one tape line up.

    Example:
        >>> iso(1709294400000000001)
        '2024-03-01T12:00:00.000000001Z'
    """
    seconds, ns = divmod(timestamp_ns, 1_000_000_000)
    return f"{_to_the_second(seconds)}.{ns:09}Z"


@functools.lru_cache(maxsize=16)  # neighbours on a tape share their second
def _to_the_second(seconds: int) -> str:
    t = time.gmtime(seconds)
    return f"{t.tm_year:04}-{t.tm_mon:02}-{t.tm_mday:02}T{t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02}"


def parse_time(text: str, now_ns: int | None = None) -> int:
    """Nanoseconds since the epoch from ISO text with a zone, digits (nanoseconds), or ``-5m``.

    Example:
        >>> parse_time("-1h30m", now_ns=6_000_000_000_000)
        600000000000
        >>> parse_time("1709294400000000001")
        1709294400000000001
        >>> parse_time("2024-03-01T12:00Z")
        1709294400000000000
    """
    if _RELATIVE.fullmatch(text):
        back = sum(int(count) * _UNITS_NS[unit] for count, unit in _SPAN.findall(text))
        return (time.time_ns() if now_ns is None else now_ns) - back
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return to_ns(text)
    except ValueError as error:
        if "time=" in str(error) and not text.startswith("-"):  # `to_ns` knows better
            raise
        raise ValueError(
            f"not a time: time={text!r}; give ISO with a zone (2024-03-01T12:00Z), "
            "nanoseconds, or how long ago (-5m, -1h30m)"
        ) from None


def seconds_text(seconds: float) -> str:
    """A span for people: the two units that matter.

    Example:
        >>> seconds_text(3.25), seconds_text(75), seconds_text(7300)
        ('3.2 s', '1 m 15 s', '2 h 1 m')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} m {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} m"
