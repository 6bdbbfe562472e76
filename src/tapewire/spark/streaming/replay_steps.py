"""One micro-batch of one instrument: the rows of its timeline between two positions.

A step starts with the state that the previous micro-batch saved. If that state is missing, the step
takes an older one, or the beginning, replays from there to its start, and drops the rows on the
way, which were returned before: so it has the same rows whichever states exist. It opens only the
logs that it needs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import InputPartition

from tapewire.errors import SegmentMissing
from tapewire.log import open_log
from tapewire.queue import status
from tapewire.replay._features import positions_in
from tapewire.replay.start import next_record
from tapewire.scan.damaged import seek_seq
from tapewire.scan.replay_slices import instruments_of
from tapewire.spark.streaming.checkpoints import CheckpointMark, Checkpoints, FoundCheckpoint

if TYPE_CHECKING:
    import pyarrow as pa

    from tapewire.protocol.instruments import Instrument
    from tapewire.queue.status import QueueStatus
    from tapewire.replay.row_stream import RowStream
    from tapewire.scan.options import ReadOptions

__all__ = [
    "ReplayStep",
    "check_available",
    "checkpoints_of",
    "first_seq_of",
    "is_grid",
    "next_seqs",
    "read_step",
]

_log = logging.getLogger("tapewire.spark")


@dataclass(frozen=True)
class ReplayStep(InputPartition):
    """The rows of one unit between two positions of its timeline.

    Attributes:
        unit: Name of the unit.
        instrument: Instrument of the unit; None: all that the logs hold.
        paths: Name of each log to its path.
        start: Where the rows begin; None: at the beginning.
        end: Where they end.
        continued: Logs that have records after `end`; needed for rows on a grid.
        first_seqs: For a step from the beginning: the first sequence number of each log.
        price_scale: Scale of prices as decimals.
        bytes: Approximate bytes of log.
    """

    unit: str
    instrument: Instrument | None
    paths: dict[str, str]
    start: CheckpointMark | None
    end: CheckpointMark
    continued: tuple[str, ...] = ()
    first_seqs: Mapping[str, int] = field(default_factory=dict)
    price_scale: int = 0
    bytes: int = 0


def checkpoints_of(options: ReadOptions) -> Checkpoints:
    """The saved states of a query; those saved with other options are ignored."""
    assert options.state is not None
    meaning = {
        name: getattr(options, name)
        for name in (
            *("view", "sample", "levels", "features", "columns", "on_gap"),
            *("time_from", "seq_from", "symbols", "instruments", "reader"),
        )
    }
    return Checkpoints(options.state, meaning, positions_in)


def read_step(step: ReplayStep, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a step; saves the state at its end for the next one."""
    checkpoints = checkpoints_of(options)
    with _open(step, step.end, options, _start(step, options, checkpoints)) as stream:
        for batch in stream:
            yield _shape(batch, step, options)
        checkpoints.save(step.unit, step.end, stream.save())


class _ReplayStart(NamedTuple):
    """Where a replay starts: the sequence number that each log is read from, and the state."""

    logs: Mapping[str, int]
    state: bytes | None


def _start(step: ReplayStep, options: ReadOptions, checkpoints: Checkpoints) -> _ReplayStart:
    """The state at the start of the step, rebuilt if it is missing."""
    if step.start is None:
        checkpoints.save_origin(step.unit, step.first_seqs)
        return _ReplayStart(step.first_seqs, None)
    origin = checkpoints.load_origin(step.unit)
    found = checkpoints.find(step.unit, step.start)
    if found is not None and found.mark == step.start:
        return _ReplayStart({**origin, **next_seqs(found.state)}, found.state)
    _log.info("no state of %s at %d: rebuilding it", step.unit, step.start.time_ns)
    first = origin if found is None else {**origin, **next_seqs(found.state)}
    check_available(step, found, first, options)
    before = _ReplayStart(first, None if found is None else found.state)
    with _open(step, step.start, options, before) as stream:
        for _ in stream:
            pass  # these rows were returned before
        state = stream.save()
    checkpoints.save(step.unit, step.start, state)
    return _ReplayStart({**origin, **next_seqs(state)}, state)


def next_seqs(state: bytes) -> dict[str, int]:
    """For each log that a state has read, the sequence number that is read next.

    It may be lower than in the mark of the state: records before the next grid point are read when
    the timeline reaches that point.
    """
    found = positions_in(state).items()
    return {name: last + 1 for name, last in found if last is not None}


def first_seq_of(seen: QueueStatus) -> int:
    """The sequence number of the first record that exists."""
    available = seen.first_available_seq
    return seen.first_seq if available is None else available


def check_available(
    step: ReplayStep, found: FoundCheckpoint | None, first: Mapping[str, int], options: ReadOptions
) -> None:
    """Refuse to rebuild a state from incomplete records, which would give another book.

    Raises:
        SegmentMissing: Records were retired.
    """
    assert step.start is not None
    for name in step.start.logs:
        seen = status(step.paths[name])
        wanted, available = first.get(name, seen.first_seq), first_seq_of(seen)
        # In a sparse log, any sequence number may follow the last one of a state.
        if available <= wanted or (seen.sparse and found is not None):
            continue
        missing = SegmentMissing(
            "the state of a book is missing, and the records to rebuild it from were retired: "
            f"queue={name}, instrument={step.unit}, first_wanted={wanted}, "
            f"first_available={available}",
            path=step.paths[name],
            hint="restore the directory of states, and the options and the release that wrote it; "
            'or start with a new checkpoint; or use option("on_damage", "skip"), which continues '
            "with a book that waits for a snapshot",
        )
        missing.first_available_seq = available
        if options.on_damage == "raise":
            raise missing
        _log.warning("%s", missing)


def _open(
    step: ReplayStep, end: CheckpointMark, options: ReadOptions, start: _ReplayStart
) -> RowStream:
    from tapewire.spark.views import book, features

    time_to = end.time_ns if options.time_to is None else min(end.time_ns, options.time_to)
    ends = _ends(step, end, options, start, time_to)
    logs = {name: path for name, path in step.paths.items() if name in ends}
    bounds: dict[str, Any] = {
        "logs": logs,
        "symbols": None if step.instrument is None else [step.instrument],
        "instruments": instruments_of(step.instrument, options),
        "time_from": None if options.time_from is None else min(options.time_from, time_to),
        "time_to": time_to,
        "seq_to": ends,
        "on_gap": options.on_gap or "resync",
        "skip_damaged": options.on_damage == "skip",
        "state": start.state,
        "finished": step.paths.keys() - ends.keys(),
    }
    if options.seq_from is not None:
        bounds["seq_from"] = options.seq_from
    if options.view == "book":
        return book.open_stream(options, **bounds)
    return features.open_stream(options, **bounds)


def _ends(
    step: ReplayStep, end: CheckpointMark, options: ReadOptions, start: _ReplayStart, time_to: int
) -> dict[str, int]:
    """The logs to open, and the sequence number before which reading each of them ends.

    These are the logs with records to read. For rows on a grid, reading one of them includes the
    record after its end, if that shows that the timeline has reached `time_to`: the grid points in
    between are rows of this step. If none of them shows that, another log that does is opened.
    """
    ends = {
        name: seq
        for name, seq in end.logs.items()
        if name in step.paths and seq > start.logs.get(name, -1)
    }
    if not is_grid(options):
        return ends
    others = [
        name
        for name, seq in end.logs.items()
        if name not in ends and (name in step.continued or step.end.logs[name] > seq)
    ]
    for name in (*ends, *reversed(others)):
        extended = _extended(step.paths[name], end.logs[name], time_to)
        if extended > end.logs[name]:
            return {**ends, name: extended}
    return ends


def is_grid(options: ReadOptions) -> bool:
    """Whether rows are at grid points, which the timeline reaches with a record after them."""
    return options.sample not in ("event", "trade")


def _extended(path: str, end: int, time_to: int) -> int:
    """The sequence number after the record at `end` if its time is at least `time_to`; else `end`.

    A record of an earlier time, appended since, is left for a later step.
    """
    with open_log(path) as reader:
        record = next_record(reader) if seek_seq(reader, end) else None
    return end if record is None or record.timestamp_ns < time_to else record.seq + 1


def _shape(batch: pa.RecordBatch, step: ReplayStep, options: ReadOptions) -> pa.RecordBatch:
    from tapewire.spark.views import book, features

    if options.view == "book":
        return book.shape(batch, options, step.price_scale)
    return features.shape(batch, options)
