"""The reader of a streaming query: how far it may go, what each task reads, what may be let go.

Spark makes one in a process of its own beside the driver, which lives as long as the query and is
asked for offsets; and copies of it in the executors, which only `read`. So nothing is opened before
it is needed, and nothing that is open is sent anywhere.
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
from tapewire.spark.reading.batch import read_pack, wanted_parts
from tapewire.spark.reading.packs import pack
from tapewire.spark.streaming.followed_logs import FollowedLogs
from tapewire.spark.streaming.limits import Limit, cut
from tapewire.spark.streaming.offsets import Offset

if TYPE_CHECKING:
    import pyarrow as pa

    from tapewire.scan.options import ReadOptions

__all__ = ["RefusedStreamReader", "StreamReader", "reader"]

# Records of a micro-batch that are worth a task of their own.
TASK_RECORDS = 20_000


def reader(
    options: ReadOptions,
    columns: Sequence[schemas.ViewColumn],
    parallelism: int | None,
    master: str | None,
) -> DataSourceStreamReader:
    """The reader of a streaming query over one view."""
    if options.view in ("book", "features"):
        from tapewire.spark.streaming.replayed import ReplayedStreamReader

        return ReplayedStreamReader(options, columns, parallelism, master)
    if options.view == "gaps":
        from tapewire.spark.streaming.gaps import GapsStreamReader

        return GapsStreamReader(options, columns, parallelism, master)
    return StreamReader(options, columns, parallelism, master)


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Of a query that cannot be: whatever Spark asks first is answered by the error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _refuse(self, *args: Any) -> Any:
        raise self._error.with_traceback(None)

    initialOffset = getDefaultReadLimit = prepareForTriggerAvailableNow = _refuse
    latestOffset = partitions = read = _refuse  # type: ignore[assignment]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the logs of a query: of views in which a row is of a record.

    Args:
        options: The options, with `columns` as they are to come.
        columns: The same columns with their types.
        parallelism: Cores of all workers; None when that is not known.
        master: Spark's master; None when it is not known.
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
        """Before everything: of no log. The same however often, and whatever comes meanwhile."""
        return Offset(self._options.view).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Note what is there now: this run goes no further."""
        self._target = self._logs.ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` itself when there is nothing to read."""
        begin = Offset.parse(start, self._options.view)
        ahead = self._logs.ahead(begin.logs)
        if self._target is not None:
            ahead = [log.capped(self._target.get(log.name, log.first)) for log in ahead]
        limits = Limit.of(limit, self._options.max_rows, self._options.max_bytes)
        ends = cut(ahead, limits)
        if not ends:
            return start
        return Offset(begin.view, {**begin.logs, **ends}).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch: what `end` has that `start` has not, and nothing else."""
        begin = Offset.parse(start, self._options.view)
        until = Offset.parse(end, self._options.view)
        until.check_follows(begin)
        logs = {log.name: log for log in self._logs.find()}
        self._logs.hold(list(logs.values()), begin.logs)
        ranges = {
            name: (begin.logs.get(name), number)
            for name, number in until.logs.items()
            if number > begin.logs.get(name, -1)
        }
        gone = sorted(ranges.keys() - logs.keys())
        if gone:
            raise InvalidOption(
                f"a log of this micro-batch is not there any more: queue={gone[0]}",
                hint="put it back, or begin with a new checkpoint",
            )
        for name, (low, number) in ranges.items():
            if low is not None:
                log = logs[name]
                self._logs.check_range(log, self._logs.look(log), low, number)
        records = sum(number - (low or 0) for low, number in ranges.values())
        wanted = wanted_parts(self._options, self._parallelism)
        if self._options.partitions is None:
            wanted = max(1, min(wanted, records // TASK_RECORDS))
        parts: list[Any] = []
        view = views.find(self._options.view)
        for name, (low, number) in sorted(ranges.items()):
            first = self._options.seq_from if low is None else low
            options = self._options.replace(seq_from=first, seq_to=number)
            share = max(1, round(wanted * (number - (low or 0)) / max(records, 1)))
            parts += view.plan(options, [logs[name]], share)
        return pack(parts, wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; in an executor."""
        view = views.find(self._options.view)
        return read_pack(partition, self._columns, lambda part: view.read(part, self._options))

    def commit(self, end: dict[str, Any]) -> None:
        """The checkpoint has all before `end`: retention may have it."""
        self._logs.release(Offset.parse(end, self._options.view).logs)

    def stop(self) -> None:
        """The query has stopped. What it has read up to stays noted in the logs."""
        if self._followed is not None:
            self._followed.close()
            self._followed = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_followed": None, "_target": None}
