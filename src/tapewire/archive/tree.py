"""The contents of an archive: its logs by venue, symbol, UTC day and stream."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapewire.book.gaps import GapLedger
from tapewire.bus.layout import ArchiveLayout, is_day
from tapewire.errors import NotALog, TapewireError
from tapewire.files import directories_below, is_queue, path_below
from tapewire.queue import status

__all__ = ["RAW", "ArchivedLog", "LogPlace", "Stream", "ls", "walk"]

RAW = "raw"


@dataclass(frozen=True)
class Stream:
    """What one live queue carries: a stream of a symbol, or everything a venue's feed receives.

    Attributes:
        venue: The venue.
        symbol: The symbol; None in a multiplexed queue.
        stream: The stream, "raw" in a multiplexed queue.

    Example:
        >>> str(Stream("binance_spot", "BTCUSDT", "book")), str(Stream("binance_spot"))
        ('binance_spot/BTCUSDT/book', 'binance_spot/raw')
    """

    venue: str
    symbol: str | None = None
    stream: str = RAW

    def log(self, layout: ArchiveLayout, date: str | dt.date) -> Path:
        """The path of its log of one day in an archive."""
        if self.symbol is None:
            return layout.raw(self.venue, date)
        return layout.log(self.venue, self.symbol, date, self.stream)

    def days(self, layout: ArchiveLayout) -> Iterator[dt.date]:
        """The days for which an archive has a log of it, newest first.

        Lazily: an archive has years of days, and most callers need the last few.
        """
        if self.symbol is None:
            names = directories_below(path_below(layout.root, "raw", "v1", self.venue))
        else:
            names = layout.dates(self.venue, self.symbol)
        for name in reversed(names):
            if is_day(name) and is_queue(self.log(layout, name)):
                yield dt.date.fromisoformat(name)

    def __str__(self) -> str:
        return "/".join(part for part in (self.venue, self.symbol, self.stream) if part)


@dataclass(frozen=True)
class LogPlace:
    """A log of an archive by its path; the log is not opened."""

    stream: Stream
    date: dt.date
    path: Path


@dataclass(frozen=True)
class ArchivedLog:
    """One log of an archive.

    Attributes:
        log: Its path below the archive.
        venue: The venue.
        symbol: The symbol; None if the log holds all symbols of a venue.
        date: The UTC day of all its records.
        stream: "book", "trades" and so on; "raw" if the log holds all symbols of a venue.
        first_seq: Sequence number of the first record, or None.
        last_seq: Sequence number of the last record, or None.
        last_timestamp_ns: Time of the last record, or None.
        bytes: Size on disk.
        gaps: Number of gaps in its ledger.
        open: Whether a process is writing to it.
        problem: Why it cannot be read, or None.
    """

    log: str
    venue: str
    symbol: str | None
    date: dt.date
    stream: str
    first_seq: int | None
    last_seq: int | None
    last_timestamp_ns: int | None
    bytes: int
    gaps: int
    open: bool
    problem: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """A dict for JSON."""
        return {**dataclasses.asdict(self), "date": self.date.isoformat()}


def walk(root: str | os.PathLike[str]) -> Iterator[LogPlace]:
    """Every log of an archive, by venue, symbol, day and stream; raw logs last.

    Raises:
        FileNotFoundError: There is no such directory.
        NotALog: The directory is not an archive.
    """
    layout = ArchiveLayout(root)
    if not layout.root.is_dir():
        raise FileNotFoundError(2, "no such archive", os.fspath(root))
    if not (layout.root / "v1").is_dir() and not (layout.root / "raw" / "v1").is_dir():
        raise NotALog(
            "not an archive: it has neither v1/ nor raw/v1/",
            path=os.fspath(root),
            hint="give the directory that an import or a tap writes to",
        )
    for venue in layout.venues():
        for symbol in layout.symbols(venue):
            for name in layout.dates(venue, symbol):
                for stream in directories_below(path_below(layout.root, "v1", venue, symbol, name)):
                    of = Stream(venue, symbol, stream)
                    if _was_log(path := of.log(layout, name)):
                        yield LogPlace(of, dt.date.fromisoformat(name), path)
    for venue in directories_below(path_below(layout.root, "raw", "v1")):
        of = Stream(venue)
        for name in directories_below(path_below(layout.root, "raw", "v1", venue)):
            if is_day(name) and _was_log(path := of.log(layout, name)):
                yield LogPlace(of, dt.date.fromisoformat(name), path)


def ls(root: str | os.PathLike[str]) -> list[ArchivedLog]:
    """List the logs of an archive with their sizes; no record is read.

    Raises:
        FileNotFoundError: There is no such directory.
        NotALog: The directory is not an archive.

    Example:
        >>> import tapewire as tw
        >>> from tapewire import archive, bus
        >>> live = bus.Layout(tmp / "bus").streams.raw("binance_spot")
        >>> with tw.open_publisher(live, segment_bytes=1 << 20) as writer:
        ...     _ = writer.append(1, b"tick", timestamp_ns=1_767_225_600_000_000_000)
        >>> _ = archive.tap(tmp / "bus", tmp / "archive").run(follow=False)
        >>> [(one.log, one.last_seq) for one in archive.ls(tmp / "archive")]
        [('raw/v1/binance_spot/2026-01-01/raw', 0)]
    """
    return [_inspect(Path(root), place) for place in walk(root)]


def _inspect(root: Path, place: LogPlace) -> ArchivedLog:
    name = place.path.relative_to(root).as_posix()
    of = place.stream
    try:
        seen = status(place.path)
        gaps = len(GapLedger(place.path).read())
    except (TapewireError, OSError) as error:  # one damaged log does not hide the others
        problem = str(error)
    else:
        return ArchivedLog(
            name,
            of.venue,
            of.symbol,
            place.date,
            of.stream,
            seen.first_available_seq,
            seen.last_seq,
            seen.last_timestamp_ns,
            seen.disk_bytes,
            gaps,
            seen.writer.alive,
            "; ".join(seen.problems) or None,
        )
    unknown = (None, None, None, 0, 0, False, problem)
    return ArchivedLog(name, of.venue, of.symbol, place.date, of.stream, *unknown)


def _was_log(path: Path) -> bool:
    """Whether it is a log, or one without control.meta: it holds records that must be reported."""
    return is_queue(path) or next(path.glob("*.q"), None) is not None
