"""A live queue as a tap reads it: in order, past what is damaged, nothing missing silently."""

from __future__ import annotations

import itertools
import os

import numpy as np

from tapewire.archive.companions import TypesOf
from tapewire.archive.origins import Origin
from tapewire.archive.tap_report import SourceReport, TapReport
from tapewire.book.gaps import Gap
from tapewire.bus.layout import ArchiveLayout
from tapewire.config import Seq
from tapewire.errors import (
    CorruptMetadata,
    CorruptRecord,
    GapDetected,
    SegmentMissing,
    SequenceNotRising,
    TapewireError,
)
from tapewire.log import Batch
from tapewire.queue import Reader, open_reader, open_subscriber, status

__all__ = ["LiveQueue"]

BATCH_RECORDS = 65_536
_NEWEST_DAYS = 3  # of a stream's logs: where the last number archived is looked for
_CAUSE_MOST = 200  # characters of a cause in the ledger


class LiveQueue:
    """One queue and the tap's pinned reader of it.

    Attributes:
        stream: What it carries.
        types: What its writer has declared.
        report: What became of it.
        pending: A batch is being archived: what was read is more than what was archived.
        uncommitted: Something was archived since the last commit.
        archived_next: The number behind the last one that the archive had at the beginning; None
            when it had none.
        at_end: All that was there when it was attached is read.
        closed: It is followed no more.
    """

    def __init__(self, origin: Origin, name: str, layout: ArchiveLayout, found: TapReport) -> None:
        self.origin = origin
        self.stream = origin.stream
        self.types = TypesOf(origin.queue)
        self.report = SourceReport(os.fspath(origin.queue), str(origin.stream))
        self.pending = False
        self.uncommitted = False
        self.at_end = False
        self.archived_next: int | None = None
        self._layout = layout
        self.identity = identity_of(origin)
        self._found = found
        self._ends: set[int] = set()  # the number behind the last one of each log looked at
        self._lost: list[str] = []  # why, since the last record that was archived
        self._seen: int | None = None  # number of the last record read
        self._kept: int | None = None  # and of the last one that went into the archive
        self._restart: tuple[int, int] | None = None
        self._end_told = 0  # how many of those were told since no record came
        self._stuck: str | None = None
        # First of all: whoever holds the name may be writing those very logs of the archive.
        self._reader = self._open(name)
        try:
            self._look_at_days(_NEWEST_DAYS)
            self._go_back()
            self._end_at_first = self._end_before_a_writer()
            if self.archived_next is None:
                self._tell_late_begin()
        except BaseException:
            self._reader.close()
            raise

    def _open(self, name: str) -> Reader:
        queue = self.origin.queue
        try:
            return open_subscriber(queue, name, pinned=True)
        except SegmentMissing as error:
            if error.first_available_seq is None:
                raise
            self.lose(error.message)
            return open_subscriber(queue, name, pinned=True, start=Seq(error.first_available_seq))
        except CorruptMetadata as error:
            # What is archived already is told by the archive, not by the reader's file.
            reader = open_subscriber(queue, name, pinned=True, start="earliest")
            self._found.find(f"{self.stream}: read again from its start: {error.message}")
            return reader

    def _go_back(self) -> None:
        """To what this archive lacks, where the reader's place is behind that.

        The place tells what a tap of this name has archived somewhere: perhaps in another archive,
        or in logs that are here no more.
        """
        if self._is_ahead_of_archive():
            self._look_at_days()
            if self._is_ahead_of_archive():
                self._reader.seek_seq(self.archived_next or 0)

    def _is_ahead_of_archive(self) -> bool:
        with open_reader(self.origin.queue) as scout:
            try:
                scout.seek_seq(self.archived_next or 0)
            except (CorruptRecord, GapDetected, SegmentMissing):
                return False  # damaged around there: the place is all there is to go by
            return tuple(scout.position) < tuple(self._reader.position)

    def _look_at_days(self, newest: int | None = None) -> None:
        """The newest so many; the last number may be in an old day's log: that of a late record."""
        days = itertools.islice(self.stream.days(self._layout), newest)
        last = [status(self.stream.log(self._layout, day)).last_seq for day in days]
        self._ends = {seq + 1 for seq in last if seq is not None}
        self.archived_next = max(self._ends, default=None)

    def _end_before_a_writer(self) -> tuple[int, int] | None:
        """Where the queue ends now; None without a writer: reading then ends by itself."""
        seen = status(self.origin.queue)
        return (seen.end_segment, seen.end_offset) if seen.writer.alive else None

    def _tell_late_begin(self) -> None:
        seen = status(self.origin.queue)
        first = seen.first_available_seq
        retired = bool(seen.segments) and seen.segments[0].id > 0  # else its front is damaged
        if retired and first is not None and first > seen.first_seq and not seen.sparse:
            self._found.find(
                f"{self.stream}: records {seen.first_seq} to {first - 1} were retired before the "
                "first tap: the archive begins behind them"
            )

    # ---- reading --------------------------------------------------------------------------------

    def read(self) -> Batch | None:
        """The next records, numbers rising; None while there are none.

        Raises:
            SequenceNotRising: The queue's numbers begin anew here.
        """
        batch = self._read()
        end = self._end_at_first
        self.at_end = batch is None or (end is not None and tuple(self._reader.position) >= end)
        return batch

    def _read(self) -> Batch | None:
        if self._restart is not None:
            before, after = self._restart
            raise SequenceNotRising(
                f"the numbers of the live queue begin anew: seq={after} behind {before}",
                path=os.fspath(self.origin.queue),
                hint="another implementation wrote it: an archive cannot hold a number twice; "
                "copy the queue into one that Tapewire numbers, and tap that",
            )
        while True:
            try:
                batch = self._reader.read_batch(BATCH_RECORDS)
                # A record that hides behind a lost commit word is damage too: `wait` raises it.
                if len(batch) == 0 and not self._reader.wait(0):
                    self._tell_lost_end()
                    return None
            except GapDetected as error:
                self.lose(error.message)  # told once: the reader has gone on by itself
            except (CorruptRecord, CorruptMetadata, SegmentMissing) as error:
                if not self._pass(error):
                    return None
            else:
                self._stuck = None
                if len(batch):
                    return self._rising(batch)

    def wait(self, seconds: float) -> None:
        """For more records, at most so long."""
        if self._stuck is None:
            try:
                self._reader.wait(seconds)
            except (GapDetected, CorruptRecord, CorruptMetadata, SegmentMissing):
                return  # `read` sees to it

    @property
    def stuck(self) -> bool:
        """It stands before damage with nothing right behind it, until a writer mends that."""
        return self._stuck is not None

    def _pass(self, error: TapewireError) -> bool:
        """Go on behind what is damaged or gone; False: there is nothing right behind it yet."""
        skipped = self._reader.skip_damaged()
        if skipped.bytes:
            self.lose(f"{error.message} ({skipped.bytes} bytes of segment {skipped.segment})")
            return True
        if isinstance(error, SegmentMissing) and error.first_available_seq is not None:
            ahead = max(error.first_available_seq, 0 if self._seen is None else self._seen + 1)
            if self._reader.seek_seq(ahead):
                self.lose(error.message)
                return True
        if self._stuck != error.message:
            self._stuck = error.message
            self._found.find(f"{self.stream}: damaged, and nothing right behind it yet: {error}")
        return False

    def _tell_lost_end(self) -> None:
        """What was passed over, and no record behind it to tell it with: told once."""
        for why in self._lost[self._end_told :]:
            self._found.find(f"{self.stream}: damaged, and nothing right behind it yet: {why}")
        self._end_told = len(self._lost)

    def _rising(self, batch: Batch) -> Batch:
        """The records up to where numbers begin anew, if they do."""
        numbers = batch.seq
        if self._seen is not None and int(numbers[0]) <= self._seen:
            self._restart = self._seen, int(numbers[0])
            none: Batch = batch[:0]
            return none
        falls = np.flatnonzero(numbers[1:] <= numbers[:-1])
        if len(falls):
            at = int(falls[0])
            self._restart = int(numbers[at]), int(numbers[at + 1])
            numbers = numbers[: at + 1]
        self._seen = int(numbers[-1])
        rising: Batch = batch[: len(numbers)]
        return rising

    # ---- what is missing ------------------------------------------------------------------------

    def lose(self, why: str) -> None:
        """Something before the next record is missing."""
        self._lost.append(why)

    def gap_before(self, seq: int, timestamp_ns: int) -> Gap | None:
        """What the archive lacks before this record, which is about to be archived."""
        first = self._first_not_kept()
        if self._kept is None and first is not None and seq > first:
            self._look_at_days()
            first = self._first_not_kept()
            retired = first is not None and seq > first
            if retired and not self._lost and not self._reader.sparse:
                self.lose("retired from the live queue before the tap had read it")
        if not self._lost:
            return None
        cause = "; ".join(dict.fromkeys(self._lost))[:_CAUSE_MOST]
        if first is None or first >= seq:
            # The archive has them already, or which numbers they were is not known.
            self._found.find(f"{self.stream}: before record {seq}: {cause}")
            return None
        return Gap(
            "record",
            self.stream.venue,
            self.stream.symbol or "",
            self.stream.stream,
            first,
            seq - 1,
            seq,
            timestamp_ns,
            cause,
            "passed over by the tap",
        )

    def _first_not_kept(self) -> int | None:
        kept = None if self._kept is None else self._kept + 1
        return max((n for n in (self.archived_next, kept) if n), default=None)

    def tell_if_anew(self, seq: int) -> None:
        """That a record was not in the archive although the archive holds higher numbers.

        Where it goes on right behind one of the archive's logs, whoever wrote that has told it.
        """
        if self.archived_next is not None and seq < self.archived_next:
            if seq not in self._ends:
                self._found.find(
                    f"{self.stream}: numbers go back, from {self.archived_next - 1} to {seq}: the "
                    "live queue was made anew, or a power cut took the end of one of the archive's "
                    "logs"
                )
            self.archived_next = None

    def is_known_to_be_new(self) -> None:
        """It was told that the queue was made anew: what the archive holds is of another."""
        self.archived_next = None

    def kept(self, batch: Batch, already: int, gap: Gap | None) -> None:
        """These records are in the archive, `already` of them from before, and the gap is noted."""
        self.uncommitted = True
        self._lost.clear()
        self._end_told = 0
        self._kept = int(batch.seq[-1])
        self.report.records += len(batch) - already
        self.report.bytes += batch[already:].payload_bytes
        self.report.already += already
        self.report.last_seq = self._kept
        self.report.last_timestamp_ns = int(batch.timestamp_ns[-1])
        if gap is not None:
            self.report.gaps += 1
            self._found.find(
                f"{self.stream}: records {gap.first} to {gap.last} are missing: {gap.cause}"
            )

    # ---- letting go -----------------------------------------------------------------------------

    def commit(self) -> None:
        """All that was read is durable in the archive: retention may take it."""
        if self.uncommitted and not self.pending and not self._lost:
            self._reader.commit()
            self.uncommitted = False

    @property
    def closed(self) -> bool:
        """Whether it is followed no more."""
        return self._reader.closed

    def close(self) -> None:
        """Give the reader up; pinned, it keeps its place and what lies behind."""
        self._reader.close()

    def __repr__(self) -> str:
        return f"<LiveQueue {str(self.stream)!r} {self._reader!r}>"


def identity_of(origin: Origin) -> tuple[int, int] | None:
    """Which queue lies there: one that is made anew in its place is another."""
    try:
        found = os.stat(origin.queue / "control.meta")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
