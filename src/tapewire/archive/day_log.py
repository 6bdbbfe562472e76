"""The logs of an archive that a tap writes: one a stream and day, few of them open at a time."""

from __future__ import annotations

import collections
import os
import resource
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import tapewire as tw
from tapewire.archive.companions import Stamp, TypesOf
from tapewire.archive.tree import Stream
from tapewire.book.gaps import Gap, GapLedger
from tapewire.bus.layout import ArchiveLayout
from tapewire.clock import date_of
from tapewire.config import WriterConfig
from tapewire.errors import InvalidOption, PayloadTooLarge, SequenceNotRising, TapewireError
from tapewire.files import is_queue, make_directories, sync
from tapewire.log import Batch
from tapewire.protocol import types_file

__all__ = ["DayLog", "OpenDayLogs"]

# Of new logs. Small where an archive has one for each stream, symbol and day, larger where it has
# one a venue; either takes any snapshot of a book.
SEGMENT_BYTES = 4 << 20
RAW_SEGMENT_BYTES = 32 << 20
SYNC_THREADS = 8  # a disk takes the syncs of many files in the time of a few
LOG_DESCRIPTORS, QUEUE_DESCRIPTORS, OTHER_DESCRIPTORS = 4, 2, 64
LEAST_OPEN = 8
DURABLE_MOST = 10_000  # names that are remembered: those of some days
_USER_FLAGS = 0xFF00  # the low bits are the writer's own


class DayLog:
    """One stream of one day: takes what is not there yet, and checks what is.

    Numbers rise in the live queue, so they rise in each day's log: a record whose number is below
    `next_seq` is there already, from a tap that was killed before it could commit.
    """

    def __init__(self, folder: Path, name: str, segment_bytes: int) -> None:
        self.folder = folder
        self.name = name
        self.dirty = False  # records that may be lost with the power
        self.used = time.monotonic()
        self._types: Stamp | bool = False  # which state of types.json it holds; False: none yet
        self._ledger = GapLedger(folder)
        config = WriterConfig.archive(flush=None, sparse=True)  # the tap syncs, before it commits
        new = not is_queue(folder)
        if new:
            config = config.replace(segment_bytes=segment_bytes)
        try:
            self._writer = tw.open_publisher(folder, config=config)
        except InvalidOption as error:
            if new:
                raise
            raise InvalidOption(
                "the archive's log was not written by a tap: its numbers cannot skip",
                path=os.fspath(folder),
                hint="archive into a folder of its own, not where an import wrote this stream",
            ) from error

    def present(self, batch: Batch) -> int:
        """How many of these records, from the first on, are there already."""
        return int(np.searchsorted(batch.seq, self._writer.next_seq))

    def append(self, batch: Batch) -> None:
        """Put records behind the others, but for those that are there, which are compared.

        Raises:
            SequenceNotRising: Another record is there under this number.
            DiskFull: Call it again with the same batch when there is room.
        """
        self.used = time.monotonic()
        there = self.present(batch)
        if there:
            self._compare(batch[:there])
            batch = batch[there:]
        if len(batch):
            self.dirty = True
            try:
                self._writer.append_batch(
                    batch.type_id,
                    batch,
                    timestamps_ns=batch.timestamp_ns,
                    flags=batch.flags & _USER_FLAGS,
                    seqs=batch.seq,
                )
            except PayloadTooLarge as error:
                error.hint = (
                    "give segment_bytes=: it counts for logs that are made from then on, so move "
                    "this day's log to another archive first"
                )
                raise

    def declare(self, types: TypesOf) -> str | None:
        """Take over what the live queue declares; what does not go with what is here, once."""
        if self._types == types.stamp:
            return None
        try:
            types_file.merge(self.folder, types.layouts)
        except OSError:
            raise  # no room: again later
        except TapewireError as error:
            self._types = types.stamp
            return str(error)
        self._types = types.stamp
        return None

    def note(self, gap: Gap) -> None:
        """Into the ledger beside it, on disk when this returns; once, however often it is told."""
        self._ledger.add(gap)

    def sync(self) -> None:
        """Make it safe from a loss of power."""
        self._writer.flush_sync()
        self.dirty = False

    def close(self) -> None:
        """Make it durable and let go of it. Again is no harm."""
        if not self._writer.closed:
            with self._writer:
                if self.dirty:
                    self.sync()

    def _compare(self, batch: Batch) -> None:
        """That these very records are here."""
        with tw.open_log(self.folder) as reader:
            reader.seek_seq(int(batch.seq[0]))
            at = 0
            while at < len(batch):
                here = reader.read_batch(len(batch) - at)
                if not _equal(batch[at : at + len(here)], here):
                    raise SequenceNotRising(
                        "the archive holds another record under a number of the live queue: "
                        f"seq={batch.seq[at]} or one of the {max(len(here), 1) - 1} behind it",
                        path=os.fspath(self.folder),
                        hint="the queue was made anew, or lost its end with the power and gave its "
                        "numbers again: move this log to another archive and run the tap again",
                    )
                at += len(here)

    def __repr__(self) -> str:
        return f"<DayLog {self.name!r}{' dirty' if self.dirty else ''}>"


def _equal(one: Batch, other: Batch) -> bool:
    return (
        len(one) == len(other) > 0
        and np.array_equal(one.seq, other.seq)
        and np.array_equal(one.timestamp_ns, other.timestamp_ns)
        and np.array_equal(one.type_id, other.type_id)
        and np.array_equal(one.flags & _USER_FLAGS, other.flags & _USER_FLAGS)
        and all(one.payload(i) == other.payload(i) for i in range(len(one)))
    )


def may_be_open(queues: int) -> int:
    """How many logs, beside so many queues that are read.

    Two for each queue, for the time around midnight: with fewer than there are queues that get
    records, logs would be closed and opened again, with all the syncs of that, at every step.

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
    """The day logs that are open: at most `most`, and none for long that gets nothing.

    Args:
        layout: The archive.
        segment_bytes: Of new logs; None: 4 MiB, and 32 MiB for a whole venue.
        most: How many may be open; the one that was used longest ago is closed for another. None:
            as `may_be_open` says.
        close_after: Seconds after which one that gets nothing is closed. A finished day is then
            nobody's: it can be read from other hosts, moved and packed.

    Attributes:
        queues: How many live queues are followed, for `may_be_open`.
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
        self.queues = 0
        self._durable: set[Path] = set()  # folders whose own names are
        self._close_after = close_after
        self._open: collections.OrderedDict[tuple[Stream, int], DayLog] = collections.OrderedDict()
        self._pool = ThreadPoolExecutor(SYNC_THREADS, "tapewire-archive-sync")

    def get(self, stream: Stream, day: int) -> DayLog:
        """The log of this day, opened or made."""
        log = self._open.get((stream, day))
        if log is None:
            most = self._most or may_be_open(self.queues)
            while len(self._open) >= most:
                self._let_go([next(iter(self._open))])
            folder = stream.log(self._layout, date_of(day))
            usual = RAW_SEGMENT_BYTES if stream.symbol is None else SEGMENT_BYTES
            name = folder.relative_to(self._layout.root).as_posix()
            if not is_queue(folder):  # else they were before its first record
                self._make_durable(folder)
            log = DayLog(folder, name, self._segment_bytes or usual)
            self._open[stream, day] = log
        self._open.move_to_end((stream, day))
        return log

    def _make_durable(self, folder: Path) -> None:
        """A log's folder and those above it: a killed tap may have made some, unsynced."""
        if len(self._durable) > DURABLE_MOST:
            self._durable.clear()
        if folder in self._durable:
            return
        if folder == self._layout.root:
            make_directories(folder)
            return
        self._make_durable(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        sync(folder.parent)
        self._durable.add(folder)

    def sync(self) -> None:
        """Make everything appended so far durable."""
        self._each([log for log in self._open.values() if log.dirty], DayLog.sync)

    def close_idle(self) -> None:
        """Close what got nothing for long."""
        before = time.monotonic() - self._close_after
        self._let_go([key for key, log in self._open.items() if log.used < before])

    def _let_go(self, keys: list[tuple[Stream, int]]) -> None:
        """Close these. One that cannot be made durable stays: a commit must not pass over it."""
        self._each([self._open[key] for key in keys if self._open[key].dirty], DayLog.sync)
        self._each([self._open.pop(key) for key in keys], DayLog.close)

    def close(self) -> None:
        """Make everything durable and let go of it."""
        try:
            self._each(list(self._open.values()), DayLog.close)
            self._open.clear()
        finally:
            self._pool.shutdown()

    def _each(self, logs: Iterable[DayLog], work: Any) -> None:
        logs = list(logs)
        if len(logs) == 1:
            work(logs[0])
        else:
            list(self._pool.map(work, logs))

    def __len__(self) -> int:
        return len(self._open)
