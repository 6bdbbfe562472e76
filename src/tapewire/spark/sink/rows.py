"""Rows of a DataFrame as columns of records: checked, and split by log."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapewire.archive.record_columns import RecordColumns, plain
from tapewire.archive.transaction import StagingOptions
from tapewire.bus.layout import is_day
from tapewire.bus.names import check_name
from tapewire.clock import DAY_NS, date_of
from tapewire.errors import (
    InvalidMessage,
    InvalidName,
    InvalidOption,
    InvalidTypeId,
    PayloadTooLarge,
    TapewireError,
)
from tapewire.spark.sink.options import KEYS, WriteOptions

if TYPE_CHECKING:
    from tapewire.protocol.layout import MessageLayout

__all__ = ["FrameRows", "RowPlan", "plan_rows"]

# Columns of the views that are derived from others or from the path of the log.
_DERIVED = frozenset({"timestamp", "queue", "date", *KEYS})
_NOT_CHECKSUMMED = 1  # the only system flag; dropped because every append computes a checksum
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class RowPlan:
    """How the columns of the DataFrame become records. Made on the driver, used in every task.

    Attributes:
        has_seq: Rows have sequence numbers: logs are sparse and keep them.
        has_flags: Rows have flags.
        layout: Layout of the message that rows become; None: rows are records.
        keys: Key columns; ("queue",) if all keys come from the name of the source's log.
        constants: Keys that have one name for all rows.
        max_payload: Largest payload of these logs, in bytes.
        drop: Rows with a sequence number that the log has or has passed are omitted.
        keyed: A digest of the rows is computed, to recognise a repeated batch.
    """

    has_seq: bool
    has_flags: bool
    layout: MessageLayout | None
    keys: tuple[str, ...]
    constants: dict[str, str]
    max_payload: int
    drop: bool
    keyed: bool

    def staging(self, segment_bytes: int) -> StagingOptions:
        """The options for staging rows of this plan."""
        return StagingOptions(segment_bytes, self.has_seq, self.drop, self.keyed, self.layout)


def plan_rows(
    options: WriteOptions, types: dict[str, str], layout: MessageLayout | None, *, keyed: bool
) -> RowPlan:
    """Plan how columns with these names and types become records.

    Args:
        options: Options of the write.
        types: Name of each column to Spark's simple type.
        layout: Layout of the message that `options.type` names.
        keyed: Compute a digest of the rows.

    Raises:
        InvalidOption: A column is missing, has the wrong type, or is not used by the sink.
    """
    wanted: dict[str, tuple[str, ...]] = {"timestamp_ns": _INTEGERS}
    if layout is None:
        wanted |= {"type_id": _INTEGERS, "payload": ("binary",)}
    else:
        wanted |= {field.name: () for field in layout.fields}
    for name, kinds in wanted.items():
        if name not in types:
            raise InvalidOption(
                f"a column is missing: column={name}, available={','.join(types)}",
                hint="the sink takes the columns of the view records"
                if layout is None
                else f"{layout.title} has the fields {', '.join(f.name for f in layout.fields)}; "
                "and each row needs a timestamp_ns",
            )
        if kinds:
            _check_type(name, types[name], kinds)
    for name in ("seq", "flags"):
        if name in types and name not in wanted:
            _check_type(name, types[name], _INTEGERS)
    keys, constants = _keys(options, types)
    extra = [name for name in types if name not in (*wanted, "seq", "flags", *keys, *_DERIVED)]
    if extra:
        raise InvalidOption(
            f"the sink has no use for a column: column={','.join(extra)}",
            hint=f"use df.drop({', '.join(map(repr, extra))})",
        )
    own = {field.name for field in layout.fields} if layout else frozenset[str]()
    return RowPlan(
        has_seq="seq" in types and "seq" not in own,
        has_flags="flags" in types and "flags" not in own,
        layout=layout,
        keys=keys,
        constants=constants,
        max_payload=options.segment_bytes - 128,
        drop=options.duplicates == "drop",
        keyed=keyed,
    )


_INTEGERS = ("bigint", "int", "smallint", "tinyint")


def _check_type(name: str, kind: str, allowed: tuple[str, ...]) -> None:
    if kind not in allowed:
        raise InvalidOption(
            f"invalid type of a column: column={name}, type={kind}, must be {' or '.join(allowed)}"
        )


def _keys(options: WriteOptions, types: dict[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    constants = dict(options.constants or {})
    keys = options.partition_by
    if keys is None:
        keys = tuple(key for key in KEYS if key in types and key not in constants)
    missing = [key for key in KEYS if key not in constants and key not in keys]
    if missing and not keys and not constants and types.get("queue") == "string":
        return ("queue",), {}
    missing += [key for key in keys if key not in types]
    if missing:
        raise InvalidOption(
            f"keys of the archive are missing: keys={','.join(missing)}",
            hint=f"add the column, or one name for all rows: option({missing[0]!r}, NAME)",
        )
    for key in keys:
        _check_type(key, types[key], ("string",))
    return keys, constants


class FrameRows:
    """The rows of one task: checks each batch and splits it by log.

    Args:
        plan: How the columns become records.
        partition: Number of Spark's partition, for error messages.
    """

    def __init__(self, plan: RowPlan, partition: int) -> None:
        self._plan = plan
        self._partition = partition
        self._seen = 0

    def split(self, table: Any) -> Iterator[tuple[str, RecordColumns]]:
        """For each log, its path in the archive and its rows, by `seq` or in the given order.

        Raises:
            TapewireError: A row is invalid; the message has the column, the row and the value.
        """
        columns = self._columns(table)
        group, logs = self._logs(table, columns.timestamp_ns)
        self._seen += len(columns)
        order = self._order(group, columns.seq)
        if order is not None:
            columns, group = columns.take(order), group[order]
        edges = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(group)]
        for start, stop in itertools.pairwise(edges):
            if start == stop:
                continue
            log = logs[int(group[start])]
            yield log, columns if stop - start == len(columns) else columns.part(start, stop)

    @staticmethod
    def _order(group: _Array, seq: _Array | None) -> _Array | None:
        """The order that sorts rows by log and `seq`; None if they are sorted."""
        same = group[1:] == group[:-1]
        grouped = bool((group[1:] >= group[:-1]).all())
        if seq is None:
            return None if grouped else np.argsort(group, kind="stable")
        if grouped and bool((seq[1:] > seq[:-1])[same].all()):
            return None
        return np.lexsort((seq, group))

    def _columns(self, table: Any) -> RecordColumns:
        plan = self._plan
        count = table.num_rows
        times = self._integers(table, "timestamp_ns", 0, 2**63 - 1)
        if plan.layout is None:
            type_ids = self._integers(table, "type_id", 0, 0xFFFE, InvalidTypeId)
            payload = self._binary(table, "payload")
        else:
            type_ids = np.full(count, plan.layout.type_id, np.uint16)
            payload = self._message(table, plan.layout)
        flags = np.zeros(count, np.uint16)
        if plan.has_flags:
            flags = self._integers(table, "flags", 0, 0xFFFF).astype(np.uint16)
            flags &= ~np.uint16(_NOT_CHECKSUMMED)
            low = np.flatnonzero(flags & 0xFF)
            if len(low):
                self._refuse(
                    InvalidOption,
                    "flags",
                    int(low[0]),
                    int(flags[low[0]]),
                    "the low 8 bits are reserved",
                )
        seq = self._integers(table, "seq", 0, 2**63 - 1) if plan.has_seq else None
        return RecordColumns(times, type_ids.astype(np.uint16), flags, payload, seq)

    def _logs(self, table: Any, times: _Array) -> tuple[_Array, list[str]]:
        """For each row the index of its log, and the paths of the logs."""
        plan = self._plan
        days, group = np.unique(times // DAY_NS, return_inverse=True)
        names: list[tuple[str, ...]] = [(date_of(day).isoformat(),) for day in days.tolist()]
        for key in plan.keys:
            column = self._column(table, key)
            encoded = column.dictionary_encode()
            values = [self._names(key, value, column) for value in encoded.dictionary.to_pylist()]
            codes = encoded.indices.to_numpy(zero_copy_only=False)
            pairs, group = np.unique(group * len(values) + codes, return_inverse=True)
            names = [
                names[pair // len(values)] + values[pair % len(values)] for pair in pairs.tolist()
            ]
        order = KEYS if plan.keys == ("queue",) else plan.keys
        return group, [
            _path(dict(zip(("date", *order), name, strict=True)), plan) for name in names
        ]

    def _names(self, key: str, value: str, column: Any) -> tuple[str, ...]:
        """The names of the directories that a key, or the name of a log, stands for."""
        try:
            if key != "queue":
                return (check_name(key, value),)
            parts = value.split("/")
            match parts:
                case [venue, symbol, _, stream] if is_day(parts[2]):
                    return venue, symbol, stream
                case ["clean", venue, symbol, stream]:
                    return venue, symbol, stream
            raise InvalidName(
                f"the name of a log does not contain venue, symbol and stream: queue={value!r:.80}",
                hint="add columns or options with these names",
            )
        except InvalidName as error:
            row = self._seen + pc.index(column, value).as_py()
            error.message += f", row={row} of partition {self._partition}"
            raise

    def _column(self, table: Any, name: str) -> Any:
        """A column without nulls."""
        column = table.column(name)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            self._refuse(InvalidMessage, name, row, None, "must not be null")
        return column

    def _integers(
        self,
        table: Any,
        name: str,
        least: int,
        most: int,
        error: type[TapewireError] = InvalidMessage,
    ) -> _Array:
        column = self._column(table, name)
        values: _Array = column.to_numpy(zero_copy_only=False)
        if len(values) and (int(values.min()) < least or int(values.max()) > most):
            row = int(np.flatnonzero((values < least) | (values > most))[0])
            self._refuse(error, name, row, int(values[row]), f"must be {least} to {most}")
        return values.astype(np.int64) if values.dtype != np.int64 else values

    def _binary(self, table: Any, name: str) -> Any:
        column = plain(self._column(table, name))
        sizes = pc.binary_length(column)
        longest = pc.max(sizes).as_py()
        if longest is not None and longest > self._plan.max_payload:
            row = pc.index(sizes, longest).as_py()
            self._refuse(
                PayloadTooLarge,
                name,
                row,
                f"{longest} bytes",
                f"the limit is {self._plan.max_payload} bytes",
                'increase option("segment_bytes", …)',
            )
        return column

    def _message(self, table: Any, layout: MessageLayout) -> Any:
        from tapewire.spark.sink.messages import encode

        columns = {field.name: self._column(table, field.name) for field in layout.fields}
        return encode(layout, columns, self._refuse)

    def _refuse(
        self,
        error: type[TapewireError],
        column: str,
        row: int,
        value: Any,
        why: str,
        hint: str | None = None,
    ) -> NoReturn:
        shown = "null" if value is None else value
        raise error(
            f"a row is not a valid record: {column}={shown!s:.80} ({why}), "
            f"row={self._seen + row} of partition {self._partition}",
            hint=hint or f"filter or correct such rows: df.where({column!r} …)",
        )


def _path(key: dict[str, str], plan: RowPlan) -> str:
    names = plan.constants | key
    return "/".join(("v1", names["venue"], names["symbol"], names["date"], names["stream"]))
