"""One micro-batch of one instrument: from where its tape was left to where it goes now.

It begins with the state that the micro-batch before has saved. Without that one it takes an older
one, or the beginning, goes on from there to where it should have begun, and drops the rows on the
way, which were given before: so it has the same rows, whatever states there are. It opens the logs
that have something for it, and no others.
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

__all__ = ["ReplayStep", "check_there", "front", "is_grid", "places_in", "read_step", "states_of"]

_log = logging.getLogger("tapewire.spark")


@dataclass(frozen=True)
class ReplayStep(InputPartition):
    """The rows of one unit between two places of its tape.

    Attributes:
        unit: Its name.
        instrument: Of the unit; None: all that the logs hold.
        paths: Name of each log to its path.
        start: Where the rows begin; None: at the beginning.
        end: Where they end.
        behind: Logs that have records behind `end`, where rows of a grid ask for them.
        fronts: Of a step that begins at the beginning: the first number of each log.
        price_scale: Of prices as decimals.
        bytes: About how many bytes of log it has.
    """

    unit: str
    instrument: Instrument | None
    paths: dict[str, str]
    start: CheckpointMark | None
    end: CheckpointMark
    behind: tuple[str, ...] = ()
    fronts: Mapping[str, int] = field(default_factory=dict)
    price_scale: int = 0
    bytes: int = 0


def states_of(options: ReadOptions) -> Checkpoints:
    """The states of a query: those that were saved with other options are not its own."""
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
    """The rows of a step; leaves the state behind them for the next one."""
    states = states_of(options)
    with _open(step, step.end, options, _begin(step, options, states)) as stream:
        for batch in stream:
            yield _shape(batch, step, options)
        states.save(step.unit, step.end, stream.save())


class _Begin(NamedTuple):
    """Where a stream begins: the number that each log is read from, and what they had come to."""

    logs: Mapping[str, int]
    state: bytes | None


def _begin(step: ReplayStep, options: ReadOptions, states: Checkpoints) -> _Begin:
    """The state that the step begins with; built again where it is lost."""
    if step.start is None:
        states.begin(step.unit, step.fronts)
        return _Begin(step.fronts, None)
    fronts = states.began(step.unit)
    found = states.find(step.unit, step.start)
    if found is not None and found.mark == step.start:
        return _Begin({**fronts, **places_in(found.state)}, found.state)
    _log.info("no state of %s at %d: it is built again", step.unit, step.start.time_ns)
    places = fronts if found is None else {**fronts, **places_in(found.state)}
    check_there(step, found, places, options)
    before = _Begin(places, None if found is None else found.state)
    with _open(step, step.start, options, before) as stream:
        for _ in stream:
            pass  # these rows were given before
        state = stream.save()
    states.save(step.unit, step.start, state)
    return _Begin({**fronts, **places_in(state)}, state)


def places_in(state: bytes) -> dict[str, int]:
    """The number that each log is read from next, of those that were read.

    It may be below what the state's mark says: records in front of the next point of a grid are
    read when the tape reaches that.
    """
    found = positions_in(state).items()
    return {name: last + 1 for name, last in found if last is not None}


def front(seen: QueueStatus) -> int:
    """Number of the first record there is."""
    there = seen.first_available_seq
    return seen.first_seq if there is None else there


def check_there(
    step: ReplayStep, found: FoundCheckpoint | None, places: Mapping[str, int], options: ReadOptions
) -> None:
    """What a state is built again from must be there: else the book would be another one.

    Raises:
        SegmentMissing: It was retired.
    """
    assert step.start is not None
    for name in step.start.logs:
        seen = status(step.paths[name])
        wanted, there = places.get(name, seen.first_seq), front(seen)
        # Behind a state, a sparse log may have its next number anywhere.
        if there <= wanted or (seen.sparse and found is not None):
            continue
        missing = SegmentMissing(
            f"the state of a book is gone, and so is what it was built from: queue={name}, "
            f"instrument={step.unit}, first_wanted={wanted}, first_there={there}",
            path=step.paths[name],
            hint="put the folder of states back, with the options and the release it was written "
            'by; or begin with a new checkpoint; or by option("on_damage", "skip") with a book '
            "that waits for a snapshot",
        )
        missing.first_available_seq = there
        if options.on_damage == "raise":
            raise missing
        _log.warning("%s", missing)


def _open(step: ReplayStep, end: CheckpointMark, options: ReadOptions, begin: _Begin) -> RowStream:
    from tapewire.spark.views import book, features

    time_to = end.time_ns if options.time_to is None else min(end.time_ns, options.time_to)
    ends = _ends(step, end, options, begin, time_to)
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
        "state": begin.state,
        "finished": step.paths.keys() - ends.keys(),
    }
    if options.seq_from is not None:
        bounds["seq_from"] = options.seq_from
    if options.view == "book":
        return book.open_stream(options, **bounds)
    return features.open_stream(options, **bounds)


def _ends(
    step: ReplayStep, end: CheckpointMark, options: ReadOptions, begin: _Begin, time_to: int
) -> dict[str, int]:
    """The logs to open, and the number in front of which each is taken to end.

    Those that have something to read. For rows on a grid, one of them also shows the record behind,
    where that tells that the tape has reached `time_to`: points between the two are rows of this
    step. Where none of them does, another log is opened that has such a record.
    """
    ends = {
        name: number
        for name, number in end.logs.items()
        if name in step.paths and number > begin.logs.get(name, -1)
    }
    if not is_grid(options):
        return ends
    others = [
        name
        for name, number in end.logs.items()
        if name not in ends and (name in step.behind or step.end.logs[name] > number)
    ]
    for name in (*ends, *reversed(others)):
        shown = _shown(step.paths[name], end.logs[name], time_to)
        if shown > end.logs[name]:
            return {**ends, name: shown}
    return ends


def is_grid(options: ReadOptions) -> bool:
    """Whether rows stand on points of time, which a tape reaches by a record behind them."""
    return options.sample not in ("event", "trade")


def _shown(path: str, end: int, time_to: int) -> int:
    """The number behind the record at `end`, where that is of `time_to` or later; else `end`.

    What came to a log since that is of an earlier time is not looked at.
    """
    with open_log(path) as reader:
        record = next_record(reader) if seek_seq(reader, end) else None
    return end if record is None or record.timestamp_ns < time_to else record.seq + 1


def _shape(batch: pa.RecordBatch, step: ReplayStep, options: ReadOptions) -> pa.RecordBatch:
    from tapewire.spark.views import book, features

    if options.view == "book":
        return book.shape(batch, options, step.price_scale)
    return features.shape(batch, options)
