"""Records as columns of a file: unchanged, or as the fields of a message."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tapewire.errors import CorruptRecord, InvalidMessage
from tapewire.log import Batch

if TYPE_CHECKING:
    from tapewire.protocol import Field, MessageLayout

__all__ = ["Columns", "MessageColumns", "RawColumns", "sizes_of"]

# Called with the error of a record that cannot be written; raises, or returns to skip the record.
Refused = Callable[[CorruptRecord], None]


class Columns(Protocol):
    """Converts a batch into columns."""

    names: tuple[str, ...]

    def admit(self, batch: Batch, refused: Refused) -> Iterator[Batch]:
        """Split the batch into pieces for the other methods; refuse what cannot be written."""
        ...

    def text_rows(self, batch: Batch) -> Iterator[tuple[Any, ...]]:
        """The rows for CSV."""
        ...

    def arrow_schema(self) -> Any:
        """A `pyarrow.Schema`."""
        ...

    def arrow(self, batch: Batch) -> Any:
        """The rows as a `pyarrow.RecordBatch` of that schema, copied from the log."""
        ...


def sizes_of(batch: Batch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The sizes of the payloads."""
    return np.fromiter((len(record) for record in batch), np.int64, len(batch))


class RawColumns:
    """The record unchanged: sequence number, time, type, flags, bytes."""

    names: tuple[str, ...] = ("seq", "timestamp_ns", "type_id", "flags", "payload")

    def admit(self, batch: Batch, refused: Refused) -> Iterator[Batch]:
        """Admit every record."""
        yield batch

    def text_rows(self, batch: Batch) -> Iterator[tuple[Any, ...]]:
        """Payloads in hexadecimal."""
        numbers = (batch.seq, batch.timestamp_ns, batch.type_id, batch.flags)
        columns = [column.tolist() for column in numbers]
        for i, row in enumerate(zip(*columns, strict=True)):
            yield (*row, batch.payload(i).hex())

    def arrow_schema(self) -> Any:
        """Payloads as plain `binary`, which every reader of Parquet and Arrow supports."""
        import pyarrow as pa

        kinds = (pa.uint64(), pa.int64(), pa.uint16(), pa.uint16(), pa.binary())
        return pa.schema(
            [pa.field(n, k, nullable=False) for n, k in zip(self.names, kinds, strict=True)]
        )

    def arrow(self, batch: Batch) -> Any:
        """Copies the payloads."""
        return batch.to_arrow().cast(self.arrow_schema())


class MessageColumns:
    """The fields of one message; fields that a version does not have are null.

    Sequence number, time and flags of the record come first. If the message has a field of that
    name, the record's column is called `record_…`.

    Raises:
        InvalidMessage: Two versions have a field of the same name with different types.
    """

    def __init__(self, layouts: list[MessageLayout]) -> None:
        self._by_size = {layout.size: layout for layout in layouts}
        self._fields: dict[str, Field] = {}
        for layout in reversed(layouts):  # the newest version determines the order
            for field in layout.fields:
                known = self._fields.setdefault(field.name, field)
                if known.type != field.type:
                    raise InvalidMessage(
                        f"versions of {layout.name} disagree on the type of a field: "
                        f"field={field.name}, types={known.type!r} and {field.type!r}",
                        hint="export without --decode",
                    )
        self._common = set(self._fields)
        for layout in layouts:
            self._common &= {field.name for field in layout.fields}
        record = ("seq", "timestamp_ns", "flags")
        own = tuple(f"record_{name}" if name in self._fields else name for name in record)
        self.names: tuple[str, ...] = (*own, *self._fields)

    def admit(self, batch: Batch, refused: Refused) -> Iterator[Batch]:
        """Split into runs of one version; refuse payloads of no version and invalid text."""
        sizes = sizes_of(batch)
        starts = np.flatnonzero(np.diff(sizes, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(batch)], strict=True):
            run = batch[int(start) : int(end)]
            layout = self._by_size.get(int(sizes[start]))
            if layout is None:
                for record in run:
                    refused(_refusal(record.seq, f"no version has this size: size={len(record)}"))
            else:
                yield from self._readable(run, layout, refused)

    def _readable(self, run: Batch, layout: MessageLayout, refused: Refused) -> Iterator[Batch]:
        rows = run.view(layout.dtype)
        texts = [rows[field.name] for field in layout.fields if field.type.name == "char"]
        try:
            for text in texts:
                np.char.decode(text, "utf-8")
        except UnicodeDecodeError:
            pass
        else:
            yield run
            return
        for i, record in enumerate(run):
            try:
                for text in texts:
                    text[i].decode()
            except UnicodeDecodeError as error:
                refused(_refusal(record.seq, f"its text is not UTF-8 ({error.reason})"))
            else:
                yield run[i : i + 1]

    def text_rows(self, batch: Batch) -> Iterator[tuple[Any, ...]]:
        """Bytes in hexadecimal, arrays as JSON lists, None for fields that a version lacks."""
        layout = self._layout_of(batch)
        rows = batch.view(layout.dtype)
        present = {field.name for field in layout.fields}
        columns: list[list[Any]] = [
            column.tolist() for column in (batch.seq, batch.timestamp_ns, batch.flags)
        ]
        for name, field in self._fields.items():
            if name not in present:
                columns.append([None] * len(batch))
            elif field.type.name == "char":
                columns.append([text.decode() for text in rows[name].tolist()])
            elif field.type.name == "raw":
                columns.append([bytes(row).hex() for row in rows[name]])
            elif field.type.name == "bool8":
                columns.append(_text_of((rows[name].view("u1") != 0).tolist()))
            else:
                columns.append(_text_of(rows[name].tolist()))
        yield from zip(*columns, strict=True)

    def arrow_schema(self) -> Any:
        """Numbers in their own type, `char` as strings, `raw` and arrays of a fixed size."""
        import pyarrow as pa

        own = zip(self.names, (pa.uint64(), pa.int64(), pa.uint16()), strict=False)
        return pa.schema(
            [
                *(pa.field(name, kind, nullable=False) for name, kind in own),
                *(
                    pa.field(name, _arrow_type(field), nullable=name not in self._common)
                    for name, field in self._fields.items()
                ),
            ]
        )

    def arrow(self, batch: Batch) -> Any:
        """Copies the fields."""
        import pyarrow as pa

        layout = self._layout_of(batch)
        rows = batch.view(layout.dtype)
        present = {field.name for field in layout.fields}
        columns = [
            pa.array(np.array(column)) for column in (batch.seq, batch.timestamp_ns, batch.flags)
        ]
        for name, field in self._fields.items():
            if name in present:
                columns.append(_arrow_column(field, rows[name]))
            else:
                columns.append(pa.nulls(len(batch), _arrow_type(field)))
        return pa.record_batch(columns, schema=self.arrow_schema())

    def _layout_of(self, batch: Batch) -> MessageLayout:
        return self._by_size[len(batch[0])]


def _refusal(seq: int, why: str) -> CorruptRecord:
    return CorruptRecord(f"the payload does not match the record's type: seq={seq}, {why}")


def _text_of(values: list[Any]) -> list[Any]:
    return [json.dumps(value) if isinstance(value, list | bool) else value for value in values]


def _arrow_type(field: Field) -> Any:
    import pyarrow as pa

    if field.type.name == "char":
        return pa.string()
    if field.type.name == "raw":
        return pa.binary(field.type.count)
    one = pa.from_numpy_dtype(np.dtype(_element(field)))
    return pa.list_(one, field.type.count) if field.type.array else one


def _element(field: Field) -> Any:
    return field.type.numpy_format[0] if field.type.array else field.type.numpy_format


def _arrow_column(field: Field, values: np.ndarray[Any, Any]) -> Any:
    import pyarrow as pa

    if field.type.name == "char":
        return pa.array([text.decode() for text in values.tolist()], pa.string())
    if field.type.name == "raw":
        data = pa.py_buffer(np.ascontiguousarray(values))
        return pa.FixedSizeBinaryArray.from_buffers(_arrow_type(field), len(values), [None, data])
    if field.type.name == "bool8":
        values = values.view("u1") != 0  # any byte but 0 is true, as in `decode`
    flat = pa.array(np.array(values).reshape(-1))
    if field.type.array:
        return pa.FixedSizeListArray.from_arrays(flat, field.type.count)
    return flat
