"""The layout of a message: offsets, sizes, and its formats for `struct` and numpy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tapewire.errors import InvalidMessage, InvalidTypeId
from tapewire.protocol.fields import MAX_MESSAGE_BYTES, FieldType, is_name

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Field", "MessageLayout"]

MAX_FIELDS = 255
MAX_TYPE_ID = 0xFFFE  # 0xFFFF marks padding
MAX_VERSION = 65535

# Attributes of every message.
RESERVED = frozenset({"decode", "dtype", "layout", "type_id"})


@dataclass(frozen=True)
class Field:
    """One field: its name, its type and its offset."""

    name: str
    type: FieldType
    offset: int

    @property
    def end(self) -> int:
        """Offset of the first byte after the field."""
        return self.offset + self.type.nbytes


@dataclass(frozen=True)
class MessageLayout:
    """The bytes of one version of a message.

    Bytes that belong to no field are reserved: written as zeros, ignored when read. The layout is
    checked: `InvalidMessage` names the violated rule and the field.

    Example:
        >>> from tapewire.protocol import MessageLayout, fields
        >>> members = [("side", fields.u8), ("price", fields.i64)]
        >>> layout = MessageLayout.natural("Tick", 0x2001, 1, members)
        >>> layout.size, layout.struct_format
        (16, '<B7xq')
        >>> print(layout)
        Tick: type_id=0x2001 version=1 size=16
          offset  size  type   field
               0     1  u8     side
               1     7  -      reserved
               8     8  i64    price
    """

    name: str
    type_id: int
    version: int
    size: int
    fields: tuple[Field, ...]

    @classmethod
    def natural(
        cls, name: str, type_id: int, version: int, fields: Iterable[tuple[str, FieldType]]
    ) -> MessageLayout:
        """Lay out fields as a C compiler does: in order, each at a multiple of its alignment."""
        placed: list[Field] = []
        end, widest = 0, 1
        for field_name, kind in fields:
            step = kind.item_bytes
            placed.append(Field(field_name, kind, -(-end // step) * step))
            end, widest = placed[-1].end, max(widest, step)
        return cls(name, type_id, version, -(-end // widest) * widest, tuple(placed))

    def __post_init__(self) -> None:
        check_type_id(self.type_id)
        if not _is_whole(self.version, 1, MAX_VERSION):
            self._refuse(f"version must be from 1 to {MAX_VERSION}: version={self.version!r}")
        if not is_name(self.name):
            self._refuse(f"the name of a message must be an identifier: name={self.name!r}")
        if not 1 <= len(self.fields) <= MAX_FIELDS:
            self._refuse(f"a message must have 1 to {MAX_FIELDS} fields: fields={len(self.fields)}")
        end = 0
        names: set[str] = set()
        for field in self.fields:
            if not is_name(field.name):
                self._refuse(f"the name of a field must be an identifier: field={field.name!r}")
            if field.name in RESERVED:
                self._refuse(
                    f"the name of a field is an attribute of every message: field={field.name!r}"
                )
            if field.name in names:
                self._refuse(f"duplicate field: field={field.name!r}")
            if field.type.nbytes == 0:
                self._refuse(
                    f"the type has no length: field={field.name!r}, type={field.type.name}",
                    f"write for example {field.type.name}[8]",
                )
            if not _is_whole(field.offset, 0, MAX_MESSAGE_BYTES) or field.offset < end:
                self._refuse(
                    f"fields must be in order and not overlap: field={field.name!r}, "
                    f"offset={field.offset!r}, previous_end={end}"
                )
            names.add(field.name)
            end = field.end
        if not _is_whole(self.size, 1, MAX_MESSAGE_BYTES):
            self._refuse(f"size must be from 1 to {MAX_MESSAGE_BYTES}: size={self.size!r}")
        if end > self.size:
            self._refuse(f"the last field ends past the message: end={end}, size={self.size}")

    def _refuse(self, why: str, hint: str | None = None) -> None:
        raise InvalidMessage(f"message {self.name!r}: {why}", hint=hint)

    @cached_property
    def struct_format(self) -> str:
        """The format for `struct.Struct`: little-endian, reserved bytes as ``x``."""
        parts, end = ["<"], 0
        for field in self.fields:
            parts += _gap(field.offset - end), field.type.struct_format
            end = field.end
        return "".join(parts) + _gap(self.size - end)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The structured numpy dtype, with these offsets and this size."""
        import numpy as np

        return np.dtype(
            {
                "names": [field.name for field in self.fields],
                "formats": [field.type.numpy_format for field in self.fields],
                "offsets": [field.offset for field in self.fields],
                "itemsize": self.size,
            }
        )

    @property
    def title(self) -> str:
        """Name, version and size, for error messages."""
        return f"{self.name} version {self.version} ({self.size} bytes)"

    def __str__(self) -> str:
        rows: list[tuple[int, int, str, str]] = []
        end = 0
        for field in self.fields:
            if field.offset > end:
                rows.append((end, field.offset - end, "-", "reserved"))
            rows.append((field.offset, field.type.nbytes, repr(field.type), field.name))
            end = field.end
        if self.size > end:
            rows.append((end, self.size - end, "-", "reserved"))
        width = max(6, *(len(row[2]) for row in rows))
        lines = [
            f"{self.name}: type_id=0x{self.type_id:04X} version={self.version} size={self.size}",
            f"  offset  size  {'type':{width}} field",
            *(f"  {at:6}  {n:4}  {kind:{width}} {name}" for at, n, kind, name in rows),
        ]
        return "\n".join(lines)


def check_type_id(type_id: object) -> None:
    """Raise `InvalidTypeId` if no record can have this type."""
    if not _is_whole(type_id, 0, MAX_TYPE_ID):
        raise InvalidTypeId(f"type_id must be from 0 to 0x{MAX_TYPE_ID:04X}: type_id={type_id!r}")


def check_versions(known: Iterable[MessageLayout], new: MessageLayout) -> None:
    """Raise `LayoutConflict` if a record of `new` could be mistaken for one of another version.

    A record does not contain its version, so its size identifies it: sizes increase with versions.
    """
    from tapewire.errors import LayoutConflict

    for old in known:
        if old == new:
            continue
        if old.version == new.version:
            raise LayoutConflict(
                f"two messages have the same type id and version: type_id=0x{new.type_id:04X}, "
                f"version={new.version}, {describe(old)} and {describe(new)}",
                hint="increase the version of the new one, or use another type_id",
            )
        older, newer = sorted((old, new), key=lambda layout: layout.version)
        if older.size >= newer.size:
            raise LayoutConflict(
                f"a newer version must be larger, as the size of a record identifies its version: "
                f"type_id=0x{new.type_id:04X}, {older.title} and {newer.title}",
                hint="add the new field at its full width, or use another type_id",
            )


def describe(layout: MessageLayout) -> str:
    """Return name, fields and size on one line."""
    fields = ", ".join(f"{field.name}: {field.type!r} @{field.offset}" for field in layout.fields)
    return f"{layout.name}({fields}; {layout.size} bytes)"


def _gap(n: int) -> str:
    return f"{n}x" if n else ""


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
