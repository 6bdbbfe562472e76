"""A batch of records as Arrow columns that Spark accepts: binary, signed integers, UTC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tapewire.errors import InvalidMessage
from tapewire.protocol._native import MAX_SCALE

if TYPE_CHECKING:
    from tapewire.log import Batch

__all__ = [
    "RowColumns",
    "bigint",
    "constant",
    "decimals",
    "filtered",
    "lengths",
    "pieces",
    "structs",
    "texts",
    "timestamps",
]

# At most this much payload is copied into an Arrow batch; a single record may be larger.
BATCH_BYTES = 16 << 20

_Array = np.ndarray[Any, Any]


class RowColumns:
    """The columns that every row of a record has, built when they are asked for.

    Args:
        batch: The records, in the mapped segments.
        queue: The name of their log.
        chosen: A boolean array of the records that become rows; None: all.
    """

    def __init__(self, batch: Batch, queue: str, chosen: _Array | None = None) -> None:
        self._batch = batch
        self.queue = queue
        self._chosen = chosen
        self._payloads: pa.Array | None = None
        self.rows = len(batch) if chosen is None else int(np.count_nonzero(chosen))

    def _picked(self, values: _Array) -> _Array:
        return values if self._chosen is None else values[self._chosen]

    @property
    def payload_views(self) -> pa.Array:
        """The payloads as a column of binary views, without a copy."""
        if self._payloads is None:
            views = self._batch.to_arrow().column("payload")
            self._payloads = views if self._chosen is None else filtered(views, self._chosen)
        return self._payloads

    def part(self, start: int, end: int) -> RowColumns:
        """The rows from `start` up to, but not including, `end`."""
        if self._chosen is None:
            return RowColumns(self._batch[start:end], self.queue)
        picked = np.flatnonzero(self._chosen)[start:end]
        first, stop = int(picked[0]), int(picked[-1]) + 1
        return RowColumns(self._batch[first:stop], self.queue, self._chosen[first:stop])

    def seq_of(self, row: int) -> int:
        """The sequence number of a row's record."""
        return int(self._picked(self._batch.seq)[row])

    def column(self, name: str) -> pa.Array:
        """The column seq, timestamp_ns, timestamp, type_id, flags, payload or queue."""
        batch = self._batch
        match name:
            case "seq":
                return bigint("seq", self._picked(batch.seq), self.queue)
            case "timestamp_ns":
                return pa.array(self._picked(batch.timestamp_ns))
            case "timestamp":
                return timestamps(self._picked(batch.timestamp_ns))
            case "type_id":
                return pa.array(self._picked(batch.type_id).astype("i4"))
            case "flags":
                return pa.array(self._picked(batch.flags).astype("i4"))
            case "payload":
                return self.payload_views.cast(pa.binary())
            case "queue":
                return constant(self.queue, self.rows)
        raise LookupError(name)


def bigint(
    name: str, values: _Array, where: str, seq_of: Callable[[int], int] | None = None
) -> pa.Array:
    """Unsigned 64-bit integers as BIGINT of Spark.

    Args:
        name: The name of the column, for the error.
        values: The integers.
        where: The name of the log, for the error.
        seq_of: The sequence number of the record at an index, for the error.

    Raises:
        InvalidMessage: A value does not fit.
    """
    if len(values) and int(values.max()) >= 2**63:
        first = int(np.argmax(values >= 2**63))
        record = "" if seq_of is None else f", seq={seq_of(first)}"
        raise InvalidMessage(
            f"value does not fit a BIGINT: {name}={int(values[first])}, queue={where}{record}",
            hint=f"leave the column {name} out with columns=, or decode it from the payload",
        )
    return pa.array(values.view("i8") if values.flags.c_contiguous else values.astype("i8"))


def timestamps(ns: _Array) -> pa.Array:
    """Nanoseconds as TIMESTAMP of Spark: rounded down to microseconds."""
    return pa.array(ns // 1000).view(pa.timestamp("us", "UTC"))


def constant(text: str, rows: int) -> pa.Array:
    """The same text in every row."""
    data = text.encode()
    offsets = np.arange(0, (rows + 1) * len(data), len(data) or 1, dtype="i4")[: rows + 1]
    if not data:
        offsets = np.zeros(rows + 1, "i4")
    return pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data * rows)]
    )


def filtered(views: pa.Array, chosen: _Array) -> pa.Array:
    """The chosen rows of a column of binary views, over the same bytes.

    Arrow has no filter for binary views.
    """
    _, heads, *data = views.buffers()
    kept = np.frombuffer(heads, "V16")[views.offset : views.offset + len(views)][chosen]
    return pa.Array.from_buffers(views.type, len(kept), [None, pa.py_buffer(kept), *data])


def structs(views: pa.Array, dtype: np.dtype[Any]) -> _Array:
    """Payloads of equal size as an array of `dtype`; a copy."""
    if len(views) == 0:
        return np.empty(0, dtype)
    data = views.cast(pa.binary()).buffers()[2]
    return np.frombuffer(data, dtype, len(views))


def texts(values: _Array) -> pa.Array:
    """Text of a fixed size, padded with zero bytes, as strings.

    Raises:
        pyarrow.ArrowInvalid: A text is not UTF-8.
    """
    values = np.ascontiguousarray(values)
    width = values.dtype.itemsize
    table = values.view("u1").reshape(-1, width)
    used = table != 0
    # Up to the last byte that is not zero: zeros inside are part of the text, as in `decode`.
    sizes = np.where(used.any(axis=1), width - used[:, ::-1].argmax(axis=1), 0)
    offsets = np.zeros(len(values) + 1, "i4")
    np.cumsum(sizes, out=offsets[1:])
    data = table[np.arange(width) < sizes[:, None]]
    made = pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return made.cast(pa.string())


def decimals(values: _Array, scales: _Array, scale: int) -> pa.Array:
    """Integers, each with its scale, as DECIMAL(38, scale).

    Raises:
        InvalidMessage: A value has more decimals than `scale`, or than an instrument may have.
    """
    if len(scales) and int(scales.max()) > min(scale, MAX_SCALE):
        raise InvalidMessage(
            f"price has more decimals than the column: price_scale={int(scales.max())}, "
            f"column_scale={scale}, max_scale={MAX_SCALE}",
            hint="correct instruments.json, or read with prices=scaled",
        )
    factors = np.int64(10) ** (scale - scales.astype("i8")) if len(scales) else np.ones(0, "i8")
    if len(values) and (np.abs(values.astype("f8")) * factors).max() >= 2**62:
        exact = [int(v) * 10 ** (scale - int(s)) for v, s in zip(values, scales, strict=True)]
        return _wide(exact, scale)
    low = values * factors
    pair = np.stack([low, low >> 63], axis=1)  # 128 bits, little-endian
    kind = pa.decimal128(38, scale)
    return pa.Array.from_buffers(kind, len(low), [None, pa.py_buffer(np.ascontiguousarray(pair))])


def _wide(exact: list[int], scale: int) -> pa.Array:
    data = b"".join(value.to_bytes(16, "little", signed=True) for value in exact)
    return pa.Array.from_buffers(pa.decimal128(38, scale), len(exact), [None, pa.py_buffer(data)])


def lengths(views: pa.Array) -> _Array:
    """The lengths of binary views; Arrow has no function for them."""
    heads = np.frombuffer(views.buffers()[1], "i4").reshape(-1, 4)
    return heads[views.offset : views.offset + len(views), 0]


def pieces(batch: Batch) -> Iterator[Batch]:
    """The batch in pieces of at most `BATCH_BYTES` of payload, or one record."""
    ends = np.cumsum(lengths(batch.to_arrow().column("payload")), dtype="i8")
    start = 0
    while start < len(batch):
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + BATCH_BYTES, "right")), start + 1)
        yield batch[start:end]
        start = end
