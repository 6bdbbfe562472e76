"""How far the tape of an instrument goes: up to a time that all of its logs have reached.

The books and trades of an instrument lie in several logs, which are replayed as one tape in the
order of time. What one log has must wait until the others have come as far: a record of theirs
could still belong before it. So a tape is cut at a time, its horizon: of each log everything in
front of the first record that reaches it. Such a cut is one of the merged tape too, and rows come
out in micro-batches as they do in one pass.
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
from tapewire.spark.streaming.checkpoints import CheckpointMark
from tapewire.spark.streaming.limits import Ahead

if TYPE_CHECKING:
    from tapewire.scan.logs import LogRef

__all__ = ["SeenLog", "end_ns", "next_mark", "reach_ns"]


@dataclass(frozen=True)
class SeenLog:
    """One log of an instrument, as it was looked at.

    Attributes:
        log: The log.
        ahead: What it has that was not read.
        alive: Somebody writes it.
        last_ns: Time of its last record; None without one.
    """

    log: LogRef
    ahead: Ahead
    alive: bool
    last_ns: int | None


def reach_ns(logs: Sequence[SeenLog], max_skew_ns: int | None = None) -> int | None:
    """The time up to which a tape of several logs is complete; None: nothing is.

    As long as one of its logs is being written, every stream of them (book, trades) counts, by its
    newest log: what it has not yet said may be about any time behind its last record. Once nobody
    writes any of them, all there is is complete. With `max_skew_ns`, a stream that is so far behind
    the others is waited for no longer.
    """
    if not any(each.alive for each in logs):
        return end_ns(logs)
    newest: dict[str | None, SeenLog] = {}
    for each in sorted(logs, key=lambda one: (one.log.date or "", one.log.name)):
        key = each.log.stream if each.log.date is not None else each.log.name
        newest[key] = each
    reached = [each.last_ns for each in newest.values() if each.last_ns is not None]
    said_by_all = min(reached) if len(reached) == len(newest) else None
    if max_skew_ns is None or not reached:
        return said_by_all
    enough = max(reached) - max_skew_ns
    return enough if said_by_all is None else max(said_by_all, enough)


def end_ns(logs: Sequence[SeenLog]) -> int | None:
    """The time behind the latest record of all; None: there is none."""
    times = [_latest_ns(each) for each in logs if each.last_ns is not None]
    return max(times) + 1 if times else None


def next_mark(
    logs: Sequence[SeenLog],
    start: CheckpointMark | None,
    ends: Mapping[str, int],
    reach: int | None,
    most_ns: int | None,
    *,
    alone: bool,
) -> CheckpointMark | None:
    """Where the next micro-batch of an instrument ends; None: there is nothing for one.

    Args:
        logs: Of the instrument.
        start: Where it begins; None: at the beginning.
        ends: Of each log, how far the limits of the micro-batch let it go; where they say nothing
            of a log, nothing of it has to come.
        reach: What `reach_ns` says of the tape.
        most_ns: No row of this time or later.
        alone: The instrument has one log, which waits for no other.
    """
    begin_ns = -1 if start is None else start.time_ns
    before = {} if start is None else dict(start.logs)
    if alone:
        return _mark_of_one(logs[0], begin_ns, ends, most_ns)
    if reach is None:
        return None
    if most_ns is not None:
        reach = min(reach, most_ns)
    horizon = min([reach, *_limits(logs, ends)])
    first = min((time for each in logs if (time := _first_ns(each)) is not None), default=None)
    if first is not None and horizon <= first:
        horizon = min(first + 1, reach)  # more of one time than the limit: they come together
    if horizon <= begin_ns:
        waits = reach < begin_ns and any(each.alive for each in logs)
        if first is None or first >= begin_ns or waits:
            return None
        horizon = begin_ns + 1  # too late for their time: they come, though nothing newer does
    places = dict(before)
    for each in logs:
        places[each.log.name] = max(before.get(each.log.name, 0), _cut_at(each, horizon))
    goes_on = any(places[each.log.name] > each.ahead.first for each in logs)
    return CheckpointMark(horizon, places) if goes_on else None


def _mark_of_one(
    seen: SeenLog, begin_ns: int, ends: Mapping[str, int], most_ns: int | None
) -> CheckpointMark | None:
    """One log is its own tape: it is cut by number, and nothing has to wait."""
    ahead = seen.ahead
    end = ends.get(ahead.name, ahead.first)
    if most_ns is not None:
        end = min(end, _cut_at(seen, most_ns))
    if end <= ahead.first:
        return None
    clock = _clock_ns(ahead, end)
    return CheckpointMark(max(begin_ns, 0 if clock is None else clock + 1), {ahead.name: end})


def _limits(logs: Sequence[SeenLog], ends: Mapping[str, int]) -> list[int]:
    """The time at which each log comes to where the limit stops it."""
    found = []
    for each in logs:
        ahead = each.ahead
        end = ends.get(ahead.name, ahead.first)
        if end >= ahead.end:
            continue
        time = _time_at(ahead.path, end)
        found += [] if time is None else [time]
    return found


def _first_ns(each: SeenLog) -> int | None:
    """Time of the first record that was not read."""
    ahead = each.ahead
    return _time_at(ahead.path, ahead.first) if ahead.end > ahead.first else None


def _time_at(path: str, seq: int) -> int | None:
    with open_log(path) as reader:
        record = next_record(reader) if seek_seq(reader, seq) else None
    return None if record is None else record.timestamp_ns


def _cut_at(each: SeenLog, time_ns: int) -> int:
    """Number of the first record at which the log reaches a time; else behind what it has."""
    if each.ahead.end <= each.ahead.first:
        return each.ahead.end  # nothing of it is to come: the days of an archive that were read
    with open_log(each.ahead.path) as reader:
        seq = first_seq_after(reader, time_ns - 1)
    return each.ahead.end if seq is None else min(seq, each.ahead.end)


def _latest_ns(each: SeenLog) -> int:
    with open_log(each.ahead.path) as reader:
        return latest_ns(reader, each.last_ns or 0)


def _clock_ns(ahead: Ahead, end: int) -> int | None:
    """The latest time of the records from `ahead.first` up to `end`."""
    latest: int | None = None
    with open_log(ahead.path) as reader:
        seek_seq(reader, ahead.first)
        for batch in walk(reader, SliceDamage(skip=True)):
            inside = batch.timestamp_ns[batch.seq < end]
            if not len(inside):
                break
            latest = max(int(inside.max()), -1 if latest is None else latest)
    return latest
