"""Times as arguments: integer nanoseconds, or a date and time with a time zone."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    TimeLike: TypeAlias = "int | dt.datetime | np.datetime64 | str"

__all__ = ["DAY_NS", "date_of", "day_start_ns", "to_ns"]

DAY_NS = 86_400 * 10**9

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def date_of(day: int) -> dt.date:
    """Return the UTC date of a day, given as ``timestamp_ns // DAY_NS``.

    Example:
        >>> date_of(19_723).isoformat()
        '2024-01-01'
    """
    return _EPOCH.date() + dt.timedelta(days=day)


def day_start_ns(date: dt.date) -> int:
    """Return the first nanosecond of a UTC date.

    Example:
        >>> day_start_ns(dt.date(2024, 1, 1)) == 19_723 * DAY_NS
        True
    """
    return (date - _EPOCH.date()).days * DAY_NS


def to_ns(time: TimeLike) -> int:
    """Convert a time to nanoseconds since the epoch.

    Takes an int (in nanoseconds), an aware `datetime`, a `numpy.datetime64` (UTC by definition) or
    an ISO 8601 string with a time zone. A time without a zone raises `ValueError`: it would be
    ambiguous.

    Example:
        >>> to_ns("2024-03-01T12:00:00.000000001Z")
        1709294400000000001
        >>> to_ns("2024-03-01 12:00")
        Traceback (most recent call last):
            ...
        ValueError: time has no zone: time='2024-03-01 12:00'; write 2024-03-01 12:00Z for UTC
    """
    if isinstance(time, bool):
        raise TypeError(f"not a time: {time!r}")
    if isinstance(time, int):
        return time
    if isinstance(time, str):
        return _from_text(time)
    if isinstance(time, dt.datetime):
        if time.tzinfo is None:
            raise ValueError(f"time has no zone: time={time!r}; pass tzinfo=datetime.UTC for UTC")
        delta = time - _EPOCH
        return (delta.days * 86_400 + delta.seconds) * 1_000_000_000 + delta.microseconds * 1_000
    if type(time).__name__ == "datetime64":
        return _from_datetime64(time)
    if hasattr(time, "__index__"):  # numpy integers
        return int(time)
    raise TypeError(
        f"not a time: {time!r}; pass int nanoseconds, an aware datetime, datetime64 or ISO text"
    )


def _from_datetime64(time: np.datetime64) -> int:
    # Convert in Python's integers: numpy overflows int64 silently.
    unit, step = _unit_of(time)
    if unit not in _UNIT_NS:
        time = time.astype("datetime64[s]")  # calendar units, and units of days or longer
        unit, step = "s", 1
    count = int(time.astype("int64"))
    if count == -(2**63):
        raise ValueError("not a time: NaT")
    ns, rest = divmod(count * step * _UNIT_NS[unit][0], _UNIT_NS[unit][1])
    if rest or not -(2**63) <= ns < 2**63:
        raise ValueError(f"not an integer of nanoseconds in 64 bits: time={time!r}")
    return ns


def _unit_of(time: np.datetime64) -> tuple[str, int]:
    """Return the unit of a datetime64, and how many of it are one step."""
    import numpy as np

    unit, step = np.datetime_data(time.dtype)
    return unit, int(step)


_UNIT_NS = {
    "s": (10**9, 1),
    "ms": (10**6, 1),
    "us": (10**3, 1),
    "ns": (1, 1),
    "ps": (1, 10**3),
    "fs": (1, 10**6),
    "as": (1, 10**9),
}

# After the seconds, in the extended (12:00:00.5) or the basic format (120000.5).
_FRACTION = re.compile(r"(?<=:\d\d)[.,](\d+)|(?<=[T ]\d{6})[.,](\d+)")


def _from_text(text: str) -> int:
    # datetime has microseconds and a log nanoseconds, so the fraction is parsed here.
    found = _FRACTION.search(text)
    digits = ""
    without_fraction = text
    if found:
        digits = found[1] or found[2]
        without_fraction = text[: found.start()] + text[found.end() :]
    if "." in without_fraction or "," in without_fraction:
        raise ValueError(f"only seconds may have a fraction: time={text!r}")
    if len(digits) > 9:
        raise ValueError(f"finer than a nanosecond: time={text!r}")
    parsed = dt.datetime.fromisoformat(without_fraction)
    if parsed.tzinfo is None:
        raise ValueError(f"time has no zone: time={text!r}; write {text}Z for UTC")
    return to_ns(parsed) + int(digits.ljust(9, "0"))
