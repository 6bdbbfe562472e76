"""The reader of a streaming query: how far a micro-batch goes, what tasks read, what is released.

Spark creates a reader in a separate process next to the driver, which exists as long as the query
and is asked for offsets, and sends copies to the executors, which only call `read`. So nothing is
opened before it is needed, and no open file is part of a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tapewire.errors import InvalidOption
from tapewire.spark import views
from tapewire.spark.reading import schemas
from tapewire.spark.reading.batch import read_task, wanted_tasks
from tapewire.spark.reading.tasks import group_parts
from tapewire.spark.streaming.batch_limits import BatchLimit, batch_ends
from tapewire.spark.streaming.followed_logs import FollowedLogs
from tapewire.spark.streaming.offsets import Offset

if TYPE_CHECKING:
    import pyarrow as pa

    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions

__all__ = ["FailedStreamReader", "StreamReader", "reader"]

# Fewer records of a micro-batch are not worth another task.
TASK_RECORDS = 20_000


def reader(
    options: ReadOptions,
    columns: Sequence[schemas.ViewColumn],
    parallelism: int | None,
    master: str | None,
) -> DataSourceStreamReader:
    """The reader of a streaming query over one view."""
    if options.view in ("book", "features"):
        from tapewire.spark.streaming.replayed_reader import ReplayedStreamReader

        return ReplayedStreamReader(options, columns, parallelism, master)
    if options.view == "gaps":
        from tapewire.spark.streaming.gaps_reader import GapsStreamReader

        return GapsStreamReader(options, columns, parallelism, master)
    return StreamReader(options, columns, parallelism, master)


class FailedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of an invalid query: each method that Spark may call first raises the error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _raise(self, *args: Any) -> Any:
        raise self._error.with_traceback(None)

    initialOffset = getDefaultReadLimit = prepareForTriggerAvailableNow = _raise
    latestOffset = partitions = read = _raise  # type: ignore[assignment]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the logs of a query over a view whose rows are records.

    Args:
        options: The options; `columns` are those of the output, in order.
        columns: The same columns with their types.
        parallelism: Cores of all workers; None if not known.
        master: Spark's master; None if not known.
    """

    def __init__(
        self,
        options: ReadOptions,
        columns: Sequence[schemas.ViewColumn],
        parallelism: int | None = None,
        master: str | None = None,
    ) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._parallelism = parallelism
        self._master = master
        self._followed: FollowedLogs | None = None
        self._target: dict[str, int] | None = None

    @property
    def _logs(self) -> FollowedLogs:
        if self._followed is None:
            self._followed = FollowedLogs(self._options, self._master)
        return self._followed

    def initialOffset(self) -> dict[str, Any]:
        """The offset before all records: it lists no log, so it never changes."""
        return Offset(self._options.view).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of the options."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Store the current ends of the logs: this run does not read past them."""
        self._target = self._logs.ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The offset at which the next micro-batch ends; `start` if there is nothing to read."""
        begin = Offset.parse(start, self._options.view)
        unread = self._logs.unread(begin.logs)
        if self._target is not None:
            unread = [log.capped(self._target.get(log.name, log.first)) for log in unread]
        limits = BatchLimit.of(limit, self._options.max_rows, self._options.max_bytes)
        ends = batch_ends(unread, limits)
        if not ends:
            return start
        return Offset(begin.view, {**begin.logs, **ends}).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch: exactly the records from `start` to `end`."""
        begin, until, found = self._range(start, end)
        logs = {log.name: log for log in found}
        ranges = {
            name: (begin.logs.get(name), high)
            for name, high in until.logs.items()
            if high > begin.logs.get(name, -1)
        }
        missing = sorted(ranges.keys() - logs.keys())
        if missing:
            raise InvalidOption(
                f"a log of this micro-batch no longer exists: queue={missing[0]}",
                hint="restore it, or start with a new checkpoint",
            )
        for name, (low, high) in ranges.items():
            if low is not None:
                log = logs[name]
                self._logs.check_range(log, self._logs.look(log), low, high)
        records = sum(high - (low or 0) for low, high in ranges.values())
        wanted = wanted_tasks(self._options, self._parallelism)
        if self._options.partitions is None:
            wanted = max(1, min(wanted, records // TASK_RECORDS))
        parts: list[Any] = []
        view = views.find(self._options.view)
        for name, (low, high) in sorted(ranges.items()):
            first = self._options.seq_from if low is None else low
            options = self._options.replace(seq_from=first, seq_to=high)
            share = max(1, round(wanted * (high - (low or 0)) / max(records, 1)))
            parts += view.plan(options, [logs[name]], share)
        return group_parts(parts, wanted)

    def _range(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> tuple[Offset, Offset, list[LogRef]]:
        """The offsets of a micro-batch, checked, and the current logs, which are held."""
        begin = Offset.parse(start, self._options.view)
        until = Offset.parse(end, self._options.view)
        until.check_follows(begin)
        logs = self._logs.find()
        self._logs.hold(logs, begin.logs)
        return begin, until, logs

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in an executor."""
        view = views.find(self._options.view)
        return read_task(partition, self._columns, lambda part: view.read(part, self._options))

    def commit(self, end: dict[str, Any]) -> None:
        """The checkpoint has committed `end`: release the records before it."""
        self._logs.release(Offset.parse(end, self._options.view).logs)

    def stop(self) -> None:
        """Close the pinned readers; their positions stay in the logs."""
        if self._followed is not None:
            self._followed.close()
            self._followed = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_followed": None, "_target": None}
