"""Encodes rows of a DataFrame as payloads of a registered message."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapewire.errors import InvalidMessage, InvalidOption, TapewireError
from tapewire.protocol import registry

if TYPE_CHECKING:
    from tapewire.protocol.fields import FieldType
    from tapewire.protocol.layout import MessageLayout

__all__ = ["encode", "layout_of"]

_BUILT_IN_MODULES = ("tapewire.protocol.orders", "tapewire.protocol.market")


class Refuse(Protocol):
    """Raises the error for an invalid value."""

    def __call__(
        self, error: type[TapewireError], column: str, row: int, value: Any, why: str
    ) -> NoReturn:
        """Raise `error` with a message that names column, row and value."""
        ...


def layout_of(name: str, module: str | None) -> MessageLayout:
    """The layout of a registered message, by name or id: the newest of several versions.

    Raises:
        InvalidOption: There is no such module, or the message is not registered in this process.

    Example:
        >>> layout_of("NewOrder", None).name
        'NewOrder'
    """
    for each in (*_BUILT_IN_MODULES, *((module,) if module else ())):
        try:
            importlib.import_module(each)
        except ImportError as error:
            raise InvalidOption(
                f"cannot import the module of the message: module={each} ({error})",
                hint="name a module that the driver's Python can import",
            ) from error
    layouts = [
        cls.layout() for type_id in registry.type_ids() for cls in registry.known(type_id).values()
    ]
    wanted = _parse_type_id(name)
    found = [one for one in layouts if one.name == name or one.type_id == wanted]
    if not found or len({one.type_id for one in found}) > 1:
        known = ", ".join(sorted({one.name for one in layouts}))
        what = "several messages have" if found else "no message has"
        raise InvalidOption(
            f"{what} this name: type={name!r:.80}, known={known}",
            hint="use its type id"
            if found
            else 'name the module that defines it: option("module", "desk.messages")',
        )
    return max(found, key=lambda one: one.version)


def _parse_type_id(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None


def encode(layout: MessageLayout, columns: Mapping[str, Any], refuse: Refuse) -> Any:
    """Encode rows as payloads: an Arrow array of binary. `columns` have no nulls.

    Raises:
        TapewireError: A value does not fit its field; raised by `refuse`.
    """
    count = len(next(iter(columns.values())))
    rows = np.zeros(count, layout.dtype)
    for field in layout.fields:
        rows[field.name] = _field(field.name, field.type, columns[field.name], refuse)
    size = layout.size
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(size), count, [None, pa.py_buffer(rows.tobytes())]
    )
    return fixed.cast(pa.binary())


def _field(name: str, kind: FieldType, column: Any, refuse: Refuse) -> Any:
    if kind.name in ("char", "raw"):
        return _bytes(name, kind, column, refuse)
    if not kind.array:
        return _numbers(name, kind, column, refuse)
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise _type_error(name, kind, column)
    sizes = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    invalid = np.flatnonzero(sizes != kind.count)
    if len(invalid):
        row = int(invalid[0])
        refuse(InvalidMessage, name, row, f"{sizes[row]} items", f"the field is {kind!r}")
    items = column.flatten()
    if items.null_count:
        row = pc.index(items.is_null(), True).as_py() // kind.count
        refuse(InvalidMessage, name, row, None, "items must not be null")

    def refuse_item(
        error: type[TapewireError], column: str, row: int, value: Any, why: str
    ) -> NoReturn:
        refuse(error, column, row // kind.count, value, why)

    return _numbers(name, kind, items, refuse_item).reshape(-1, kind.count)


def _numbers(name: str, kind: FieldType, column: Any, refuse: Refuse) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = column.to_numpy(zero_copy_only=False)
    one: np.dtype[Any] = np.dtype(kind.numpy_format).base
    if one.kind == "b":
        if values.dtype.kind != "b":
            raise _type_error(name, kind, column)
    elif one.kind == "f":
        if values.dtype.kind not in "fiu":
            raise _type_error(name, kind, column)
        if one.itemsize == 4 and values.dtype.kind == "f":
            with np.errstate(over="ignore"):
                lost = np.flatnonzero(np.isinf(values.astype(one)) & np.isfinite(values))
            if len(lost):
                row = int(lost[0])
                refuse(InvalidMessage, name, row, float(values[row]), f"the field is {kind!r}")
    else:
        if values.dtype.kind not in "iu":
            raise _type_error(name, kind, column)
        bounds = np.iinfo(one.str)
        if len(values) and (int(values.min()) < bounds.min or int(values.max()) > bounds.max):
            outside = [int(v) < bounds.min or int(v) > bounds.max for v in values.tolist()]
            row = outside.index(True)
            refuse(
                InvalidMessage,
                name,
                row,
                int(values[row]),
                f"the field is {kind!r}, {bounds.min} to {bounds.max}",
            )
    return values.astype(one)


def _bytes(name: str, kind: FieldType, column: Any, refuse: Refuse) -> np.ndarray[Any, Any]:
    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if not text and not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        raise _type_error(name, kind, column)
    column = column.cast(pa.binary())
    sizes = pc.binary_length(column).to_numpy(zero_copy_only=False)
    invalid = sizes > kind.count if kind.name == "char" else sizes != kind.count
    if invalid.any():
        row = int(np.flatnonzero(invalid)[0])
        refuse(InvalidMessage, name, row, column[row].as_py(), f"the field is {kind!r}")
    if kind.name == "char":
        return np.array(column.to_pylist(), dtype=f"S{kind.count}")
    return np.frombuffer(b"".join(column.to_pylist()), np.uint8).reshape(-1, kind.count)


def _type_error(name: str, kind: FieldType, column: Any) -> InvalidOption:
    return InvalidOption(
        f"the type of a column does not match the field: column={name}, type={column.type}, "
        f"field={kind!r}",
        hint="cast the column",
    )
