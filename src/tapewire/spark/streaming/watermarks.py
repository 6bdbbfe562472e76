"""How far the timeline of an instrument is complete, and where a micro-batch of it ends.

The books and trades of an instrument are in several logs, which are replayed as one timeline in the
order of time. Records of one log must wait until the other logs have reached their time, because a
record of those could still precede them. So a timeline is cut at a time: each log up to, and
without, its first record that reaches it. Such a cut is also a cut of the merged timeline, so
micro-batches have the rows of a single pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tapewire.log import open_log
from tapewire.replay.start import first_seq_after, next_record
from tapewire.scan.damaged import seek_seq
from tapewire.scan.replay_slices import latest_ns
from tapewire.scan.slice_reader import SliceDamage, walk
from tapewire.spark.streaming.batch_limits import UnreadRange
from tapewire.spark.streaming.checkpoints import CheckpointMark

if TYPE_CHECKING:
    from tapewire.scan.logs import LogRef

__all__ = ["SeenLog", "complete_until_ns", "end_ns", "next_mark"]


@dataclass(frozen=True)
class SeenLog:
    """The status of one log of an instrument at one moment.

    Attributes:
        log: The log.
        unread: Its unread records.
        alive: A process writes to it.
        last_ns: Time of its last record; None if it has no record.
    """

    log: LogRef
    unread: UnreadRange
    alive: bool
    last_ns: int | None


def complete_until_ns(logs: Sequence[SeenLog], max_skew_ns: int | None = None) -> int | None:
    """The time up to which a timeline of several logs is complete; None: no part of it is.

    While a process writes to one of the logs, this is the earliest last time of the streams (book,
    trades), each represented by its newest log, because the next record of a stream may have any
    time after its last one. When no process writes to any of them, everything is complete. With
    `max_skew_ns`, a stream that is this far behind the newest record is no longer waited for.
    """
    if not any(each.alive for each in logs):
        return end_ns(logs)
    newest: dict[str | None, SeenLog] = {}
    for each in sorted(logs, key=lambda one: (one.log.date or "", one.log.name)):
        key = each.log.stream if each.log.date is not None else each.log.name
        newest[key] = each
    reached = [each.last_ns for each in newest.values() if each.last_ns is not None]
    reached_by_all = min(reached) if len(reached) == len(newest) else None
    if max_skew_ns is None or not reached:
        return reached_by_all
    enough = max(reached) - max_skew_ns
    return enough if reached_by_all is None else max(reached_by_all, enough)


def end_ns(logs: Sequence[SeenLog]) -> int | None:
    """The time after the latest record of all logs; None: they have no record."""
    times = [_latest_ns(each) for each in logs if each.last_ns is not None]
    return max(times) + 1 if times else None


def next_mark(
    logs: Sequence[SeenLog],
    start: CheckpointMark | None,
    ends: Mapping[str, int],
    complete_ns: int | None,
    end_time_ns: int | None,
    *,
    alone: bool,
) -> CheckpointMark | None:
    """Where the next micro-batch of an instrument ends; None: there is nothing to read.

    Args:
        logs: The logs of the instrument.
        start: Where the micro-batch starts; None: at the beginning.
        ends: For each log, where the limits of the micro-batch end it; a log that is not listed
            contributes no records.
        complete_ns: What `complete_until_ns` returned for the timeline.
        end_time_ns: No row has this time or a later one.
        alone: The instrument has one log, which waits for no other.
    """
    start_ns = -1 if start is None else start.time_ns
    before = {} if start is None else dict(start.logs)
    if alone:
        return _mark_of_one(logs[0], start_ns, ends, end_time_ns)
    if complete_ns is None:
        return None
    if end_time_ns is not None:
        complete_ns = min(complete_ns, end_time_ns)
    cut_ns = min([complete_ns, *_times_of_limits(logs, ends)])
    first = min((time for each in logs if (time := _first_ns(each)) is not None), default=None)
    if first is not None and cut_ns <= first:
        # More records of one time than the limit allows: all of them are in one micro-batch.
        cut_ns = min(first + 1, complete_ns)
    if cut_ns <= start_ns:
        waits = complete_ns < start_ns and any(each.alive for each in logs)
        if first is None or first >= start_ns or waits:
            return None
        cut_ns = start_ns + 1  # late records are read even if there is nothing newer
    seqs = dict(before)
    for each in logs:
        seqs[each.log.name] = max(before.get(each.log.name, 0), _cut_at(each, cut_ns))
    advances = any(seqs[each.log.name] > each.unread.first for each in logs)
    return CheckpointMark(cut_ns, seqs) if advances else None


def _mark_of_one(
    seen: SeenLog, start_ns: int, ends: Mapping[str, int], end_time_ns: int | None
) -> CheckpointMark | None:
    """The mark of a single log: it is cut by sequence number and waits for no other."""
    unread = seen.unread
    end = ends.get(unread.name, unread.first)
    if end_time_ns is not None:
        end = min(end, _cut_at(seen, end_time_ns))
    if end <= unread.first:
        return None
    latest = _latest_unread_ns(unread, end)
    return CheckpointMark(max(start_ns, 0 if latest is None else latest + 1), {unread.name: end})


def _times_of_limits(logs: Sequence[SeenLog], ends: Mapping[str, int]) -> list[int]:
    """For each log that the limits cut, the time of the first record after the cut."""
    found = []
    for each in logs:
        unread = each.unread
        end = ends.get(unread.name, unread.first)
        if end >= unread.end:
            continue
        time = _time_at(unread.path, end)
        found += [] if time is None else [time]
    return found


def _first_ns(each: SeenLog) -> int | None:
    """Time of the first unread record."""
    unread = each.unread
    return _time_at(unread.path, unread.first) if unread.end > unread.first else None


def _time_at(path: str, seq: int) -> int | None:
    with open_log(path) as reader:
        record = next_record(reader) if seek_seq(reader, seq) else None
    return None if record is None else record.timestamp_ns


def _cut_at(each: SeenLog, time_ns: int) -> int:
    """Sequence number of the first record at which the log reaches a time, at most its end."""
    if each.unread.end <= each.unread.first:
        return each.unread.end  # avoid opening the days of an archive that were read
    with open_log(each.unread.path) as reader:
        seq = first_seq_after(reader, time_ns - 1)
    return each.unread.end if seq is None else min(seq, each.unread.end)


def _latest_ns(each: SeenLog) -> int:
    with open_log(each.unread.path) as reader:
        return latest_ns(reader, each.last_ns or 0)


def _latest_unread_ns(unread: UnreadRange, end: int) -> int | None:
    """The latest time of the records from `unread.first` up to `end`."""
    latest: int | None = None
    with open_log(unread.path) as reader:
        seek_seq(reader, unread.first)
        for batch in walk(reader, SliceDamage(skip=True)):
            inside = batch.timestamp_ns[batch.seq < end]
            if not len(inside):
                break
            latest = max(int(inside.max()), -1 if latest is None else latest)
    return latest
