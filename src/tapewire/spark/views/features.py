"""The view `features`: values computed from books and trades, one row per sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as sql

from tapewire.errors import InvalidOption
from tapewire.replay import FeatureStream, describe_features
from tapewire.replay.row_stream import look_back_ns
from tapewire.scan import replay_slices
from tapewire.scan.columns import timestamps
from tapewire.scan.replay_units import units_of
from tapewire.spark.reading.schemas import ViewColumn

if TYPE_CHECKING:
    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions
    from tapewire.scan.replay_slices import ReplaySlice

__all__ = ["names_of", "open_stream", "plan", "read", "schema", "shape"]

FIXED = (
    ViewColumn("timestamp_ns", sql.LongType()),
    ViewColumn("timestamp", sql.TimestampType()),
    ViewColumn("venue", sql.StringType()),
    ViewColumn("symbol", sql.StringType()),
)
# For features over a span, if the option `features` names none.
DEFAULT_SPAN = "1m"


def names_of(options: ReadOptions) -> tuple[str, ...]:
    """The requested features; by default all of them, with `levels` levels and over one minute."""
    if options.features is not None:
        return options.features
    return tuple(
        info.name.replace("_SPAN", f"_{DEFAULT_SPAN}").replace("N", str(options.levels))
        for info in describe_features()
    )


def schema(options: ReadOptions, logs: Sequence[LogRef]) -> Sequence[ViewColumn]:
    """Time and instrument, then a DOUBLE for each feature, null where it has no value."""
    names = names_of(options)
    look_back_ns(names, options.sample)  # raises if a name or `sample` is invalid
    for name in names:
        if name in {column.name for column in FIXED}:
            raise InvalidOption(f"a feature has the name of another column: features={name!r}")
    return (*FIXED, *(ViewColumn(name, sql.DoubleType(), nullable=True) for name in names))


def plan(options: ReadOptions, logs: Sequence[LogRef], wanted: int) -> list[ReplaySlice]:
    """Time slices of each instrument."""
    look_back = look_back_ns(names_of(options), options.sample)
    return replay_slices.plan(options, units_of(options, logs), wanted, look_back)


def read(part: ReplaySlice, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a slice."""
    look_back = look_back_ns(names_of(options), options.sample)
    bounds = replay_slices.stream_options(part, options, look_back)
    with open_stream(options, **bounds) as stream:
        replay_slices.refuse_retired(part, options, look_back)
        for batch in stream:
            yield shape(batch, options)


def open_stream(options: ReadOptions, **bounds: Any) -> FeatureStream:
    """Open the stream of rows over these logs; `shape` converts its batches for Spark."""
    names = names_of(options)
    if options.columns is not None:
        names = tuple(name for name in names if name in options.columns) or names[:1]
    return FeatureStream(names=names, sample=options.sample, venues=True, **bounds)


def shape(batch: pa.RecordBatch, options: ReadOptions) -> pa.RecordBatch:
    """Convert a batch of `open_stream` to the requested columns."""
    names = options.columns or [column.name for column in schema(options, ())]
    columns = [
        timestamps(batch["timestamp_ns"].to_numpy()) if name == "timestamp" else batch[name]
        for name in names
    ]
    return pa.record_batch(columns, names=list(names))
