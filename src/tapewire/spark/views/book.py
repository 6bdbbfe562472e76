"""The view `book`: the best levels of the book, one row per sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as sql

from tapewire.replay import BookStream
from tapewire.replay.row_stream import look_back_ns
from tapewire.scan import replay_slices
from tapewire.scan.columns import bigint, decimals, timestamps
from tapewire.scan.instruments import price_scale
from tapewire.scan.replay_units import LogUnit, units_of
from tapewire.spark.reading.schemas import ViewColumn

if TYPE_CHECKING:
    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions
    from tapewire.scan.replay_slices import ReplaySlice

__all__ = ["open_stream", "plan", "read", "schema", "shape"]

FIXED = (
    ViewColumn("timestamp_ns", sql.LongType()),
    ViewColumn("timestamp", sql.TimestampType()),
    ViewColumn("seq", sql.LongType(), nullable=True),
    ViewColumn("venue", sql.StringType()),
    ViewColumn("symbol", sql.StringType()),
    ViewColumn("trusted", sql.BooleanType()),
    ViewColumn("price_scale", sql.IntegerType()),
    ViewColumn("size_scale", sql.IntegerType()),
)
SIDES = ("bid", "ask")
# Spark's name for the items of a list.
_ELEMENT = "element"


def schema(options: ReadOptions, logs: Sequence[LogRef]) -> Sequence[ViewColumn]:
    """Time, instrument and `trusted`, then the levels: lists, or with `flat` a column each."""
    look_back_ns((), options.sample)  # raises if `sample` is invalid
    units = units_of(options, logs)
    kinds = ["price", "size"]
    if any(unit.instrument is not None and unit.instrument.book_mode == "l3" for unit in units):
        kinds.append("orders")
    price: sql.DataType = sql.LongType()
    if options.prices == "decimal":
        price = sql.DecimalType(38, _scale(options, units))
    columns = list(FIXED)
    for side in SIDES:
        types = [(kind, price if kind == "price" else sql.LongType()) for kind in kinds]
        if options.flat:
            columns += [
                ViewColumn(f"{side}_{kind}_{level}", of, nullable=True)
                for level in range(1, options.levels + 1)
                for kind, of in types
            ]
        else:
            columns += [
                ViewColumn(_list_name(side, kind), sql.ArrayType(of, containsNull=False))
                for kind, of in types
            ]
    return tuple(columns)


def _list_name(side: str, kind: str) -> str:
    return f"{side}_{kind}" if kind.endswith("s") else f"{side}_{kind}s"


def _scale(options: ReadOptions, units: Sequence[LogUnit]) -> int:
    """The largest price scale of the instruments of a query."""
    return max(
        (
            price_scale(options, unit.logs)
            if unit.instrument is None
            else unit.instrument.price_scale
            for unit in units
        ),
        default=0,
    )


def plan(options: ReadOptions, logs: Sequence[LogRef], wanted: int) -> list[ReplaySlice]:
    """Time slices of each instrument."""
    units = units_of(options, logs)
    scale = _scale(options, units) if options.prices == "decimal" else 0
    return replay_slices.plan(options, units, wanted, 0, price_scale=scale)


def read(part: ReplaySlice, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a slice."""
    bounds = replay_slices.stream_options(part, options, 0)
    with open_stream(options, **bounds) as stream:
        replay_slices.refuse_retired(part, options, 0)
        for batch in stream:
            yield shape(batch, options, part.price_scale)


def open_stream(options: ReadOptions, **bounds: Any) -> BookStream:
    """Open the stream of rows over these logs; `shape` converts its batches for Spark."""
    orders = any("_orders" in name for name in options.columns or ())
    return BookStream(levels=options.levels, sample=options.sample, orders=orders, **bounds)


def shape(batch: pa.RecordBatch, options: ReadOptions, scale: int) -> pa.RecordBatch:
    """Convert a batch of `open_stream` to the columns in `options.columns`.

    Args:
        batch: The rows.
        options: The options, with `columns`.
        scale: Scale of prices as decimals.
    """
    assert options.columns is not None
    made = _Levels(batch, scale if options.prices == "decimal" else None)
    return pa.record_batch(
        [made.column(name) for name in options.columns], names=list(options.columns)
    )


def _unsliced(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in buffers without other rows, because `_Levels` uses the buffers of lists."""
    complete = all(
        column.offset == 0
        and (not pa.types.is_list(column.type) or len(column.values) == column.offsets[-1].as_py())
        for column in batch.columns
    )
    return batch if complete else batch.take(pa.array(np.arange(batch.num_rows)))


class _Levels:
    """The columns of a batch, converted on request."""

    def __init__(self, batch: pa.RecordBatch, decimals: int | None) -> None:
        self._batch = _unsliced(batch)
        self._decimals = decimals
        self._values: dict[str, pa.Array] = {}

    def column(self, name: str) -> pa.Array:
        batch = self._batch
        if name == "timestamp":
            return timestamps(batch["timestamp_ns"].to_numpy())
        if name == "seq":
            seq = batch["seq"]
            if seq.null_count:  # rows on a grid have no sequence number
                return pa.nulls(len(seq), pa.int64())
            return bigint("seq", seq.to_numpy(), "book")
        if name in batch.schema.names:
            return self._list(name) if name.startswith(SIDES) else batch[name]
        side, kind, level = name.split("_")
        return self._flat(_list_name(side, kind), int(level) - 1)

    def _list(self, name: str) -> pa.Array:
        lists, values = self._batch[name], self._of(name)
        of = pa.list_(pa.field(_ELEMENT, values.type, nullable=False))
        return pa.Array.from_buffers(of, len(lists), lists.buffers()[:2], 0, children=[values])

    def _flat(self, name: str, level: int) -> pa.Array:
        """One level of every row; null in rows with fewer levels."""
        ends = self._batch[name].offsets.to_numpy()
        at = ends[:-1] + level
        values = self._of(name)
        return values.take(pa.array(np.minimum(at, len(values)), mask=at >= ends[1:]))

    def _of(self, name: str) -> pa.Array:
        """The items of all lists of a column, concatenated; prices as integers or decimals."""
        if name not in self._values:
            values = self._batch[name].values
            if self._decimals is not None and name.endswith("_prices"):
                values = self._as_decimals(name, values, self._decimals)
            self._values[name] = values
        return self._values[name]

    def _as_decimals(self, name: str, values: pa.Array, scale: int) -> pa.Array:
        counts = np.diff(self._batch[name].offsets.to_numpy())
        scales = np.repeat(self._batch["price_scale"].to_numpy(), counts)
        return decimals(values.to_numpy(), scales, scale)
