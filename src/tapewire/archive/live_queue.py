"""A live queue as a tap reads it: in order, damage skipped, every loss reported."""

from __future__ import annotations

import itertools
import os

import numpy as np

from tapewire.archive.companions import TypesOf
from tapewire.archive.tap_report import SourceReport, TapReport
from tapewire.archive.tap_sources import TapSource
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
_NEWEST_DAYS = 3  # a stream's logs that are searched for the last record archived
_CAUSE_MOST = 200  # characters


class LiveQueue:
    """One queue and the tap's pinned reader of it.

    Attributes:
        stream: What it carries.
        types: The messages that its writer has declared.
        report: What was archived from it.
        pending: A batch was read and is not completely archived.
        uncommitted: Records were archived since the last commit.
        archived_next: The sequence number after the last record that the archive had at the start;
            None if it had none.
        at_end: Every record that existed at the start is read.
    """

    def __init__(
        self, source: TapSource, name: str, layout: ArchiveLayout, tap_report: TapReport
    ) -> None:
        self.source = source
        self.stream = source.stream
        self.types = TypesOf(source.queue)
        self.report = SourceReport(os.fspath(source.queue), str(source.stream))
        self.pending = False
        self.uncommitted = False
        self.at_end = False
        self.archived_next: int | None = None
        self._layout = layout
        self.identity = identity_of(source)
        self._tap_report = tap_report
        self._ends: set[int] = set()  # the sequence number after the last record of each log
        self._lost: list[str] = []  # causes of losses since the last record archived
        self._lost_reported = 0  # how many of those were reported although no record came
        self._read_seq: int | None = None  # of the last record read
        self._archived_seq: int | None = None  # of the last record archived
        self._restart: tuple[int, int] | None = None
        self._stuck: str | None = None
        # Before anything else: another tap of this name may be writing to the same archive logs.
        self._reader = self._open(name)
        try:
            self._load_ends(_NEWEST_DAYS)
            self._seek_archived_end()
            self._end_at_start = self._end_before_a_writer()
            if self.archived_next is None:
                self._report_late_start()
        except BaseException:
            self._reader.close()
            raise

    def _open(self, name: str) -> Reader:
        queue = self.source.queue
        try:
            return open_subscriber(queue, name, pinned=True)
        except SegmentMissing as error:
            if error.first_available_seq is None:
                raise
            self.add_loss(error.message)
            return open_subscriber(queue, name, pinned=True, start=Seq(error.first_available_seq))
        except CorruptMetadata as error:
            # The archive shows what is archived, not the reader's file.
            reader = open_subscriber(queue, name, pinned=True, start="earliest")
            self._add_finding(f"read again from its start: {error.message}")
            return reader

    def _seek_archived_end(self) -> None:
        """Seek back to the end of this archive if the reader's position is past it.

        The position shows what a tap of this name has archived somewhere: perhaps in another
        archive, or in logs that have been removed.
        """
        if self._is_ahead_of_archive():
            self._load_ends()
            if self._is_ahead_of_archive():
                self._reader.seek_seq(self.archived_next or 0)

    def _is_ahead_of_archive(self) -> bool:
        with open_reader(self.source.queue) as scout:
            try:
                scout.seek_seq(self.archived_next or 0)
            except (CorruptRecord, GapDetected, SegmentMissing):
                return False  # damaged there: only the position is left
            return tuple(scout.position) < tuple(self._reader.position)

    def _load_ends(self, newest: int | None = None) -> None:
        """Read where the newest logs end. A late last record may be in an older one."""
        days = itertools.islice(self.stream.days(self._layout), newest)
        last = [status(self.stream.log(self._layout, day)).last_seq for day in days]
        self._ends = {seq + 1 for seq in last if seq is not None}
        self.archived_next = max(self._ends, default=None)

    def _end_before_a_writer(self) -> tuple[int, int] | None:
        """Where the queue ends now; None without a writer, because reading then ends by itself."""
        seen = status(self.source.queue)
        return (seen.end_segment, seen.end_offset) if seen.writer.alive else None

    def _report_late_start(self) -> None:
        seen = status(self.source.queue)
        first = seen.first_available_seq
        retired = bool(seen.segments) and seen.segments[0].id > 0  # else its start is damaged
        if retired and first is not None and first > seen.first_seq and not seen.sparse:
            self._add_finding(
                f"records {seen.first_seq} to {first - 1} were retired before the "
                "first tap: the archive starts after them"
            )

    # ---- reading --------------------------------------------------------------------------------

    def read(self) -> Batch | None:
        """The next records in ascending order; None while there are none.

        Raises:
            SequenceNotRising: The sequence numbers of the queue restart here.
        """
        batch = self._read()
        end = self._end_at_start
        self.at_end = batch is None or (end is not None and tuple(self._reader.position) >= end)
        return batch

    def _read(self) -> Batch | None:
        if self._restart is not None:
            before, after = self._restart
            raise SequenceNotRising(
                f"the sequence numbers of the live queue restart: seq={after} after {before}",
                path=os.fspath(self.source.queue),
                hint="another implementation wrote it, and a log cannot hold two records with one "
                "sequence number: copy the queue into one that Tapewire numbers, and tap that",
            )
        while True:
            try:
                batch = self._reader.read_batch(BATCH_RECORDS)
                # A record after a lost commit word is damage too: `wait` raises it.
                if len(batch) == 0 and not self._reader.wait(0):
                    self._report_lost_end()
                    return None
            except GapDetected as error:
                self.add_loss(error.message)  # raised once: the reader has skipped it
            except (CorruptRecord, CorruptMetadata, SegmentMissing) as error:
                if not self._skip(error):
                    return None
            else:
                self._stuck = None
                if len(batch):
                    return self._rising(batch)

    def wait(self, seconds: float) -> None:
        """Wait for more records, at most so long."""
        if self._stuck is None:
            try:
                self._reader.wait(seconds)
            except (GapDetected, CorruptRecord, CorruptMetadata, SegmentMissing):
                return  # `read` handles it

    @property
    def stuck(self) -> bool:
        """Whether no valid record follows the damage that it is at, until a writer repairs that."""
        return self._stuck is not None

    def _skip(self, error: TapewireError) -> bool:
        """Skip what is damaged or missing; False: no valid record follows it yet."""
        skipped = self._reader.skip_damaged()
        if skipped.bytes:
            self.add_loss(f"{error.message} ({skipped.bytes} bytes of segment {skipped.segment})")
            return True
        if isinstance(error, SegmentMissing) and error.first_available_seq is not None:
            ahead = max(
                error.first_available_seq, 0 if self._read_seq is None else self._read_seq + 1
            )
            if self._reader.seek_seq(ahead):
                self.add_loss(error.message)
                return True
        if self._stuck != error.message:
            self._stuck = error.message
            self._add_finding(f"damaged, and no valid record follows yet: {error}")
        return False

    def _report_lost_end(self) -> None:
        """Report losses that no record follows, once: a gap is noted with the next record."""
        for why in self._lost[self._lost_reported :]:
            self._add_finding(f"damaged, and no valid record follows yet: {why}")
        self._lost_reported = len(self._lost)

    def _rising(self, batch: Batch) -> Batch:
        """The records up to where sequence numbers restart, if they do."""
        seqs = batch.seq
        if self._read_seq is not None and int(seqs[0]) <= self._read_seq:
            self._restart = self._read_seq, int(seqs[0])
            none: Batch = batch[:0]
            return none
        falls = np.flatnonzero(seqs[1:] <= seqs[:-1])
        if len(falls):
            at = int(falls[0])
            self._restart = int(seqs[at]), int(seqs[at + 1])
            seqs = seqs[: at + 1]
        self._read_seq = int(seqs[-1])
        rising: Batch = batch[: len(seqs)]
        return rising

    # ---- what is missing ------------------------------------------------------------------------

    def _add_finding(self, text: str) -> None:
        self._tap_report.add_finding(f"{self.stream}: {text}")

    def add_loss(self, why: str) -> None:
        """Note that records before the next one are missing, and why."""
        self._lost.append(why)

    def gap_before(self, seq: int, timestamp_ns: int) -> Gap | None:
        """The gap in the archive before this record, which is about to be archived."""
        first = self._first_not_archived()
        if self._archived_seq is None and first is not None and seq > first:
            self._load_ends()
            first = self._first_not_archived()
            retired = first is not None and seq > first
            if retired and not self._lost and not self._reader.sparse:
                self.add_loss("retired from the live queue before the tap had read it")
        if not self._lost:
            return None
        cause = "; ".join(dict.fromkeys(self._lost))[:_CAUSE_MOST]
        if first is None or first >= seq:
            # The archive has these records, or their sequence numbers are not known.
            self._add_finding(f"before record {seq}: {cause}")
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
            "skipped by the tap",
        )

    def _first_not_archived(self) -> int | None:
        kept = None if self._archived_seq is None else self._archived_seq + 1
        return max((n for n in (self.archived_next, kept) if n), default=None)

    def report_restart(self, seq: int) -> None:
        """Report a new record with a lower sequence number than the archive holds.

        If it follows the last record of one of the archive's logs, the tap that wrote that one has
        reported it.
        """
        if self.archived_next is not None and seq < self.archived_next:
            if seq not in self._ends:
                self._add_finding(
                    f"sequence numbers go back from {self.archived_next - 1} to "
                    f"{seq}: the live queue was created again, or an archive log lost its end in a "
                    "power cut"
                )
            self.archived_next = None

    def forget_archived(self) -> None:
        """The queue was created again, which is reported: the archive's records are not its own."""
        self.archived_next = None

    def note_archived(self, batch: Batch, already: int, gap: Gap | None) -> None:
        """Count archived records, the first `already` of which existed, and the gap before them."""
        self.uncommitted = True
        self._lost.clear()
        self._lost_reported = 0
        self._archived_seq = int(batch.seq[-1])
        self.report.records += len(batch) - already
        self.report.bytes += batch[already:].payload_bytes
        self.report.already += already
        self.report.last_seq = self._archived_seq
        self.report.last_timestamp_ns = int(batch.timestamp_ns[-1])
        if gap is not None:
            self.report.gaps += 1
            self._add_finding(f"records {gap.first} to {gap.last} are missing: {gap.cause}")

    # ---- committing and closing -----------------------------------------------------------------

    def commit(self) -> None:
        """Commit what was read: it is durable in the archive, and retention may delete it."""
        if self.uncommitted and not self.pending and not self._lost:
            self._reader.commit()
            self.uncommitted = False

    @property
    def closed(self) -> bool:
        """Whether it is no longer followed."""
        return self._reader.closed

    def close(self) -> None:
        """Close the reader. It is pinned: its position and the records after it are kept."""
        self._reader.close()

    def __repr__(self) -> str:
        return f"<LiveQueue {str(self.stream)!r} {self._reader!r}>"


def identity_of(source: TapSource) -> tuple[int, int] | None:
    """Device and inode of the queue: one that is created again in its place has others."""
    try:
        found = os.stat(source.queue / "control.meta")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
