"""The parts of jobs over clean logs: a symbol's day each."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tapewire.clock import DAY_NS, day_start_ns
from tapewire.errors import InvalidOption, NotALog
from tapewire.queue.status import status
from tapewire.scan.logs import LogRef, resolve
from tapewire.scan.options import ReadOptions
from tapewire.scan.replay_units import follows

__all__ = [
    "LIVE",
    "REPORT",
    "Day",
    "chosen",
    "day_bounds",
    "days_of",
    "folder_of",
    "input_of",
    "symbols_option",
    "write_parquet",
]

REPORT = "_report.html"  # Spark takes every file of a table for data, unless it begins so
LIVE = "live"  # the date of a log whose path says none: a clean queue of a bus


@dataclass(frozen=True)
class Day:
    """One symbol's day.

    Attributes:
        venue: The venue.
        symbol: The symbol.
        date: The UTC day as ``YYYY-MM-DD``, or "live".
        logs: By stream.
        before: Book logs of the days before, in order, as far back as none is missing: a book that
            is days old is no book to begin with.
    """

    venue: str
    symbol: str
    date: str
    logs: Mapping[str, LogRef] = field(default_factory=dict)
    before: tuple[LogRef, ...] = ()

    @property
    def name(self) -> str:
        """Of the part."""
        return f"{self.venue}/{self.symbol}/{self.date}"

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.symbol} · {self.venue} · {self.date}"


def days_of(source: str | os.PathLike[str], options: ReadOptions) -> list[Day]:
    """The symbols' days of an archive or a bus, in order.

    Raises:
        NotALog: There is no log of one symbol there.
    """
    by_day: dict[tuple[str, str, str], dict[str, LogRef]] = {}
    for log in resolve(os.fspath(source), options):
        if log.venue is not None and log.symbol is not None and log.stream is not None:
            key = (log.venue, log.symbol, log.date or LIVE)
            by_day.setdefault(key, {})[log.stream] = log
    if not by_day and options.symbols is not None:
        names = ", ".join(f"{venue}:{one}" if venue else one for venue, one in options.symbols)
        raise NotALog(
            f"no log here is of this symbol: symbol={names}",
            path=os.fspath(source),
            hint="`tapewire archive ls` lists those that there are",
        )
    if not by_day:
        raise NotALog(
            "no log here is of one symbol",
            path=os.fspath(source),
            hint="this job reads clean logs: make them of raw ones by `tapewire etl refine`",
        )
    days: list[Day] = []
    for (venue, symbol), dates in groupby(sorted(by_day), key=lambda key: key[:2]):
        books: list[LogRef] = []  # of days that follow each other
        last = ""
        for _, _, date in dates:
            if last and date != LIVE and not follows(date, last):
                books = []
            logs = by_day[venue, symbol, date]
            days.append(Day(venue, symbol, date, logs, tuple(books)))
            if "book" in logs:
                books.append(logs["book"])
            last = date
    return days


def symbols_option(symbols: Iterable[str] | None) -> tuple[tuple[str | None, str], ...] | None:
    """`symbols` of a job as the source's options have them."""
    if symbols is None:
        return None
    given = [symbols] if isinstance(symbols, str) else list(symbols)
    return ReadOptions.parse({"path": ".", "symbols": ",".join(given)}).symbols


def day_bounds(date: str) -> tuple[int, int] | None:
    """First nanosecond of a UTC day and of the next; None of "live".

    Example:
        >>> day_bounds("1970-01-02")
        (86400000000000, 172800000000000)
    """
    if date == LIVE:
        return None
    start = day_start_ns(dt.date.fromisoformat(date))
    return start, start + DAY_NS


def chosen(days: Sequence[Day], dates: Iterable[str] | None) -> list[Day]:
    """The days that a job is about.

    Raises:
        InvalidOption: A date is none.
        NotALog: There is nothing of any of them.
    """
    if dates is None:
        return list(days)
    wanted = [dates] if isinstance(dates, str) else list(dates)
    for date in wanted:
        try:
            dt.date.fromisoformat(date)
        except ValueError:
            raise InvalidOption(f"not a day: dates={date!r}", hint="give YYYY-MM-DD") from None
    found = [day for day in days if day.date in wanted]
    if not found:
        known = sorted({day.date for day in days})
        there = known[0] if len(known) == 1 else f"{known[0]} … {known[-1]}"
        raise NotALog(f"no log is of this day: date={', '.join(wanted)}, there are {there}")
    return found


def input_of(log: LogRef) -> dict[str, Any]:
    """What tells one state of a log from another."""
    if log.kind != "queue":
        return {"path": log.path}
    seen = status(log.path)
    # A log made anew may end with the same number, and hardly ever at the same byte.
    end = [seen.end_segment, seen.end_offset]
    return {
        "path": log.path,
        "last_seq": seen.last_seq,
        "last_timestamp_ns": seen.last_timestamp_ns,
        "end": end,
        "epoch": seen.writer.epoch,
    }


def folder_of(target: str | os.PathLike[str], day: Day) -> Path:
    """Where the rows of a day lie below a table's folder."""
    return Path(target) / f"venue={day.venue}" / f"date={day.date}" / f"symbol={day.symbol}"


def write_parquet(path: Path, table: pa.Table) -> int:
    """Put a file where an earlier one may be: whole, durable, private; its bytes."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = path.with_name(f"_{path.name}.{os.getpid()}")
    try:
        with open(made, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)
    return path.stat().st_size
