"""Cutting logs into slices, which can be read anywhere and together are exactly the range."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tapewire.damage import Passed
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

# Of a log in one slice, where nobody says how many are wanted: a task that fails is not much lost.
SLICE_BYTES = 256 << 20
END = 2**64


@dataclass(frozen=True)
class Slice:
    """The records of one log from `seq_from` up to, and without, `seq_to`.

    Attributes:
        log: The log.
        seq_from: First number.
        seq_to: Number behind the last.
        count: Of a log whose numbers do not lead to its records, since they have begun again: how
            many records there were from the start of the range on, in the order of the file. The
            numbers then only choose among them.
        exact: A record numbered `seq_from` was there when this was planned: it is an error when it
            is not there any more.
        bytes: About how many bytes of log it has.
    """

    log: LogRef
    seq_from: int
    seq_to: int
    count: int | None = None
    exact: bool = True
    bytes: int = 0


def plan(logs: Sequence[LogRef], options: ReadOptions, wanted: int) -> list[Slice]:
    """Slices of all logs, in the order of the logs and of their records.

    They end at the last record that was there: what a writer appends later is of no slice. There
    may be fewer than wanted, since cuts are made where the seek index knows a record; and more,
    since each log has one at least.

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
    """What is to be read of one log."""

    log: LogRef
    first: int
    end: int
    count: int | None
    seen: QueueStatus | None
    bytes: int
    exact: bool = True  # there is a record numbered `first`

    def cut(self, count: int) -> list[Slice]:
        cuts: list[int] = []
        if count > 1 and self.count is None and self.seen is not None:
            cuts = self._there(_cuts(self.log.path, self.seen, self.first, self.end, count))
        numbers = [self.first, *cuts, self.end]
        size = self.bytes // (len(numbers) - 1)
        return [
            Slice(self.log, low, high, self.count, self.exact or low != self.first, size)
            for low, high in itertools.pairwise(numbers)
        ]

    def _there(self, cuts: list[int]) -> list[int]:
        """Only the cuts at which there is a right record of that number: an index is a hint."""
        kept = []
        with open_log(self.log.path) as reader:
            for number in cuts:
                try:
                    record = reader.next() if reader.seek_seq(number) else None
                except DAMAGE:
                    continue
                if record is not None and record.seq == number:
                    kept.append(number)
        return kept


def _range_of(log: LogRef, options: ReadOptions) -> _Range | None:
    if not log.may_meet(options.time_from, options.time_to):
        return None  # of years of days, only those asked for are opened
    low, high = options.seq_from or 0, END if options.seq_to is None else options.seq_to
    if log.kind != "queue":
        return _Range(log, low, high, _count(log, options), None, 0)
    watch = QueueWatch(log.path)
    seen = watch.look()
    if all(segment.holds_records is False for segment in seen.segments):
        return None
    size = bytes_of(seen)
    begun_again = seen.records is None and not seen.sparse
    if begun_again or seen.first_available_seq is None or seen.last_seq is None:
        # None where an end is damaged, too: counting comes to it, and says so.
        return _Range(log, low, high, _count(log, options), seen, size)
    with open_log(log.path) as reader:
        damage = SliceDamage(options.on_damage == "skip")
        first = _number_at(reader, damage.sought(reader, low), options)
        if options.time_from is not None and first is not None:
            late = _number_at(reader, reader.seek_time(options.time_from), options)
            first = None if late is None else max(first, late, key=lambda each: each.seq)
        # After the first: what was last before it may be retired by now, and then so is all else.
        seen = watch.look()
        last = high if seen.last_seq is None else min(high, seen.last_seq + 1)
        if options.time_to is not None:
            beyond = _number_at(reader, reader.seek_time(options.time_to), options)
            last = last if beyond is None else min(last, beyond.seq)
    if seen.last_seq is not None and seen.last_seq < last < high:
        _check_end(log, seen, damage)
    if first is None or first.seq >= last:
        return None
    share = (last - first.seq) / max(1, (seen.last_seq or 0) + 1 - (seen.first_available_seq or 0))
    bytes_ = max(1, int(size * min(share, 1)))
    return _Range(log, first.seq, last, None, seen, bytes_, first.exact)


def bytes_of(seen: QueueStatus) -> int:
    """About how many bytes of records: a day's log seldom fills its last segment."""
    begun = sum(segment.holds_records is not False for segment in seen.segments)
    return max(begun - 1, 0) * seen.segment_bytes + min(seen.end_offset, seen.segment_bytes)


def _check_end(log: LogRef, seen: QueueStatus, damage: SliceDamage) -> None:
    """Tell of segments at the end of a log that cannot be read: no slice comes to them."""
    for segment in reversed(seen.segments):
        if segment.readable:
            return
        damage.unreadable(
            CorruptMetadata(
                f"a segment at the end of the log is damaged: queue={log.name}",
                path=segment.path,
                hint="`tapewire verify` says more; "
                'option("on_damage", "skip") goes on with what can be read',
            )
        )


class _Place(NamedTuple):
    """Where a seek came to."""

    seq: int
    exact: bool  # there is a right record of this number


def _number_at(reader: Reader, found: bool, options: ReadOptions) -> _Place | None:
    """Number of the record that a seek found; None when there is none.

    Of a damaged one that is to be passed over, where it can be known, the number that is lost: so
    whoever reads from there on meets the damage, and tells.
    """
    if not found:
        return None
    lost: list[Passed] = []
    batch = next(walk(reader, SliceDamage(options.on_damage == "skip", lost.append), 1), None)
    if batch is None:
        return None
    seq = int(batch.seq[0])
    first = min((each.first for each in lost if each.first is not None), default=seq)
    return _Place(min(seq, first), first >= seq)


def _count(log: LogRef, options: ReadOptions) -> int:
    """How many records there are now from the start of the range on, by reading them."""
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
    """At most `count` - 1 numbers between `first` and `end`, with about as many records between."""
    segments = _segments_of(seen.segments, first, end)
    found = {segment.first_seq or 0 for segment in segments}
    if len(segments) < 4 * count:  # else the starts of segments are close enough
        for segment in segments:
            found.update(indexed_seqs(path, segment.id))
    inside = sorted(number for number in found if first < number < end)
    if len(inside) < count - 1:  # a short log: a seek behind an entry costs little
        inside = sorted({*inside, *(first + (end - first) * i // count for i in range(1, count))})
        inside = [number for number in inside if number > first]
    cuts = {inside[len(inside) * i // count] for i in range(1, count)} if inside else set()
    return sorted(cuts)


def _segments_of(segments: Iterable[SegmentStatus], first: int, end: int) -> list[SegmentStatus]:
    """The segments that have some of the range."""
    numbered = [segment for segment in segments if segment.first_seq is not None]
    behind = [segment.first_seq or 0 for segment in numbered[1:]] + [END]
    return [
        segment
        for segment, next_first in zip(numbered, behind, strict=True)
        if (segment.first_seq or 0) < end and next_first > first
    ]
