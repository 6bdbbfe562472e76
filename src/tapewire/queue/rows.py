"""Convert the rows of `Writer.append_batch` for the native core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapewire.clock import to_ns
from tapewire.errors import InvalidOption, InvalidTypeId, SequenceNotRising
from tapewire.queue._native import RowBuffers

__all__ = ["GatheredRows", "gather"]


@dataclass
class GatheredRows:
    """Either `array` (evenly spaced rows at `address`) or `buffers` (one object per row)."""

    count: int
    type_id: int = 0
    type_ids: np.ndarray[Any, Any] | None = None
    flags: int = 0
    flag_column: np.ndarray[Any, Any] | None = None
    times: np.ndarray[Any, Any] | None = None
    seqs: np.ndarray[Any, Any] | None = None
    array: np.ndarray[Any, Any] | None = None
    address: int = 0
    stride: int = 0
    row_bytes: int = 0
    buffers: Sequence[Any] | RowBuffers | None = None


def gather(rows: Any, type_id: Any, timestamps_ns: Any, flags: Any, seqs: Any) -> GatheredRows:
    """Check every argument, so that nothing is appended if one of them is invalid."""
    if isinstance(rows, np.ndarray):
        table = _from_array(rows)
    elif isinstance(rows, list | tuple | RowBuffers):
        table = GatheredRows(count=len(rows), buffers=rows)
    elif type(rows).__module__.startswith("pandas."):
        import pyarrow

        # From version 3 on, pandas columns export themselves.
        columns = RowBuffers(pyarrow.array(rows, from_pandas=True))
        table = GatheredRows(count=len(columns), buffers=columns)
    else:
        raise TypeError(
            "rows must be a 2-D or structured numpy array, an Arrow column or a list of buffers: "
            f"{type(rows).__name__}"
        )
    if _is_column(type_id):
        table.type_ids = _column(
            "type_id", type_id, table.count, np.uint16, 0, 0xFFFE, InvalidTypeId
        )
    else:
        table.type_id = type_id
    if _is_column(flags):
        table.flag_column = _column(
            "flags", flags, table.count, np.uint16, 0, 0xFFFF, InvalidOption
        )
        if np.any(table.flag_column & 0xFF):
            raise InvalidOption("flags must have the low 8 bits clear", hint="they are reserved")
    else:
        table.flags = flags
    if timestamps_ns is not None and _is_column(timestamps_ns):
        if not isinstance(timestamps_ns, np.ndarray):
            timestamps_ns = [to_ns(time) for time in timestamps_ns]
        elif timestamps_ns.dtype.kind == "M":
            timestamps_ns = timestamps_ns.astype("datetime64[ns]").astype(np.int64)
        table.times = _column(
            "timestamps_ns", timestamps_ns, table.count, np.uint64, 0, 2**63 - 1, InvalidOption
        )
    if seqs is not None:
        table.seqs = _column("seqs", seqs, table.count, np.uint64, 0, 2**64 - 2, InvalidOption)
        if table.count > 1 and not np.all(table.seqs[1:] > table.seqs[:-1]):
            raise SequenceNotRising("sequence numbers must rise strictly within the batch")
    return table


def _from_array(rows: np.ndarray[Any, Any]) -> GatheredRows:
    if rows.dtype.hasobject:
        raise TypeError(f"rows must not be Python objects: dtype={rows.dtype}")
    if rows.ndim == 1 and rows.dtype.kind in "SV":
        row_bytes = rows.dtype.itemsize  # structured, or fixed-size bytes: one record per item
    elif rows.ndim == 2:
        row_bytes = rows.shape[1] * rows.dtype.itemsize
        if rows.shape[1] > 1 and rows.strides[1] != rows.dtype.itemsize:
            rows = np.ascontiguousarray(rows)
    else:
        raise TypeError(
            f"a numpy batch must be 2-D or structured: ndim={rows.ndim}, dtype={rows.dtype}; "
            "for one record per number use array.reshape(-1, 1)"
        )
    return GatheredRows(
        count=rows.shape[0],
        array=rows,
        address=rows.ctypes.data,
        stride=rows.strides[0],
        row_bytes=row_bytes,
    )


def _is_column(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _column(
    name: str, values: Any, count: int, dtype: Any, least: int, most: int, error: type[Exception]
) -> np.ndarray[Any, Any]:
    column = np.asarray(values)
    if column.ndim != 1 or len(column) != count:
        raise InvalidOption(
            f"{name} must have one value per row: shape={column.shape}, rows={count}"
        )
    if column.size and column.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers: dtype={column.dtype}")
    if column.size and (int(column.min()) < least or int(column.max()) > most):
        raise error(
            f"{name} must be from {least} to {most}: min={column.min()}, max={column.max()}"
        )
    return np.ascontiguousarray(column, dtype)
