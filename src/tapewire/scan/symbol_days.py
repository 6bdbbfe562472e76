"""The clean logs of an archive or a bus by symbol and day: the parts of most jobs."""

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
    "SymbolDay",
    "day_bounds",
    "days_of",
    "log_state",
    "on_dates",
    "partition_directory",
    "symbols_option",
    "write_parquet",
]

REPORT = "_report.html"  # Spark reads every file of a table, except those that begin with "_"
LIVE = "live"  # the date of a log whose path has none: a clean queue of a bus


@dataclass(frozen=True)
class SymbolDay:
    """The logs of one symbol on one day.

    Attributes:
        venue: The venue.
        symbol: The symbol.
        date: The UTC day as ``YYYY-MM-DD``, or "live".
        logs: The logs by stream.
        before: Book logs of the consecutive days before, in order. They end at a missing day: a
            book that is days old must not be continued.
    """

    venue: str
    symbol: str
    date: str
    logs: Mapping[str, LogRef] = field(default_factory=dict)
    before: tuple[LogRef, ...] = ()

    @property
    def name(self) -> str:
        """The name of the part of a job."""
        return f"{self.venue}/{self.symbol}/{self.date}"

    @property
    def title(self) -> str:
        """The heading in a report."""
        return f"{self.symbol} · {self.venue} · {self.date}"


def days_of(source: str | os.PathLike[str], options: ReadOptions) -> list[SymbolDay]:
    """The days of each symbol of an archive or a bus, in order.

    Raises:
        NotALog: There is no log of a single symbol.
    """
    by_day: dict[tuple[str, str, str], dict[str, LogRef]] = {}
    for log in resolve(os.fspath(source), options):
        if log.venue is not None and log.symbol is not None and log.stream is not None:
            key = (log.venue, log.symbol, log.date or LIVE)
            by_day.setdefault(key, {})[log.stream] = log
    if not by_day and options.symbols is not None:
        names = ", ".join(f"{venue}:{one}" if venue else one for venue, one in options.symbols)
        raise NotALog(
            f"there is no log of this symbol: symbol={names}",
            path=os.fspath(source),
            hint="`tapewire archive ls` lists the symbols",
        )
    if not by_day:
        raise NotALog(
            "there is no log of a single symbol",
            path=os.fspath(source),
            hint="this job reads clean logs; `tapewire etl refine` writes them from raw logs",
        )
    days: list[SymbolDay] = []
    for (venue, symbol), dates in groupby(sorted(by_day), key=lambda key: key[:2]):
        books: list[LogRef] = []  # of consecutive days
        last = ""
        for _, _, date in dates:
            if last and date != LIVE and not follows(date, last):
                books = []
            logs = by_day[venue, symbol, date]
            days.append(SymbolDay(venue, symbol, date, logs, tuple(books)))
            if "book" in logs:
                books.append(logs["book"])
            last = date
    return days


def symbols_option(symbols: Iterable[str] | None) -> tuple[tuple[str | None, str], ...] | None:
    """The argument `symbols` of a job as `ReadOptions.symbols`."""
    if symbols is None:
        return None
    given = [symbols] if isinstance(symbols, str) else list(symbols)
    return ReadOptions.parse({"path": ".", "symbols": ",".join(given)}).symbols


def day_bounds(date: str) -> tuple[int, int] | None:
    """First nanosecond of a UTC day and of the next day; None for "live".

    Example:
        >>> day_bounds("1970-01-02")
        (86400000000000, 172800000000000)
    """
    if date == LIVE:
        return None
    start = day_start_ns(dt.date.fromisoformat(date))
    return start, start + DAY_NS


def on_dates(days: Sequence[SymbolDay], dates: Iterable[str] | None) -> list[SymbolDay]:
    """The days with one of these dates; None: all days.

    Raises:
        InvalidOption: A date is invalid.
        NotALog: There is no log of these dates.
    """
    if dates is None:
        return list(days)
    wanted = [dates] if isinstance(dates, str) else list(dates)
    for date in wanted:
        try:
            dt.date.fromisoformat(date)
        except ValueError:
            raise InvalidOption(f"invalid date: dates={date!r}", hint="give YYYY-MM-DD") from None
    found = [day for day in days if day.date in wanted]
    if not found:
        known = sorted({day.date for day in days})
        existing = known[0] if len(known) == 1 else f"{known[0]} … {known[-1]}"
        raise NotALog(
            f"there is no log of this date: date={', '.join(wanted)}, available={existing}"
        )
    return found


def log_state(log: LogRef) -> dict[str, Any]:
    """What identifies the state of a log: it differs once the log has changed."""
    if log.kind != "queue":
        return {"path": log.path}
    seen = status(log.path)
    # A log written again may end with the same `seq`, but hardly ever at the same byte.
    end = [seen.end_segment, seen.end_offset]
    return {
        "path": log.path,
        "last_seq": seen.last_seq,
        "last_timestamp_ns": seen.last_timestamp_ns,
        "end": end,
        "epoch": seen.writer.epoch,
    }


def partition_directory(target: str | os.PathLike[str], day: SymbolDay) -> Path:
    """The directory of the rows of a day below the directory of a table."""
    return Path(target) / f"venue={day.venue}" / f"date={day.date}" / f"symbol={day.symbol}"


def write_parquet(path: Path, table: pa.Table) -> int:
    """Write or replace a private file atomically and durably; its size in bytes."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"_{path.name}.{os.getpid()}")
    try:
        with open(new, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    return path.stat().st_size
