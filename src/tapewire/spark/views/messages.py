"""The view `messages`: the fields of one registered message, one row per record of its type."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as sql

from tapewire.errors import CorruptRecord, InvalidMessage, InvalidOption, TapewireError
from tapewire.protocol import market, registry, types_file
from tapewire.protocol.layout import Field, MessageLayout
from tapewire.scan import slices
from tapewire.scan.columns import RowColumns, bigint, lengths, pieces, structs, texts
from tapewire.scan.slice_reader import batches, refuse_rows
from tapewire.spark.reading import schemas
from tapewire.spark.views.records import refuse_unknown_symbols

if TYPE_CHECKING:
    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions
    from tapewire.scan.slices import Slice

__all__ = ["plan", "read", "schema"]

_RECORD = ("seq", "timestamp_ns", "timestamp", "queue")

_NUMBERS: dict[str, sql.DataType] = {
    "u8": sql.ShortType(),
    "u16": sql.IntegerType(),
    "u32": sql.LongType(),
    "u64": sql.LongType(),
    "i8": sql.ByteType(),
    "i16": sql.ShortType(),
    "i32": sql.IntegerType(),
    "i64": sql.LongType(),
    "f32": sql.FloatType(),
    "f64": sql.DoubleType(),
    "bool8": sql.BooleanType(),
    "char": sql.StringType(),
    "raw": sql.BinaryType(),
}
_ARROW = {
    "u8": "i2",
    "u16": "i4",
    "u32": "i8",
    "i8": "i1",
    "i16": "i2",
    "i32": "i4",
    "i64": "i8",
    "f32": "f4",
    "f64": "f8",
}


def schema(options: ReadOptions, logs: Sequence[LogRef]) -> Sequence[schemas.ViewColumn]:
    """Sequence number, time and log of the record, then the fields, which keep their names.

    Raises:
        InvalidOption: The message is not defined for any log.
        InvalidMessage: Versions have fields with the same name and different types.
    """
    return _Message.of(options, logs).columns


def plan(options: ReadOptions, logs: Sequence[LogRef], wanted: int) -> list[Slice]:
    """Slices of the logs, cut at entries of the seek index."""
    refuse_unknown_symbols(options, logs)
    return slices.plan(logs, options, wanted)


def read(part: Slice, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The messages of a slice, each decoded with the layout of its version."""
    type_id, layouts = _layouts_of(part.log.path, options.type or "", options.module)
    if type_id is None:
        return  # the message is not defined for this log
    found = _Message(type_id, layouts)
    names = options.columns or [column.name for column in found.columns]
    for batch in batches(part, options):
        for piece in pieces(batch):
            chosen = piece.type_id == found.type_id
            for size, rows in _runs(RowColumns(piece, part.log.name, chosen)):
                layout = found.by_size.get(size)
                if layout is None:
                    refuse_rows(found.wrong_size(size), rows, options)
                    continue
                columns = _Columns(rows, layout, found, options)
                yield columns.made(names)


def _runs(rows: RowColumns) -> Iterator[tuple[int, RowColumns]]:
    """Runs of rows of equal payload size, in order: versions differ in size."""
    if not rows.rows:
        return
    sizes = lengths(rows.payload_views)
    edges = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), rows.rows]
    for start, end in itertools.pairwise(edges):
        yield int(sizes[start]), rows.part(start, end)


class _Columns:
    """The columns of messages of one version."""

    def __init__(
        self, rows: RowColumns, layout: MessageLayout, message: _Message, options: ReadOptions
    ) -> None:
        self._rows = rows
        self._fields = {field.name: field for field in layout.fields}
        self._message = message
        self._values = structs(rows.payload_views, layout.dtype)
        self._options = options

    def made(self, names: Sequence[str]) -> pa.RecordBatch:
        """The columns called `names`."""
        return pa.record_batch([self._column(name) for name in names], names=list(names))

    def _column(self, name: str) -> pa.Array:
        own = self._message.record_names.get(name)
        if own is not None:
            return self._rows.column(own)
        field = self._fields.get(name)
        if field is None:
            return pa.nulls(self._rows.rows)  # this version lacks the field
        return _field_column(field, self._values[name], self._rows)


def _field_column(field: Field, values: np.ndarray[Any, Any], rows: RowColumns) -> pa.Array:
    name = field.type.name
    if name == "char":
        return _text_column(field, values, rows)
    if name == "raw":
        size = field.type.count
        data = pa.py_buffer(np.ascontiguousarray(values))
        offsets = pa.py_buffer(np.arange(len(values) + 1, dtype="i4") * np.int32(size))
        return pa.Array.from_buffers(pa.binary(), len(values), [None, offsets, data])
    flat = np.ascontiguousarray(values).reshape(-1)
    if name == "bool8":
        made = pa.array(flat.view("u1") != 0)  # any byte but 0 is true, as in `decode`
    elif name == "u64":
        each = max(1, len(flat) // max(1, len(values)))  # items per row
        made = bigint(field.name, flat, rows.queue, lambda i: rows.seq_of(i // each))
    else:
        made = pa.array(flat.astype(_ARROW[name]))
    if not field.type.array:
        return made
    offsets = pa.array(np.arange(len(values) + 1, dtype="i4") * np.int32(field.type.count))
    element = pa.field("element", made.type, nullable=False)  # Spark's name
    return pa.ListArray.from_arrays(offsets, made, pa.list_(element))


def _text_column(field: Field, values: np.ndarray[Any, Any], rows: RowColumns) -> pa.Array:
    try:
        return texts(values)
    except pa.ArrowInvalid:
        for i, value in enumerate(values.tolist()):
            try:
                value.decode()
            except UnicodeDecodeError as error:
                raise CorruptRecord(
                    f"a text is not UTF-8: field={field.name}, queue={rows.queue}, "
                    f"seq={rows.seq_of(i)} ({error.reason})",
                    hint="omit the field with option columns, or read the payload",
                ) from None
        raise


class _Message:
    """All versions of a message as one table."""

    def __init__(self, type_id: int, layouts: Sequence[MessageLayout]) -> None:
        self.type_id = type_id
        self.layouts = sorted(layouts, key=lambda layout: layout.version)
        self.by_size = {layout.size: layout for layout in self.layouts}
        fields: dict[str, Field] = {}
        for layout in reversed(self.layouts):  # fields in the order of the newest version
            for field in layout.fields:
                known = fields.setdefault(field.name, field)
                if known.type != field.type:
                    raise InvalidMessage(
                        f"versions of {layout.name} disagree on the type of a field: "
                        f"field={field.name}, types={known.type!r} and {field.type!r}",
                        hint="read the view records, and decode the payloads",
                    )
        common = set(fields)
        for layout in self.layouts:
            common &= {field.name for field in layout.fields}
        # If a field has the name of a record's column, that column is renamed, as in
        # `tapewire export`.
        self.record_names = {f"record_{n}" if n in fields else n: n for n in _RECORD}
        record = {column.name: column for column in schemas.RECORDS}
        self.columns = (
            *(
                schemas.ViewColumn(name, record[own].type)
                for name, own in self.record_names.items()
            ),
            *(
                schemas.ViewColumn(name, _sql_type(field), nullable=name not in common)
                for name, field in fields.items()
            ),
        )

    def wrong_size(self, size: int) -> TapewireError:
        """The error for a payload with the size of no version."""
        if self.layouts:
            return registry.wrong_size(size, self.layouts)
        return InvalidMessage(
            f"the message is not in the log's types.json: type_id=0x{self.type_id:04X}"
        )

    @classmethod
    def of(cls, options: ReadOptions, logs: Sequence[LogRef]) -> _Message:
        """The message as defined for all these logs, whose definitions must agree."""
        found: dict[int, MessageLayout] = {}
        type_ids: set[int] = set()
        for log in logs:
            type_id, layouts = _layouts_of(log.path, options.type or "", options.module)
            for layout in layouts:
                known = found.setdefault(layout.version, layout)
                if known.fields != layout.fields:
                    raise InvalidMessage(
                        f"logs disagree on version {layout.version} of {layout.name}",
                        path=log.path,
                        hint="read the logs separately",
                    )
            if type_id is not None:
                type_ids.add(type_id)
        if not found:
            raise InvalidOption(
                f"no such message: type={options.type}",
                path=logs[0].path if logs else None,
                hint="give the name or id that is in types.json, or the module that defines the "
                "message with option module",
            )
        if len(type_ids) > 1:
            raise _ambiguous(options.type or "", type_ids)
        return cls(type_ids.pop(), list(found.values()))


def _layouts_of(
    path: str, wanted: str, module: str | None
) -> tuple[int | None, list[MessageLayout]]:
    """Type id and versions of a message, from a module, market data and the log's types.json."""
    if module is not None:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise InvalidOption(
                f"cannot import the module: module={module} ({error})",
                hint="install it in the environment of driver and workers",
            ) from error
    known = types_file.read(path)
    type_id = _parse_type_id(wanted)
    if type_id is None:
        ids = {layout.type_id for layout in known if layout.name == wanted}
        if not ids:
            ids = {cls.type_id for cls in _defined(module) if cls.layout().name == wanted}
        if len(ids) > 1:
            raise _ambiguous(wanted, ids, path)
        if not ids:
            return None, []
        type_id = ids.pop()
    versions = {layout.version: layout for layout in known if layout.type_id == type_id}
    for version, cls in registry.known(type_id).items():
        versions.setdefault(version, cls.layout())
    return type_id, list(versions.values())


def _parse_type_id(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None


def _ambiguous(wanted: str, type_ids: Iterable[int], path: str | None = None) -> InvalidOption:
    ids = ", ".join(f"0x{type_id:04X}" for type_id in sorted(type_ids))
    return InvalidOption(
        f"several types have this name: type={wanted}", path=path, hint=f"use {ids}"
    )


def _defined(module: str | None) -> Iterator[Any]:
    """The messages that are known without a types.json: market data, and those of the module.

    Others that this process has imported are left out: the executor that reads may have different
    messages of that name, or none.
    """
    yield from market.MESSAGES.values()
    if module is not None:
        named = {id(value) for value in vars(importlib.import_module(module)).values()}
        for type_id in registry.type_ids():
            for cls in registry.known(type_id).values():
                if cls.__module__ == module or id(cls) in named:
                    yield cls


def _sql_type(field: Field) -> sql.DataType:
    one = _NUMBERS[field.type.name]
    return sql.ArrayType(one, containsNull=False) if field.type.array else one
