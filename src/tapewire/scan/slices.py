"""Cuts logs into slices that can be read anywhere and together are exactly the range."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tapewire.damage import SkippedDamage
from tapewire.errors import CorruptMetadata
from tapewire.log import Reader, open_log
from tapewire.queue._native import indexed_seqs
from tapewire.queue.status import QueueStatus, QueueWatch, SegmentStatus
from tapewire.scan.damaged import DAMAGE
from tapewire.scan.logs import LogRef
from tapewire.scan.slice_reader import SliceDamage, walk

if TYPE_CHECKING:
    from tapewire.scan.options import ReadOptions

__all__ = ["END", "SLICE_BYTES", "Slice", "bytes_of", "plan"]

# Maximum size of a slice without `partitions`: a task that fails does not lose much work.
SLICE_BYTES = 256 << 20
END = 2**64


@dataclass(frozen=True)
class Slice:
    """The records of one log from `seq_from` up to, but not including, `seq_to`.

    Attributes:
        log: The log.
        seq_from: First sequence number.
        seq_to: Sequence number after the last.
        count: For a log whose sequence numbers restart, so that they do not identify records: the
            number of records from the start of the range on, in file order. The sequence numbers
            then only select among them.
        exact: There was a record `seq_from` at planning time: it is an error if it is missing.
        bytes: Approximate size in bytes.
    """

    log: LogRef
    seq_from: int
    seq_to: int
    count: int | None = None
    exact: bool = True
    bytes: int = 0


def plan(logs: Sequence[LogRef], options: ReadOptions, wanted: int) -> list[Slice]:
    """Slices of all logs, in the order of the logs and of their records.

    They end at the last record at planning time: later records are in no slice. There may be fewer
    slices than wanted, since cuts are made at entries of the seek index, and more, since each log
    has at least one.

    Example:
        >>> import tapewire as tw
        >>> from tapewire.scan.logs import resolve
        >>> from tapewire.scan.options import ReadOptions
        >>> with tw.open_publisher(tmp / "q", segment_bytes=1 << 20, index_stride=8) as writer:
        ...     for number in range(100):
        ...         _ = writer.append(1, b"x")
        >>> options = ReadOptions()
        >>> slices = plan(resolve(str(tmp / "q"), options), options, 3)
        >>> slices[0].seq_from, slices[-1].seq_to, len(slices)
        (0, 100, 3)
    """
    ranges = [each for log in logs if (each := _range_of(log, options)) is not None]
    total = sum(each.bytes for each in ranges) or 1
    found: list[Slice] = []
    for each in ranges:
        count = max(1, round(wanted * each.bytes / total))
        if options.partitions is None:
            count = max(count, each.bytes // SLICE_BYTES)
        found += each.cut(count)
    return found


@dataclass(frozen=True)
class _Range:
    """The range to read of one log."""

    log: LogRef
    first: int
    end: int
    count: int | None
    seen: QueueStatus | None
    bytes: int
    exact: bool = True  # there is a record `first`

    def cut(self, count: int) -> list[Slice]:
        cuts: list[int] = []
        if count > 1 and self.count is None and self.seen is not None:
            cuts = self._existing(_cuts(self.log.path, self.seen, self.first, self.end, count))
        bounds = [self.first, *cuts, self.end]
        size = self.bytes // (len(bounds) - 1)
        return [
            Slice(self.log, low, high, self.count, self.exact or low != self.first, size)
            for low, high in itertools.pairwise(bounds)
        ]

    def _existing(self, cuts: list[int]) -> list[int]:
        """The cuts at which there is a valid record: entries of an index are hints."""
        kept = []
        with open_log(self.log.path) as reader:
            for seq in cuts:
                try:
                    record = reader.next() if reader.seek_seq(seq) else None
                except DAMAGE:
                    continue
                if record is not None and record.seq == seq:
                    kept.append(seq)
        return kept


def _range_of(log: LogRef, options: ReadOptions) -> _Range | None:
    if not log.may_meet(options.time_from, options.time_to):
        return None  # of an archive of years, only the days asked for are opened
    low, high = options.seq_from or 0, END if options.seq_to is None else options.seq_to
    if log.kind != "queue":
        return _Range(log, low, high, _count(log, options), None, 0)
    watch = QueueWatch(log.path)
    seen = watch.look()
    if all(segment.holds_records is False for segment in seen.segments):
        return None
    size = bytes_of(seen)
    restarts = seen.records is None and not seen.sparse
    if restarts or seen.first_available_seq is None or seen.last_seq is None:
        # They are None, too, if an end is damaged: counting meets the damage and reports it.
        return _Range(log, low, high, _count(log, options), seen, size)
    with open_log(log.path) as reader:
        damage = SliceDamage(options.on_damage == "skip")
        first = _place_at(reader, damage.sought(reader, low), options)
        if options.time_from is not None and first is not None:
            late = _place_at(reader, reader.seek_time(options.time_from), options)
            first = None if late is None else max(first, late, key=lambda each: each.seq)
        # Looked up after the first record: an earlier last record may have been retired by now,
        # together with everything before it.
        seen = watch.look()
        last = high if seen.last_seq is None else min(high, seen.last_seq + 1)
        if options.time_to is not None:
            beyond = _place_at(reader, reader.seek_time(options.time_to), options)
            last = last if beyond is None else min(last, beyond.seq)
    if seen.last_seq is not None and seen.last_seq < last < high:
        _check_end(log, seen, damage)
    if first is None or first.seq >= last:
        return None
    share = (last - first.seq) / max(1, (seen.last_seq or 0) + 1 - (seen.first_available_seq or 0))
    bytes_ = max(1, int(size * min(share, 1)))
    return _Range(log, first.seq, last, None, seen, bytes_, first.exact)


def bytes_of(seen: QueueStatus) -> int:
    """Approximate size of the records; the log of a day seldom fills its last segment."""
    begun = sum(segment.holds_records is not False for segment in seen.segments)
    return max(begun - 1, 0) * seen.segment_bytes + min(seen.end_offset, seen.segment_bytes)


def _check_end(log: LogRef, seen: QueueStatus, damage: SliceDamage) -> None:
    """Report unreadable segments at the end of a log: no slice reaches them."""
    for segment in reversed(seen.segments):
        if segment.readable:
            return
        damage.unreadable(
            CorruptMetadata(
                f"a segment at the end of the log is damaged: queue={log.name}",
                path=segment.path,
                hint='`tapewire verify` gives details; option("on_damage", "skip") reads the rest',
            )
        )


class _Place(NamedTuple):
    """The result of a seek."""

    seq: int
    exact: bool  # there is a valid record `seq`


def _place_at(reader: Reader, found: bool, options: ReadOptions) -> _Place | None:
    """The sequence number of the record that a seek found; None if there is none.

    If damage is skipped on the way, the first sequence number that is lost, as far as it is known:
    reading from there meets the damage and reports it.
    """
    if not found:
        return None
    lost: list[SkippedDamage] = []
    batch = next(walk(reader, SliceDamage(options.on_damage == "skip", lost.append), 1), None)
    if batch is None:
        return None
    seq = int(batch.seq[0])
    first = min((each.first for each in lost if each.first is not None), default=seq)
    return _Place(min(seq, first), first >= seq)


def _count(log: LogRef, options: ReadOptions) -> int:
    """The number of records from the start of the range on, counted by reading them."""
    count = 0
    reached = -(2**63)
    with open_log(log.path) as reader:
        if options.time_from is not None and not reader.seek_time(options.time_from):
            return 0
        for batch in walk(reader, SliceDamage(options.on_damage == "skip")):
            if options.time_to is not None:
                times = np.maximum.accumulate(np.maximum(batch.timestamp_ns, reached))
                before = int(np.searchsorted(times, options.time_to))
                if before < len(batch):
                    return count + before
                reached = int(times[-1])
            count += len(batch)
    return count


def _cuts(path: str, seen: QueueStatus, first: int, end: int, count: int) -> list[int]:
    """At most `count` - 1 sequence numbers that cut the range into similar parts."""
    segments = _segments_of(seen.segments, first, end)
    found = {segment.first_seq or 0 for segment in segments}
    if len(segments) < 4 * count:  # otherwise the starts of segments are close enough
        for segment in segments:
            found.update(indexed_seqs(path, segment.id))
    inside = sorted(seq for seq in found if first < seq < end)
    if len(inside) < count - 1:  # a short log: a seek past an entry costs little
        inside = sorted({*inside, *(first + (end - first) * i // count for i in range(1, count))})
        inside = [seq for seq in inside if seq > first]
    cuts = {inside[len(inside) * i // count] for i in range(1, count)} if inside else set()
    return sorted(cuts)


def _segments_of(segments: Iterable[SegmentStatus], first: int, end: int) -> list[SegmentStatus]:
    """The segments that overlap the range."""
    numbered = [segment for segment in segments if segment.first_seq is not None]
    next_firsts = [segment.first_seq or 0 for segment in numbered[1:]] + [END]
    return [
        segment
        for segment, next_first in zip(numbered, next_firsts, strict=True)
        if (segment.first_seq or 0) < end and next_first > first
    ]
