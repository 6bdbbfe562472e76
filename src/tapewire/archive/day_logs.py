"""The archive logs that a tap writes: one for each stream and day, few of them open at a time."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from pathlib import Path

from tapewire.archive.companions import Stamp, TypesOf
from tapewire.archive.log_writer import LogWriter
from tapewire.archive.open_logs import OpenLogs
from tapewire.archive.record_columns import RecordColumns
from tapewire.archive.tree import Stream
from tapewire.bus.layout import ArchiveLayout
from tapewire.clock import date_of
from tapewire.config import WriterConfig
from tapewire.errors import InvalidOption, PayloadTooLarge, SequenceNotRising, TapewireError
from tapewire.files import is_queue, make_directories, sync
from tapewire.protocol import types_file
from tapewire.protocol.layout import MessageLayout

__all__ = ["DayLog", "OpenDayLogs"]

# Segment sizes of new logs: small where an archive has a log for each stream, symbol and day,
# larger where it has one for each venue. Either takes any snapshot of a book.
SEGMENT_BYTES = 4 << 20
RAW_SEGMENT_BYTES = 32 << 20
SYNC_THREADS = 8  # a disk takes the syncs of many files in the time of a few
LOG_DESCRIPTORS, QUEUE_DESCRIPTORS, OTHER_DESCRIPTORS = 4, 2, 64
LEAST_OPEN = 8
DURABLE_MOST = 10_000  # names that are remembered: those of some days


class DayLog(LogWriter):
    """The log of one stream and day, with the sequence numbers of the live queue.

    They rise in the queue, so they rise in each day's log: a record below `end_seq` was archived by
    a tap that was killed before it committed.
    """

    def __init__(self, path: Path, name: str, segment_bytes: int) -> None:
        self.name = name
        self._types: Stamp | bool = False  # which state of types.json it holds; False: none yet
        new = not is_queue(path)
        config = WriterConfig.archive(flush=None, sparse=True)  # the tap syncs, before it commits
        try:
            super().__init__(path, config, segment_bytes=segment_bytes, conflict=_conflict)
        except InvalidOption as error:
            if new:
                raise
            raise InvalidOption(
                "the archive's log was not written by a tap: it is not sparse",
                path=os.fspath(path),
                hint="archive into another directory, not where an import wrote this stream",
            ) from error

    def append(self, records: RecordColumns, layouts: Iterable[MessageLayout] = ()) -> None:
        """As `LogWriter.append`, with a hint of its own for a payload that is too large."""
        try:
            super().append(records, layouts)
        except PayloadTooLarge as error:
            error.hint = (
                "give segment_bytes=: it applies to new logs only, so move this day's log to "
                "another archive first"
            )
            raise

    def declare(self, types: TypesOf) -> str | None:
        """Copy what the live queue declares; returns why that failed, once for each change."""
        if self._types == types.stamp:
            return None
        try:
            types_file.merge(self.path, types.layouts)
        except OSError:
            raise  # no space: tried again later
        except TapewireError as error:
            self._types = types.stamp
            return str(error)
        self._types = types.stamp
        return None


def _conflict(path: Path, seq: int) -> SequenceNotRising:
    return SequenceNotRising(
        f"the archive holds another record under a sequence number of the live queue: seq={seq}",
        path=os.fspath(path),
        hint="the queue was created again, or lost its end in a power cut and assigned the numbers "
        "again: move this log to another archive and run the tap again",
    )


def may_be_open(queues: int) -> int:
    """How many logs may be open beside so many queues that are read.

    Two for each queue, for the time around midnight: with fewer than there are queues that get
    records, logs would be closed and opened again, with their syncs, at every step.

    Example:
        >>> may_be_open(10)
        256
    """
    wanted = max(256, 2 * queues)
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return wanted
    left = allowed - OTHER_DESCRIPTORS - QUEUE_DESCRIPTORS * queues
    return max(min(wanted, left // LOG_DESCRIPTORS), LEAST_OPEN)


class OpenDayLogs:
    """The day logs that a tap has open.

    Args:
        layout: The archive.
        segment_bytes: Segment size of new logs; None: 4 MiB, and 32 MiB for a log of a venue.
        most: How many may be open; None: as many as `may_be_open` returns.
        close_after: Seconds after which a log without new records is closed. No process then
            writes to a finished day: it can be read from other hosts, moved and packed.
    """

    def __init__(
        self,
        layout: ArchiveLayout,
        segment_bytes: int | None,
        most: int | None,
        close_after: float,
    ) -> None:
        self._layout = layout
        self._segment_bytes = segment_bytes
        self._most = most
        self._close_after = close_after
        self._durable: set[Path] = set()  # directories whose own names are
        self._open: OpenLogs[tuple[Stream, int], DayLog] = OpenLogs(
            most or may_be_open(0), sync_threads=SYNC_THREADS
        )

    def __len__(self) -> int:
        return len(self._open)

    def expect_queues(self, queues: int) -> None:
        """Set how many live queues are followed: the number of open logs may depend on it."""
        self._open.most = self._most or may_be_open(queues)

    def get(self, stream: Stream, day: int) -> DayLog:
        """The log of this day, opened or created."""
        return self._open.get((stream, day), lambda: self._opened(stream, day))

    def sync(self) -> None:
        """Make everything appended so far durable."""
        self._open.sync()

    def close_idle(self) -> None:
        """Close the logs without new records for `close_after` seconds."""
        self._open.close_idle(self._close_after)

    def close(self) -> None:
        """Sync and close every log."""
        self._open.close()

    def _opened(self, stream: Stream, day: int) -> DayLog:
        path = stream.log(self._layout, date_of(day))
        usual = RAW_SEGMENT_BYTES if stream.symbol is None else SEGMENT_BYTES
        name = path.relative_to(self._layout.root).as_posix()
        if not is_queue(path):  # else they were durable before its first record
            self._make_durable(path)
        return DayLog(path, name, self._segment_bytes or usual)

    def _make_durable(self, directory: Path) -> None:
        """Sync the directory of a log and those above it: a killed tap may not have come to it."""
        if len(self._durable) > DURABLE_MOST:
            self._durable.clear()
        if directory in self._durable:
            return
        if directory == self._layout.root:
            make_directories(directory)
            return
        self._make_durable(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        sync(directory.parent)
        self._durable.add(directory)
