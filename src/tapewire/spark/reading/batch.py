"""The reader of a batch query: plans the parts of a view and reads them in executors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tapewire.errors import InvalidMessage
from tapewire.scan import slices
from tapewire.spark import views
from tapewire.spark.reading import packs, schemas

if TYPE_CHECKING:
    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions

__all__ = ["BatchReader", "read_pack", "relabel", "wanted_parts"]


class BatchReader(DataSourceReader):
    """Reads one view of some logs.

    Args:
        options: The options, with `columns` as they are to come.
        columns: The same columns with their types.
        logs: What to read.
        parallelism: Cores of all workers; None when that is not known.
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
        """What each task reads; of the logs as they are now."""
        wanted = wanted_parts(self._options, self._parallelism)
        parts = views.find(self._options.view).plan(self._options, self._logs, wanted)
        limit = slices.SLICE_BYTES if self._options.partitions is None else None
        return packs.pack(parts, wanted, limit=limit)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        view = views.find(self._options.view)
        return read_pack(partition, self._columns, lambda part: view.read(part, self._options))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_logs": []}  # of no use to who reads, and there may be many


def wanted_parts(options: ReadOptions, parallelism: int | None) -> int:
    """How many parts a query is to have: two a core, unless it was said."""
    return options.partitions or 2 * (parallelism or os.cpu_count() or 1)


def read_pack(
    partition: InputPartition,
    columns: Sequence[schemas.ViewColumn],
    read: Callable[[Any], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """What one task gives: the rows of its parts, one after the other, under Spark's schema."""
    if not isinstance(partition, packs.Pack):
        return  # Spark's own, where there is nothing to read
    schema = schemas.arrow_schema(columns)
    for part in partition.slices:
        for batch in read(part):
            yield relabel(batch, schema)


def relabel(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch under exactly the schema that Spark was told.

    Nulls get a type, decimals a scale, and lists may be called nullable inside.

    Raises:
        InvalidMessage: A decimal does not fit.
    """
    columns = [
        column if column.type == field.type else _fitted(column, field)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fitted(column: pa.Array, field: pa.Field) -> pa.Array:
    if pa.types.is_null(column.type) and field.nullable:
        return pa.nulls(len(column), field.type)  # a field that this version does not have
    if pa.types.is_list(column.type) and pa.types.is_list(field.type):
        return column.cast(field.type)  # the same, but for its nullability
    if not (pa.types.is_decimal(column.type) and pa.types.is_decimal(field.type)):
        raise TypeError(f"a view gave another type: {field.name}, {column.type}, {field.type}")
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise InvalidMessage(
            f"a value does not fit its column: column={field.name}, type={field.type} ({error})",
            hint="mend the scales in instruments.json, or read prices as scaled",
        ) from None
