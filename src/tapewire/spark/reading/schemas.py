"""The columns of the views, and their schemas for Spark and Arrow, nullability included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as sql

from tapewire.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "RECORDS",
    "TRADES",
    "ViewColumn",
    "arrow_schema",
    "from_arrow",
    "match_schema",
    "select",
    "struct_type",
]

_LONG = sql.LongType()
_INT = sql.IntegerType()
_TEXT = sql.StringType()
_TIME = sql.TimestampType()


@dataclass(frozen=True)
class ViewColumn:
    """One column of a view."""

    name: str
    type: sql.DataType
    nullable: bool = False


RECORDS = (
    ViewColumn("seq", _LONG),
    ViewColumn("timestamp_ns", _LONG),
    ViewColumn("timestamp", _TIME),
    ViewColumn("type_id", _INT),
    ViewColumn("flags", _INT),
    ViewColumn("payload", sql.BinaryType()),
    ViewColumn("queue", _TEXT),
)

TRADES = (
    ViewColumn("seq", _LONG),
    ViewColumn("timestamp_ns", _LONG),
    ViewColumn("timestamp", _TIME),
    ViewColumn("venue", _TEXT),
    ViewColumn("symbol", _TEXT),
    ViewColumn("exchange_ts_ns", _LONG),
    ViewColumn("price", _LONG),
    ViewColumn("size", _LONG),
    ViewColumn("price_scale", _INT),
    ViewColumn("size_scale", _INT),
    ViewColumn("side", _TEXT, nullable=True),
    ViewColumn("trade_id", _LONG),
    ViewColumn("buyer_order_id", _LONG),
    ViewColumn("seller_order_id", _LONG),
    ViewColumn("queue", _TEXT),
)


def select(columns: Sequence[ViewColumn], names: Sequence[str] | None) -> tuple[ViewColumn, ...]:
    """The columns called `names`, in that order; all if None.

    Example:
        >>> [column.name for column in select(RECORDS, ["payload", "seq"])]
        ['payload', 'seq']
        >>> select(RECORDS, ["price"])
        Traceback (most recent call last):
            ...
        tapewire.errors.InvalidOption: the view has no such column: column=price; available: seq, \
timestamp_ns, timestamp, type_id, flags, payload, queue
    """
    if names is None:
        return tuple(columns)
    known = {column.name: column for column in columns}
    for name in names:
        if name not in known:
            raise InvalidOption(
                f"the view has no such column: column={name}", hint=f"available: {', '.join(known)}"
            )
    return tuple(known[name] for name in names)


def match_schema(columns: Sequence[ViewColumn], asked: sql.StructType) -> tuple[ViewColumn, ...]:
    """The columns that a schema given by ``.schema(…)`` requests.

    Raises:
        InvalidOption: The view lacks a column, or has it with another type or with nulls.
    """
    found = []
    for column, field in zip(select(columns, asked.names), asked.fields, strict=True):
        if not _is_compatible(column.type, field.dataType):
            raise InvalidOption(
                f"the schema has another type: column={column.name}, "
                f"type={field.dataType.simpleString()}",
                hint=f"use {column.type.simpleString()} in the schema, and cast the column",
            )
        if column.nullable and not field.nullable:
            raise InvalidOption(
                f"the schema declares a column not null that may be null: column={column.name}"
            )
        found.append(ViewColumn(field.name, field.dataType, field.nullable))
    return tuple(found)


def _is_compatible(own: sql.DataType, asked: sql.DataType) -> bool:
    """Whether the types are equal, except that `asked` may allow nulls in lists.

    DDL text cannot express that a list has no nulls.
    """
    if isinstance(own, sql.ArrayType) and isinstance(asked, sql.ArrayType):
        return own.elementType == asked.elementType and own.containsNull <= asked.containsNull
    return own == asked


def from_arrow(schema: pa.Schema) -> tuple[ViewColumn, ...]:
    """The columns of an Arrow schema."""
    from pyspark.sql.pandas.types import from_arrow_type

    return tuple(
        ViewColumn(field.name, from_arrow_type(field.type), field.nullable) for field in schema
    )


def struct_type(columns: Sequence[ViewColumn]) -> sql.StructType:
    """The columns as a schema of Spark."""
    return sql.StructType(
        [sql.StructField(column.name, column.type, column.nullable) for column in columns]
    )


def arrow_schema(columns: Sequence[ViewColumn]) -> pa.Schema:
    """The columns as the Arrow schema that Spark derives from its own."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema: Any = to_arrow_schema(struct_type(columns), timezone="UTC")
    return schema
