"""Where each field of a message lies: offsets, size, and the same for `struct` and numpy."""

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
MAX_TYPE_ID = 0xFFFE  # 0xFFFF is the padding's
MAX_VERSION = 65535

# Names that every message has for itself.
RESERVED = frozenset({"decode", "dtype", "layout", "type_id"})


@dataclass(frozen=True)
class Field:
    """One field: its name, its type, and where it begins."""

    name: str
    type: FieldType
    offset: int

    @property
    def end(self) -> int:
        """Offset of the first byte behind it."""
        return self.offset + self.type.nbytes


@dataclass(frozen=True)
class MessageLayout:
    """The bytes of one version of a message.

    Bytes that belong to no field are reserved: written as zeros, ignored when read. A layout that
    breaks a rule cannot be made: `InvalidMessage` names the rule and the field.

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
        """As a C compiler would: each field at a multiple of its alignment, in the order given."""
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
            self._refuse(f"a message's name is a plain identifier: name={self.name!r}")
        if not 1 <= len(self.fields) <= MAX_FIELDS:
            self._refuse(f"a message has 1 to {MAX_FIELDS} fields: fields={len(self.fields)}")
        end = 0
        names: set[str] = set()
        for field in self.fields:
            if not is_name(field.name):
                self._refuse(f"a field's name is a plain identifier: field={field.name!r}")
            if field.name in RESERVED:
                self._refuse(
                    f"a field cannot have the name of a message's own attribute: "
                    f"field={field.name!r}"
                )
            if field.name in names:
                self._refuse(f"a field is there twice: field={field.name!r}")
            if field.type.nbytes == 0:
                self._refuse(
                    f"a length is missing: field={field.name!r}, type={field.type.name}",
                    f"write {field.type.name}[8]",
                )
            if not _is_whole(field.offset, 0, MAX_MESSAGE_BYTES) or field.offset < end:
                self._refuse(
                    f"fields rise and do not overlap: field={field.name!r}, "
                    f"offset={field.offset!r}, the one before ends at {end}"
                )
            names.add(field.name)
            end = field.end
        if not _is_whole(self.size, 1, MAX_MESSAGE_BYTES):
            self._refuse(f"size must be from 1 to {MAX_MESSAGE_BYTES}: size={self.size!r}")
        if end > self.size:
            self._refuse(f"the last field ends behind the message: end={end}, size={self.size}")

    def _refuse(self, why: str, hint: str | None = None) -> None:
        raise InvalidMessage(f"message {self.name!r}: {why}", hint=hint)

    @cached_property
    def struct_format(self) -> str:
        """For `struct.Struct`: little-endian, reserved bytes as ``x``."""
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
        """How errors speak of it."""
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
    """Refuse what no record can have as its type."""
    if not _is_whole(type_id, 0, MAX_TYPE_ID):
        raise InvalidTypeId(f"type_id must be from 0 to 0x{MAX_TYPE_ID:04X}: type_id={type_id!r}")


def check_versions(known: Iterable[MessageLayout], new: MessageLayout) -> None:
    """Refuse `new` where a record of it could be taken for one of another version.

    A record does not say its version: its size does. So sizes rise with versions.
    """
    from tapewire.errors import LayoutConflict

    for old in known:
        if old == new:
            continue
        if old.version == new.version:
            raise LayoutConflict(
                f"type_id=0x{new.type_id:04X} version {new.version} is two messages: "
                f"{describe(old)} and {describe(new)}",
                hint="raise the version of the new one, or give it another type_id",
            )
        older, newer = sorted((old, new), key=lambda layout: layout.version)
        if older.size >= newer.size:
            raise LayoutConflict(
                f"sizes rise with versions, so that a record's size tells its version: "
                f"type_id=0x{new.type_id:04X}, {older.title} and {newer.title}",
                hint="add the new field at its full width, or take another type_id",
            )


def describe(layout: MessageLayout) -> str:
    """Name and fields on one line."""
    fields = ", ".join(f"{field.name}: {field.type!r} @{field.offset}" for field in layout.fields)
    return f"{layout.name}({fields}; {layout.size} bytes)"


def _gap(n: int) -> str:
    return f"{n}x" if n else ""


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
