"""The columns of every view: one table gives Spark's schema and Arrow's, nullability included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as sql

from tapewire.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["GAPS", "RECORDS", "TRADES", "Column", "arrow_schema", "select", "struct_type", "take"]

_LONG = sql.LongType()
_INT = sql.IntegerType()
_TEXT = sql.StringType()
_TIME = sql.TimestampType()


@dataclass(frozen=True)
class Column:
    """One column of a view."""

    name: str
    type: sql.DataType
    nullable: bool = False


RECORDS = (
    Column("seq", _LONG),
    Column("timestamp_ns", _LONG),
    Column("timestamp", _TIME),
    Column("type_id", _INT),
    Column("flags", _INT),
    Column("payload", sql.BinaryType()),
    Column("queue", _TEXT),
)

TRADES = (
    Column("seq", _LONG),
    Column("timestamp_ns", _LONG),
    Column("timestamp", _TIME),
    Column("venue", _TEXT),
    Column("symbol", _TEXT),
    Column("exchange_ts_ns", _LONG),
    Column("price", _LONG),
    Column("size", _LONG),
    Column("price_scale", _INT),
    Column("size_scale", _INT),
    Column("side", _TEXT, nullable=True),
    Column("trade_id", _LONG),
    Column("buyer_order_id", _LONG),
    Column("seller_order_id", _LONG),
    Column("queue", _TEXT),
)

GAPS = (
    Column("queue", _TEXT),
    Column("venue", _TEXT, nullable=True),
    Column("symbol", _TEXT, nullable=True),
    Column("stream", _TEXT, nullable=True),
    Column("kind", _TEXT),
    Column("first", _LONG, nullable=True),
    Column("last", _LONG, nullable=True),
    Column("seq", _LONG, nullable=True),
    Column("timestamp_ns", _LONG, nullable=True),
    Column("timestamp", _TIME, nullable=True),
    Column("cause", _TEXT),
    Column("action", _TEXT),
)


def select(columns: Sequence[Column], names: Sequence[str] | None) -> tuple[Column, ...]:
    """Some of the columns, in the order of `names`; all when that is None.

    Example:
        >>> [column.name for column in select(RECORDS, ["payload", "seq"])]
        ['payload', 'seq']
        >>> select(RECORDS, ["price"])
        Traceback (most recent call last):
            ...
        tapewire.errors.InvalidOption: the view has no such column: price; there are: seq, \
timestamp_ns, timestamp, type_id, flags, payload, queue
    """
    if names is None:
        return tuple(columns)
    known = {column.name: column for column in columns}
    for name in names:
        if name not in known:
            raise InvalidOption(
                f"the view has no such column: {name}", hint=f"there are: {', '.join(known)}"
            )
    return tuple(known[name] for name in names)


def take(columns: Sequence[Column], asked: sql.StructType) -> tuple[Column, ...]:
    """The columns that a schema given by ``.schema(…)`` asks for.

    Raises:
        InvalidOption: It has another column, another type, or calls not null what may be null.
    """
    found = []
    for column, field in zip(select(columns, asked.names), asked.fields, strict=True):
        if not _may_be(column.type, field.dataType):
            raise InvalidOption(
                f"the schema asks for another type: column={column.name}, "
                f"type={field.dataType.simpleString()}",
                hint=f"it is {column.type.simpleString()}: give that, and cast the column",
            )
        if column.nullable and not field.nullable:
            raise InvalidOption(f"the schema calls not null what may be null: column={column.name}")
        found.append(Column(field.name, field.dataType, field.nullable))
    return tuple(found)


def _may_be(own: sql.DataType, asked: sql.DataType) -> bool:
    """Whether a column may be called this: the same, or with nulls in lists that have none.

    DDL text cannot say that a list has none.
    """
    if isinstance(own, sql.ArrayType) and isinstance(asked, sql.ArrayType):
        return own.elementType == asked.elementType and own.containsNull <= asked.containsNull
    return own == asked


def struct_type(columns: Sequence[Column]) -> sql.StructType:
    """The columns for Spark."""
    return sql.StructType(
        [sql.StructField(column.name, column.type, column.nullable) for column in columns]
    )


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The columns for Arrow, as Spark will have them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema: Any = to_arrow_schema(struct_type(columns), timezone="UTC")
    return schema
