"""The reader of streaming queries over replayed views: `book` and `features`.

The logs of an instrument, of consecutive days, form one timeline, which one task reads in each
micro-batch. After a missing day another timeline begins, once the one before it was read. The task
saves its state in the directory of option `state`, and the next one continues from there. Retention
keeps the records after the last state but one, because the last one may be damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import types as sql

from tapewire.errors import InvalidOption
from tapewire.scan.replay_units import LogUnit, runs_of, units_of
from tapewire.spark.reading import schemas
from tapewire.spark.reading.batch import read_task, wanted_tasks
from tapewire.spark.reading.tasks import group_parts
from tapewire.spark.streaming.batch_limits import BatchLimit, batch_ends
from tapewire.spark.streaming.checkpoints import CheckpointMark, check_state_directory
from tapewire.spark.streaming.offsets import Offset
from tapewire.spark.streaming.replay_steps import (
    ReplayStep,
    checkpoints_of,
    first_seq_of,
    is_grid,
    next_seqs,
    read_step,
)
from tapewire.spark.streaming.stream_reader import StreamReader
from tapewire.spark.streaming.watermarks import SeenLog, complete_until_ns, end_ns, next_mark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit

    from tapewire.scan.logs import LogRef

__all__ = ["ReplayedStreamReader"]

RECORD_BYTES = 256  # approximate size of a book event, to distribute units over tasks


class _Advance(NamedTuple):
    """A timeline that a micro-batch continues.

    Attributes:
        unit: The instrument and the logs of the timeline.
        logs: The same logs, as they are now.
        complete_ns: Time up to which the timeline is complete; None if it is not.
        alone: The instrument has no other log.
    """

    unit: LogUnit
    logs: list[SeenLog]
    complete_ns: int | None
    alone: bool


class ReplayedStreamReader(StreamReader):
    """Follows the timelines of instruments; arguments are those of `StreamReader`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_state_directory(self._options.view, self._options.state)
        self._target_logs: dict[str, SeenLog] | None = None
        self._target_ns: dict[str, int | None] = {}

    def prepareForTriggerAvailableNow(self) -> None:
        """Store the current ends of the logs: this run does not read past them."""
        nothing = Offset(self._options.view)
        units = self._units(self._logs.find(), nothing)
        target = {log.name: self._look(log, nothing) for unit in units for log in unit.logs}
        for runs in runs_of(units):
            logs = [target[log.name] for unit in runs for log in unit.logs]
            self._target_ns[_key(runs)] = complete_until_ns(logs, self._options.max_skew)
        self._target_logs = target

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The offset at which the next micro-batch ends; `start` if there is nothing to read."""
        begin = Offset.parse(start, self._options.view)
        logs = self._logs.find()
        self._logs.hold(logs, begin.logs)
        advances = [
            advance
            for runs in runs_of(self._units(logs, begin))
            if (advance := self._advance(runs, begin)) is not None
        ]
        limits = BatchLimit.of(limit, self._options.max_rows, self._options.max_bytes)
        unread = {each.log.name: each.unread for advance in advances for each in advance.logs}
        ends = batch_ends(list(unread.values()), limits)
        seqs, times = dict(begin.logs), dict(begin.times)
        for unit, of_unit, complete_ns, alone in advances:
            before = _mark(unit, begin)
            end_time_ns = self._options.time_to
            mark = next_mark(of_unit, before, ends, complete_ns, end_time_ns, alone=alone)
            if mark is not None:
                times[unit.name] = mark.time_ns
                seqs.update(mark.logs)
        if (seqs, times) == (begin.logs, begin.times):
            return start
        return Offset(begin.view, seqs, times).to_json()

    def _advance(self, runs: Sequence[LogUnit], begin: Offset) -> _Advance | None:
        """The first timeline of an instrument that has unread records; None: none has any.

        The others follow in later micro-batches: rows of an instrument are in the order of time.
        """
        seen = {
            log.name: self._seen(log, begin)
            for unit in runs
            for log in unit.logs
            if self._target_logs is None or log.name in self._target_logs
        }
        waiting = {name for name, each in seen.items() if each.unread.end > each.unread.first}
        unit = next((run for run in runs if any(log.name in waiting for log in run.logs)), None)
        if unit is None:
            return None
        of_unit = [seen[log.name] for log in unit.logs if log.name in seen]
        if self._target_logs is not None:
            complete_ns = self._target_ns.get(_key(runs))
        else:
            complete_ns = complete_until_ns(list(seen.values()), self._options.max_skew)
        if unit is not runs[-1] and complete_ns is not None:
            # Not past its end: the missing day may still appear, and continues from there.
            complete_ns = min(complete_ns, end_ns(of_unit) or complete_ns)
        return _Advance(unit, of_unit, complete_ns, len(seen) == 1)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Tasks of one or more instruments each: one task reads a timeline, in order."""
        begin, until, logs = self._range(start, end)
        units = {unit.name: unit for unit in self._units(logs, until)}
        scale = _decimal_scale(self._columns)
        steps = []
        for name, time_ns in until.times.items():
            unit = units.get(name)
            if unit is not None:
                before, after = _mark(unit, begin), _mark(unit, until)
                if after is not None and before != after:
                    steps.append(self._step(unit, before, after, scale))
            elif begin.times.get(name) != time_ns:
                raise InvalidOption(
                    f"the logs of an instrument no longer exist: instrument={name}",
                    hint="restore them, or start with a new checkpoint",
                )
        return group_parts(steps, wanted_tasks(self._options, self._parallelism))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in an executor."""
        return read_task(partition, self._columns, lambda step: read_step(step, self._options))

    def commit(self, end: dict[str, Any]) -> None:
        """The checkpoint has committed `end`: delete old states, release what no state needs."""
        until = Offset.parse(end, self._options.view)
        checkpoints = checkpoints_of(self._options)
        needed: dict[str, int] = {}
        for unit in self._units(self._logs.find(), until):
            mark = _mark(unit, until)
            kept = None if mark is None else checkpoints.prune(unit.name, mark)
            read = {} if kept is None else next_seqs(kept.state)
            for log in unit.logs:
                # A state may not have read all records before its mark: keep those too.
                seq = min(read.get(log.name, 0), kept.mark.logs.get(log.name, 0)) if kept else 0
                needed[log.name] = min(seq, needed.get(log.name, seq))
        self._logs.release(needed)

    def _units(self, logs: Sequence[LogRef], offset: Offset) -> list[LogUnit]:
        return units_of(self._options, logs, read=offset.logs, begun=offset.times)

    def _seen(self, log: LogRef, begin: Offset) -> SeenLog:
        """A log as it is now; in an `availableNow` run, as it was when the run began."""
        seen = self._look(log, begin)
        if self._target_logs is None:
            return seen
        target = self._target_logs[log.name]
        return replace(target, unread=seen.unread.capped(target.unread.end))

    def _look(self, log: LogRef, begin: Offset) -> SeenLog:
        status = self._logs.look(log)
        unread = self._logs.unread_of(log, status, begin.logs.get(log.name))
        return SeenLog(log, unread, status.writer.alive, status.last_timestamp_ns)

    def _step(
        self, unit: LogUnit, before: CheckpointMark | None, after: CheckpointMark, scale: int
    ) -> ReplayStep:
        paths, first_seqs = {}, {}
        continued: list[str] = []
        records = 0
        for log in unit.logs:
            high = after.logs.get(log.name)
            if high is None:
                continue
            paths[log.name] = log.path
            low = None if before is None else before.logs.get(log.name)
            records += high - (low or 0)
            if low == high and not is_grid(self._options):
                continue  # nothing to read in this step
            seen = self._logs.look(log)
            if low is not None:
                self._logs.check_range(log, seen, low, high)
            if before is None:
                first_seqs[log.name] = first_seq_of(seen)
            if seen.last_seq is not None and seen.last_seq >= high:
                continued.append(log.name)
        return ReplayStep(
            unit.name,
            unit.instrument,
            paths,
            before,
            after,
            tuple(continued),
            first_seqs,
            scale,
            records * RECORD_BYTES,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_target_logs": None, "_target_ns": {}}


def _key(runs: Sequence[LogUnit]) -> str:
    """A key for the timelines of one instrument: one for those of days, one for that without."""
    return f"{runs[0].whole}@" if runs[0].since else runs[0].whole


def _decimal_scale(columns: Sequence[schemas.ViewColumn]) -> int:
    """The scale of decimal prices in the schema of the query; 0 if there are none."""
    for column in columns:
        of = column.type.elementType if isinstance(column.type, sql.ArrayType) else column.type
        if isinstance(of, sql.DecimalType):
            return of.scale
    return 0


def _mark(unit: LogUnit, offset: Offset) -> CheckpointMark | None:
    """The position of a unit; None: it has not started."""
    time_ns = offset.times.get(unit.name)
    if time_ns is None:
        return None
    names = [log.name for log in unit.logs]
    return CheckpointMark(
        time_ns, {name: offset.logs[name] for name in names if name in offset.logs}
    )
