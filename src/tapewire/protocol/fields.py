"""The field types of messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from tapewire.errors import InvalidMessage

__all__ = [
    "FieldType",
    "bool8",
    "char",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "raw",
    "u8",
    "u16",
    "u32",
    "u64",
]

# Messages are small; the limit keeps a malicious file from requesting gigabytes.
MAX_MESSAGE_BYTES = 65536


@dataclass(frozen=True)
class FieldType:
    """A type of fixed size: a number, text, bytes, or an array of numbers.

    Attributes:
        name: The name in `types.json`: ``"u64"``, ``"char"`` …
        code: The format character of the `struct` module for one element.
        item_bytes: Size and alignment of one element.
        count: Number of elements; for `char` and `raw` the number of bytes.
        sized: Whether a count is required (`char`, `raw`).
        array: Whether it is an array of numbers.

    Example:
        >>> import tapewire as tw
        >>> tw.u64, tw.char[8], tw.i64[4]
        (u64, char[8], i64[4])
        >>> tw.i64[4].nbytes
        32
    """

    name: str
    code: str
    item_bytes: int
    count: int = 1
    sized: bool = False
    array: bool = False

    def __getitem__(self, count: int) -> FieldType:
        if self.array or (self.sized and self.count):
            raise InvalidMessage(f"a field must have one dimension: type={self!r}, count={count!r}")
        # An array has at least 2 elements, so a count in a file distinguishes it from a number.
        least = 1 if self.sized else 2
        most = MAX_MESSAGE_BYTES // self.item_bytes
        if type(count) is not int or not least <= count <= most:
            raise InvalidMessage(f"count must be from {least} to {most}: {self.name}[{count!r}]")
        return FieldType(
            self.name, self.code, self.item_bytes, count, self.sized, array=not self.sized
        )

    @property
    def nbytes(self) -> int:
        """Size of the field in bytes."""
        return self.item_bytes * self.count

    @property
    def struct_format(self) -> str:
        """The format of the field for the `struct` module."""
        return f"{self.count}{self.code}" if self.sized or self.array else self.code

    @property
    def numpy_format(self) -> Any:
        """The numpy format of the field: a number, `S` for text, `u1` for bytes."""
        if self.name == "char":
            return f"S{self.count}"
        if self.name == "raw":
            return ("u1", (self.count,))
        kind = {"u": "u", "i": "i", "f": "f", "b": "b"}[self.name[0]]
        one = f"<{kind}{self.item_bytes}" if self.item_bytes > 1 else f"{kind}1"
        return (one, (self.count,)) if self.array else one

    def __repr__(self) -> str:
        counted = self.array or (self.sized and self.count > 0)
        return f"{self.name}[{self.count}]" if counted else self.name


BY_NAME: dict[str, FieldType] = {
    kind.name: kind
    for kind in (
        FieldType("u8", "B", 1),
        FieldType("u16", "H", 2),
        FieldType("u32", "I", 4),
        FieldType("u64", "Q", 8),
        FieldType("i8", "b", 1),
        FieldType("i16", "h", 2),
        FieldType("i32", "i", 4),
        FieldType("i64", "q", 8),
        FieldType("f32", "f", 4),
        FieldType("f64", "d", 8),
        FieldType("bool8", "?", 1),
        FieldType("char", "s", 1, count=0, sized=True),
        FieldType("raw", "s", 1, count=0, sized=True),
    )
}

if TYPE_CHECKING:
    # Type checkers see the Python types of the values. `char[8]` is not a valid type for them, so
    # `char` is Any; Annotated[str, char[8]] is more precise.
    from typing import TypeAlias

    u8: TypeAlias = int
    u16: TypeAlias = int
    u32: TypeAlias = int
    u64: TypeAlias = int
    i8: TypeAlias = int
    i16: TypeAlias = int
    i32: TypeAlias = int
    i64: TypeAlias = int
    f32: TypeAlias = float
    f64: TypeAlias = float
    bool8: TypeAlias = bool
    char: Any
    raw: Any
else:
    u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, bool8, char, raw = BY_NAME.values()

# Names of fields and messages come from files, too, and are inserted into generated code.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)


def is_name(text: object) -> bool:
    """Whether `text` is allowed as the name of a field or a message."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None and not iskeyword(text)
