"""Libraries that accept a batch directly, each through the calls that its users write."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa

COLUMNS = ["seq", "timestamp_ns", "type_id", "flags", "payload"]


@dataclass(frozen=True)
class Consumer:
    """`take(batch)` gives the library's own object, `columns(object)` its values as lists."""

    take: Callable[[Any], Any]
    columns: Callable[[Any], dict[str, list[Any]]]
    in_place: bool  # the object refers to the mapped segments, not to a copy
    any_thread: bool = True  # several threads may do this at once


def _sql(batch):
    return duckdb.sql("from batch")  # finds the caller's variable by its name


def _sql_by_a_connection(batch):
    return duckdb.connect().sql("from batch")


def _rows(names, rows):
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _relation(relation):
    return _rows(relation.columns, relation.fetchall())


def _pandas(frame):
    return {name: frame[name].tolist() for name in frame.columns}


def _struct(series):
    return series.struct.unnest().to_dict(as_series=False)


def _polars(frame):
    return frame.to_dict(as_series=False)


def _arrow(table):
    table.validate(full=True)
    return table.to_pydict()


CONSUMERS = {
    "pyarrow.record_batch": Consumer(pa.record_batch, _arrow, True),
    "pyarrow.table": Consumer(pa.table, _arrow, True),
    "pyarrow.RecordBatchReader": Consumer(
        lambda batch: pa.RecordBatchReader.from_stream(batch).read_all(), _arrow, True
    ),
    "batch.to_arrow": Consumer(lambda batch: batch.to_arrow(), _arrow, True),
    "polars.DataFrame": Consumer(pl.DataFrame, _polars, True),
    "polars.from_arrow": Consumer(pl.from_arrow, _struct, True),
    "polars.scan_arrow_c_stream": Consumer(
        lambda batch: pl.scan_arrow_c_stream(batch).collect(), _polars, True
    ),
    "batch.to_polars": Consumer(lambda batch: batch.to_polars(), _polars, True),
    # The module's own connection raises in a second thread instead of waiting.
    "duckdb.sql": Consumer(_sql, _relation, True, any_thread=False),
    "duckdb.connect": Consumer(_sql_by_a_connection, _relation, True),
    "duckdb to a table": Consumer(
        lambda batch: _sql_by_a_connection(batch).to_arrow_table(), _arrow, False
    ),
    "batch.to_pandas": Consumer(lambda batch: batch.to_pandas(), _pandas, False),
    "pandas with Arrow types": Consumer(
        lambda batch: batch.to_arrow().to_pandas(types_mapper=pd.ArrowDtype), _pandas, True
    ),
}
