"""The reader of a batch query: plans the parts of a view; executors read them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tapewire.errors import InvalidMessage
from tapewire.scan import slices
from tapewire.spark import views
from tapewire.spark.reading import schemas
from tapewire.spark.reading.tasks import Task, group_parts

if TYPE_CHECKING:
    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions

__all__ = ["BatchReader", "read_task", "relabel", "wanted_tasks"]


class BatchReader(DataSourceReader):
    """Reads one view of some logs.

    Args:
        options: The options; `columns` are those of the output, in order.
        columns: The same columns with their types.
        logs: What to read.
        parallelism: Cores of all workers; None if not known.
    """

    def __init__(
        self,
        options: ReadOptions,
        columns: Sequence[schemas.ViewColumn],
        logs: list[LogRef],
        parallelism: int | None = None,
    ) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._logs = logs
        self._parallelism = parallelism

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks, planned on the logs as they are now."""
        wanted = wanted_tasks(self._options, self._parallelism)
        parts = views.find(self._options.view).plan(self._options, self._logs, wanted)
        limit = slices.SLICE_BYTES if self._options.partitions is None else None
        return group_parts(parts, wanted, limit=limit)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        view = views.find(self._options.view)
        return read_task(partition, self._columns, lambda part: view.read(part, self._options))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_logs": []}  # executors do not need them; there may be many


def wanted_tasks(options: ReadOptions, parallelism: int | None) -> int:
    """How many tasks a query should have: option `partitions`, or two per core."""
    return options.partitions or 2 * (parallelism or os.cpu_count() or 1)


def read_task(
    partition: InputPartition,
    columns: Sequence[schemas.ViewColumn],
    read: Callable[[Any], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """The rows of one task, part after part, with Spark's schema."""
    if not isinstance(partition, Task):
        return  # made by Spark if there is nothing to read
    schema = schemas.arrow_schema(columns)
    for part in partition.parts:
        for batch in read(part):
            yield relabel(batch, schema)


def relabel(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the schema that was declared to Spark.

    Nulls get a type, decimals a scale, and items of lists may become nullable.

    Raises:
        InvalidMessage: A decimal does not fit.
    """
    columns = [
        column if column.type == field.type else _cast(column, field)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if pa.types.is_null(column.type) and field.nullable:
        return pa.nulls(len(column), field.type)  # this version of the message lacks the field
    if pa.types.is_list(column.type) and pa.types.is_list(field.type):
        return column.cast(field.type)  # only the nullability of its items differs
    if not (pa.types.is_decimal(column.type) and pa.types.is_decimal(field.type)):
        raise TypeError(
            f"a view returned another type: column={field.name}, type={column.type}, "
            f"expected={field.type}"
        )
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise InvalidMessage(
            f"a value does not fit its column: column={field.name}, type={field.type} ({error})",
            hint="correct the scales in instruments.json, or read prices as scaled",
        ) from None
