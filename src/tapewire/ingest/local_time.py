"""Midnight in the time zone of an exchange."""

from __future__ import annotations

import datetime as dt

from tapewire.errors import InvalidOption

__all__ = ["NEW_YORK", "midnight_ns"]

NEW_YORK = "America/New_York"


def midnight_ns(date: str, zone: str = NEW_YORK) -> int:
    """Midnight of a day in a time zone, in nanoseconds since 1970.

    Example:
        >>> midnight_ns("2019-01-30")
        1548824400000000000
        >>> midnight_ns("2019-01-30", "UTC")
        1548806400000000000
    """
    import zoneinfo

    try:
        day = dt.date.fromisoformat(date)
    except (TypeError, ValueError):
        raise InvalidOption(
            f"not a day: date={date!r}",
            hint="give date=YYYY-MM-DD; on the command line, --option date=YYYY-MM-DD",
        ) from None
    try:
        where = zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, OSError, TypeError, ValueError):
        raise InvalidOption(
            f"unknown time zone: zone={zone!r}",
            hint="give a name like America/New_York; install the system's tzdata or the Python "
            "package tzdata",
        ) from None
    if day.year < 1971:
        raise InvalidOption(f"times start at 1970: date={date!r}")
    midnight = dt.datetime(day.year, day.month, day.day, tzinfo=where)
    return int(midnight.timestamp()) * 10**9
