"""The reader of streaming queries over replayed views: `book` and `features`.

An instrument with its logs, of days that follow each other, is one tape, read by one task in each
micro-batch; where a day is missing another one begins, once the one before is read. The task leaves
its state in the folder that the query names, and the next one goes on from there. What retention
waits for is the last state but one: the last one may turn out to be damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import types as sql

from tapewire.errors import InvalidOption
from tapewire.scan.replay_units import LogUnit, runs_of, units_of
from tapewire.spark.reading import schemas
from tapewire.spark.reading.batch import read_pack, wanted_parts
from tapewire.spark.reading.packs import pack
from tapewire.spark.streaming.checkpoints import CheckpointMark, check_folder
from tapewire.spark.streaming.limits import Limit, cut
from tapewire.spark.streaming.offsets import Offset
from tapewire.spark.streaming.replay_steps import (
    ReplayStep,
    front,
    is_grid,
    places_in,
    read_step,
    states_of,
)
from tapewire.spark.streaming.stream import StreamReader
from tapewire.spark.streaming.watermarks import SeenLog, end_ns, next_mark, reach_ns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit

    from tapewire.scan.logs import LogRef

__all__ = ["ReplayedStreamReader"]

RECORD_BYTES = 256  # about, of a book event: to share units out among tasks


class _Turn(NamedTuple):
    """A tape that a micro-batch goes on with: its logs, how far, and whether there is but one."""

    unit: LogUnit
    logs: list[SeenLog]
    reach: int | None
    alone: bool


class ReplayedStreamReader(StreamReader):
    """Follows the tapes of instruments; arguments are those of `StreamReader`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_folder(self._options.view, self._options.state)
        self._goal: dict[str, SeenLog] | None = None
        self._goal_reach: dict[str, int | None] = {}

    def prepareForTriggerAvailableNow(self) -> None:
        """Note what is there now: this run goes no further."""
        nothing = Offset(self._options.view)
        units = self._units(self._logs.find(), nothing)
        self._goal = {log.name: self._look(log, nothing) for unit in units for log in unit.logs}
        for runs in runs_of(units):
            logs = [self._goal[log.name] for unit in runs for log in unit.logs]
            self._goal_reach[_key(runs)] = reach_ns(logs, self._options.max_skew)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` itself when there is nothing for one."""
        begin = Offset.parse(start, self._options.view)
        logs = self._logs.find()
        self._logs.hold(logs, begin.logs)
        turns = [
            turn
            for runs in runs_of(self._units(logs, begin))
            if (turn := self._turn(runs, begin)) is not None
        ]
        limits = Limit.of(limit, self._options.max_rows, self._options.max_bytes)
        ahead = {each.log.name: each.ahead for turn in turns for each in turn.logs}
        ends = cut(list(ahead.values()), limits)
        places, times = dict(begin.logs), dict(begin.times)
        for unit, of_unit, reach, alone in turns:
            before = _mark(unit, begin)
            most = self._options.time_to
            mark = next_mark(of_unit, before, ends, reach, most, alone=alone)
            if mark is not None:
                times[unit.name] = mark.time_ns
                places.update(mark.logs)
        if (places, times) == (begin.logs, begin.times):
            return start
        return Offset(begin.view, places, times).to_json()

    def _turn(self, runs: Sequence[LogUnit], begin: Offset) -> _Turn | None:
        """The first tape of an instrument that has something to come; None: none has.

        The others have their turn in a later micro-batch: rows of an instrument come by time.
        """
        seen = {
            log.name: self._seen(log, begin)
            for unit in runs
            for log in unit.logs
            if self._goal is None or log.name in self._goal
        }
        waiting = {name for name, each in seen.items() if each.ahead.end > each.ahead.first}
        unit = next((run for run in runs if any(log.name in waiting for log in run.logs)), None)
        if unit is None:
            return None
        of_unit = [seen[log.name] for log in unit.logs if log.name in seen]
        if self._goal is not None:
            reach = self._goal_reach.get(_key(runs))
        else:
            reach = reach_ns(list(seen.values()), self._options.max_skew)
        if unit is not runs[-1] and reach is not None:
            # Not beyond its end: a day that is missing may come yet, and goes on from there.
            reach = min(reach, end_ns(of_unit) or reach)
        return _Turn(unit, of_unit, reach, len(seen) == 1)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A task for some instruments each: the tape of one is read in its order."""
        begin = Offset.parse(start, self._options.view)
        until = Offset.parse(end, self._options.view)
        until.check_follows(begin)
        logs = self._logs.find()
        self._logs.hold(logs, begin.logs)
        units = {unit.name: unit for unit in self._units(logs, until)}
        scale = _decimals(self._columns)
        steps = []
        for name, time_ns in until.times.items():
            unit = units.get(name)
            if unit is not None:
                before, after = _mark(unit, begin), _mark(unit, until)
                if after is not None and before != after:
                    steps.append(self._step(unit, before, after, scale))
            elif begin.times.get(name) != time_ns:
                raise InvalidOption(
                    f"the logs of an instrument are not there any more: instrument={name}",
                    hint="put them back, or begin with a new checkpoint",
                )
        return pack(steps, wanted_parts(self._options, self._parallelism))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; in an executor."""
        return read_pack(partition, self._columns, lambda step: read_step(step, self._options))

    def commit(self, end: dict[str, Any]) -> None:
        """The checkpoint has all before `end`: old states go, and what none of the kept needs."""
        until = Offset.parse(end, self._options.view)
        states = states_of(self._options)
        needed: dict[str, int] = {}
        for unit in self._units(self._logs.find(), until):
            mark = _mark(unit, until)
            kept = None if mark is None else states.prune(unit.name, mark)
            read = {} if kept is None else places_in(kept.state)
            for log in unit.logs:
                # What the state has not read stays, though its rows are those of before.
                place = min(read.get(log.name, 0), kept.mark.logs.get(log.name, 0)) if kept else 0
                needed[log.name] = min(place, needed.get(log.name, place))
        self._logs.release(needed)

    def _units(self, logs: Sequence[LogRef], offset: Offset) -> list[LogUnit]:
        return units_of(self._options, logs, read=offset.logs, begun=offset.times)

    def _seen(self, log: LogRef, begin: Offset) -> SeenLog:
        """A log as it is now; of a run that ends, as it was when the run began."""
        seen = self._look(log, begin)
        if self._goal is None:
            return seen
        goal = self._goal[log.name]
        return replace(goal, ahead=seen.ahead.capped(goal.ahead.end))

    def _look(self, log: LogRef, begin: Offset) -> SeenLog:
        status = self._logs.look(log)
        ahead = self._logs.ahead_of(log, status, begin.logs.get(log.name))
        return SeenLog(log, ahead, status.writer.alive, status.last_timestamp_ns)

    def _step(
        self, unit: LogUnit, before: CheckpointMark | None, after: CheckpointMark, scale: int
    ) -> ReplayStep:
        paths, fronts = {}, {}
        behind: list[str] = []
        records = 0
        for log in unit.logs:
            number = after.logs.get(log.name)
            if number is None:
                continue
            paths[log.name] = log.path
            low = None if before is None else before.logs.get(log.name)
            records += number - (low or 0)
            if low == number and not is_grid(self._options):
                continue  # read to its end, or not begun: of no interest to this step
            seen = self._logs.look(log)
            if low is not None:
                self._logs.check_range(log, seen, low, number)
            if before is None:
                fronts[log.name] = front(seen)
            if seen.last_seq is not None and seen.last_seq >= number:
                behind.append(log.name)
        return ReplayStep(
            unit.name,
            unit.instrument,
            paths,
            before,
            after,
            tuple(behind),
            fronts,
            scale,
            records * RECORD_BYTES,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_goal": None, "_goal_reach": {}}


def _key(runs: Sequence[LogUnit]) -> str:
    """Tells the tapes of an instrument from others; those of days from that of no day."""
    return f"{runs[0].whole}@" if runs[0].since else runs[0].whole


def _decimals(columns: Sequence[schemas.ViewColumn]) -> int:
    """The scale of prices as decimals, which the schema of the query has fixed; 0 without them."""
    for column in columns:
        of = column.type.elementType if isinstance(column.type, sql.ArrayType) else column.type
        if isinstance(of, sql.DecimalType):
            return of.scale
    return 0


def _mark(unit: LogUnit, offset: Offset) -> CheckpointMark | None:
    """The place of a unit; None: it has not begun."""
    time_ns = offset.times.get(unit.name)
    if time_ns is None:
        return None
    names = [log.name for log in unit.logs]
    return CheckpointMark(
        time_ns, {name: offset.logs[name] for name in names if name in offset.logs}
    )
