"""One micro-batch of one instrument: from where its tape was left to where it goes now.

It begins with the state that the micro-batch before has saved. Without that one it takes an older
one, or the beginning, goes on from there to where it should have begun, and drops the rows on the
way, which were given before: so it has the same rows, whatever states there are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from tapewire.errors import InvalidOption, SegmentMissing
from tapewire.log import open_log
from tapewire.queue import status
from tapewire.replay._features import positions_in
from tapewire.replay.start import next_record
from tapewire.spark.reading.damaged import seek_seq
from tapewire.spark.reading.replay_slices import instruments_of
from tapewire.spark.streaming.states import Found, Mark, States

if TYPE_CHECKING:
    import pyarrow as pa

    from tapewire.protocol.instruments import Instrument
    from tapewire.queue.status import QueueStatus
    from tapewire.replay.row_stream import RowStream
    from tapewire.spark.reading.options import ReadOptions

__all__ = ["ReplayStep", "read_step", "states_of"]

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
        price_scale: Of prices as decimals.
        bytes: About how many bytes of log it has.
    """

    unit: str
    instrument: Instrument | None
    paths: dict[str, str]
    start: Mark | None
    end: Mark
    price_scale: int = 0
    bytes: int = 0


def states_of(options: ReadOptions) -> States:
    """The states of a query: those that were saved with other options are not its own."""
    assert options.state is not None
    meaning = {
        name: getattr(options, name)
        for name in (
            *("view", "sample", "levels", "features", "columns", "on_gap"),
            *("time_from", "seq_from", "symbols", "instruments", "reader"),
        )
    }
    return States(options.state, meaning, positions_in)


def read_step(step: ReplayStep, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a step; leaves the state behind them for the next one."""
    states = states_of(options)
    state, drop = _begin(step, options, states)
    with _open(step, step.end, options, state) as stream:
        for batch in stream:
            if drop >= batch.num_rows:
                drop -= batch.num_rows
                continue
            yield _shape(batch, step, options).slice(drop)
            drop = 0
        _save(states, step.unit, step.end, stream)


def _begin(step: ReplayStep, options: ReadOptions, states: States) -> tuple[bytes | None, int]:
    """A state to go on from, and how many rows come of it that were given before."""
    if step.start is None:
        fronts = {name: _front(status(step.paths[name])) for name in step.end.logs}
        states.begin(step.unit, fronts)
        return None, 0
    found = states.find(step.unit, step.start)
    if found is not None and found.mark == step.start:
        return found.state, 0
    _log.info("no state of %s at %d: it is built again", step.unit, step.start.time_ns)
    _check_there(step, found, options, states)
    before = None if found is None else found.state
    with _open(step, step.start, options, before) as stream:
        rows = sum(batch.num_rows for batch in stream)
        state = _save(states, step.unit, step.start, stream)
    return (before, rows) if state is None else (state, 0)


def _front(seen: QueueStatus) -> int:
    """Number of the first record there is."""
    there = seen.first_available_seq
    return seen.first_seq if there is None else there


def _check_there(
    step: ReplayStep, found: Found | None, options: ReadOptions, states: States
) -> None:
    """What a state is built again from must be there: else the book would be another one.

    Raises:
        SegmentMissing: It was retired.
    """
    assert step.start is not None
    places = states.began(step.unit) if found is None else found.mark.logs
    for name in step.start.logs:
        seen = status(step.paths[name])
        wanted, there = places.get(name, seen.first_seq), _front(seen)
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


def _save(states: States, unit: str, mark: Mark, stream: RowStream) -> bytes | None:
    """Keep the state of a stream that has come to its end; None: it has none that can be kept."""
    try:
        state = stream.save()
    except InvalidOption as error:
        # A book waits for a snapshot: what it waits with is on the tape alone.
        _log.info("no state of %s at %d: %s", unit, mark.time_ns, error)
        return None
    states.save(unit, mark, state)
    return state


def _open(step: ReplayStep, end: Mark, options: ReadOptions, state: bytes | None) -> RowStream:
    from tapewire.spark.views import book, features

    logs = {name: step.paths[name] for name in end.logs}
    time_to = end.time_ns if options.time_to is None else min(end.time_ns, options.time_to)
    bounds: dict[str, Any] = {
        "logs": logs,
        "symbols": None if step.instrument is None else [step.instrument],
        "instruments": instruments_of(step.instrument, options),
        "time_from": None if options.time_from is None else min(options.time_from, time_to),
        "time_to": time_to,
        "seq_to": {name: _shown(path, end.logs[name], time_to) for name, path in logs.items()},
        "on_gap": options.on_gap or "resync",
        "skip_damaged": options.on_damage == "skip",
        "state": state,
    }
    if options.seq_from is not None:
        bounds["seq_from"] = options.seq_from
    if options.view == "book":
        return book.open_stream(options, **bounds)
    return features.open_stream(options, **bounds)


def _shown(path: str, end: int, time_to: int) -> int:
    """The number in front of which a log is taken to end, where it is read up to `end`.

    With the record behind, where that shows that the tape has reached `time_to`: points of a grid
    between the two are rows of this step. What came to a log since that is of an earlier time is
    not looked at.
    """
    with open_log(path) as reader:
        record = next_record(reader) if seek_seq(reader, end) else None
    return end if record is None or record.timestamp_ns < time_to else record.seq + 1


def _shape(batch: pa.RecordBatch, step: ReplayStep, options: ReadOptions) -> pa.RecordBatch:
    from tapewire.spark.views import book, features

    if options.view == "book":
        return book.shape(batch, options, step.price_scale)
    return features.shape(batch, options)
