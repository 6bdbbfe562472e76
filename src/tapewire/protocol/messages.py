"""`@message` makes a class with annotated fields a message with a fixed layout."""

from __future__ import annotations

import struct
import sys
from collections import namedtuple
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform, overload

from tapewire.errors import InvalidMessage
from tapewire.log import Batch, Record
from tapewire.protocol import registry
from tapewire.protocol.codegen import compile_functions, misfit
from tapewire.protocol.fields import FieldType
from tapewire.protocol.layout import RESERVED, MessageLayout

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Buffer

    from tapewire.queue import Writer

    _Base = object
else:
    # An instance is the tuple of its values: nothing in Python is created faster or is smaller.
    _Base = tuple

__all__ = ["Message", "asdict", "declare", "message", "replace"]

_T = TypeVar("_T")
_M = TypeVar("_M", bound="Message")


class _Dtype:
    """`Fill.dtype`, made on first use: importing Tapewire does not import numpy."""

    def __get__(self, instance: object, owner: type[Message]) -> np.dtype[Any]:
        return owner.layout().dtype


class Message(_Base):
    """The base class of all messages; `@message` adds it.

    Instances are immutable, compare and hash by type and values, and unpack like tuples. They hold
    the values that a reader will get: an `f32` is already rounded, a numpy integer is an int.

    Derive from it explicitly (``class Fill(tw.Message)``) so that type checkers know `dtype`,
    `decode`, `layout` and `type_id`; it makes no difference at run time.
    """

    __slots__ = ()

    type_id: ClassVar[int]
    dtype: ClassVar[np.dtype[Any]] = _Dtype()  # type: ignore[assignment]

    if TYPE_CHECKING:
        __tapewire_layout__: ClassVar[MessageLayout]

        @staticmethod
        def __tapewire_make__(data: Buffer) -> Any: ...
        def __tapewire_append__(
            self, writer: Any, timestamp_ns: Any = None, flags: int = 0, seq: int | None = None
        ) -> int: ...
        def __bytes__(self) -> bytes: ...

    @classmethod
    def layout(cls) -> MessageLayout:
        """Return offsets, sizes and types; ``print(Fill.layout())`` shows them as a table."""
        return cls.__tapewire_layout__

    @overload
    @classmethod
    def decode(cls, source: Batch) -> np.ndarray[Any, Any]: ...
    @overload
    @classmethod
    def decode(cls, source: Record | Buffer) -> Self: ...
    @classmethod
    def decode(cls, source: Any) -> Any:
        """Decode a record or bytes to a message, or a batch to a structured array of `dtype`.

        The array is read-only. It is a view of the mapped file if the records are evenly spaced in
        one segment, otherwise a copy.

        Raises:
            InvalidMessage: The record, or one of the batch, has another type id.
            UnsupportedVersion: The size is not that of this version.
            CorruptRecord: A `char` field is not UTF-8.

        Example:
            >>> import tapewire as tw
            >>> from tapewire import protocol
            >>> @tw.message(0x2FFF)
            ... class Tick:
            ...     price: tw.i64
            ...     venue: tw.char[8]
            >>> with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
            ...     _ = writer.append_message(Tick(10_025, "XNAS"))
            ...     _ = writer.append_message(Tick(price=10_050, venue="XLON"))
            >>> with tw.open_log(tmp / "q") as log:
            ...     Tick.decode(log.next())
            ...     int(Tick.decode(log.read_batch())["price"].sum())
            Tick(price=10025, venue='XNAS')
            10050
            >>> protocol.forget(Tick)
        """
        layout = cls.__tapewire_layout__
        if isinstance(source, Batch):
            return _decode_batch(layout, source)
        if isinstance(source, Record) and source.type_id != layout.type_id:
            raise _other_type(layout, source.type_id)
        try:
            return cls.__tapewire_make__(source)
        except struct.error:
            raise registry.wrong_size(memoryview(source).nbytes, [layout]) from None

    def __eq__(self, other: object) -> bool:
        return other.__class__ is self.__class__ and tuple.__eq__(self, other)  # type: ignore[operator]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.type_id, tuple.__hash__(self)))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in asdict(self).items())
        return f"{type(self).__name__}({values})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)  # type: ignore[arg-type]

    def __replace__(self, /, **changes: Any) -> Self:
        return replace(self, **changes)


def _decode_batch(layout: MessageLayout, batch: Batch) -> np.ndarray[Any, Any]:
    others = batch.type_id[batch.type_id != layout.type_id]
    if len(others):
        raise _other_type(layout, int(others[0]))
    try:
        return batch.view(layout.dtype)
    except ValueError:
        sizes = (len(record) for record in batch)
        raise registry.wrong_size(
            next(size for size in sizes if size != layout.size), [layout]
        ) from None


def _other_type(layout: MessageLayout, type_id: int) -> InvalidMessage:
    return InvalidMessage(
        f"a record has another type: type_id=0x{type_id:04X}, "
        f"{layout.name} is 0x{layout.type_id:04X}",
        hint=f"open the log with types={{{layout.name}.type_id}}, or use record.decode()",
    )


def asdict(message: Message) -> dict[str, Any]:
    """Return the fields of a message by name, in order."""
    names = (field.name for field in message.layout().fields)
    return dict(zip(names, message, strict=True))  # type: ignore[call-overload]


def replace(message: _M, /, **changes: Any) -> _M:
    """Return a copy of a message with some fields changed; they are checked.

    Example:
        >>> from tapewire.protocol import replace
        >>> from tapewire.protocol.orders import CancelOrder
        >>> replace(CancelOrder("alpha", "BTCUSDT", 7), source_seq=12).source_seq
        12
    """
    return type(message)(**{**asdict(message), **changes})


def declare(writer: Writer, *messages: type[Any]) -> None:
    """Add messages to the log's `types.json` now.

    `append_message` does this with the first message of each class. Call it earlier if that append
    must not wait for a file to be written, or if rows are appended with `append_batch`.

    Raises:
        LayoutConflict: The log has another message with the same type id and version.
    """
    from tapewire.protocol import types_file

    missing = [cls for cls in messages if cls not in writer.declared]
    if missing:
        types_file.merge(writer.path, [cls.layout() for cls in missing])
        writer.declared.update(missing)


@dataclass_transform(frozen_default=True)
def message(type_id: int, *, version: int = 1) -> Callable[[type[_T]], type[_T]]:
    """Make a class with annotated fields a message with a fixed layout.

    Fields are laid out as by a C compiler: little-endian, each at a multiple of its size, with
    reserved zero bytes between them and at the end. If the fields change, `version` and the size
    must increase.

    Raises:
        InvalidMessage: A field has no Tapewire type, a reserved name, or an invalid default.
        LayoutConflict: Another version of this type id has the same size, or the order of the
            sizes is not that of the versions.

    Example:
        >>> import tapewire as tw
        >>> from tapewire import protocol
        >>> @tw.message(0x2FFF, version=1)
        ... class Fill:
        ...     order_id: tw.u64
        ...     price: tw.i64
        ...     qty: tw.i64
        ...     side: tw.u8 = 1
        ...     venue: tw.char[8] = ""
        >>> Fill(7, 10_025, qty=3)
        Fill(order_id=7, price=10025, qty=3, side=1, venue='')
        >>> Fill.dtype.itemsize
        40
        >>> Fill(7, 10_025, qty=2**63)
        Traceback (most recent call last):
          ...
        tapewire.errors.InvalidMessage: Fill.qty must be from -9223372036854775808 to \
9223372036854775807 (i64): qty=9223372036854775808
        >>> protocol.forget(Fill)
    """

    def wrap(cls: type[_T]) -> type[_T]:
        frame = sys._getframe(1)
        fields = _annotated_fields(cls, frame.f_globals, {**frame.f_locals, **vars(cls)})
        layout = MessageLayout.natural(cls.__name__, type_id, version, fields.items())
        defaults = {name: vars(cls)[name] for name in fields if name in vars(cls)}
        made = make_class(layout, defaults, cls)
        registry.register(made)
        return made  # type: ignore[return-value]

    return wrap


def _annotated_fields(
    cls: type, scope: dict[str, Any], names: dict[str, Any]
) -> dict[str, FieldType]:
    from inspect import get_annotations
    from typing import Annotated, get_args, get_origin

    if cls.__bases__ not in ((object,), (Message,)):
        raise InvalidMessage(
            f"a message must have no base class but tapewire.Message: "
            f"{cls.__name__} has {cls.__bases__!r}"
        )
    try:
        annotations = get_annotations(cls, globals=scope, locals=names, eval_str=True)
    except (NameError, AttributeError, SyntaxError) as error:
        raise InvalidMessage(f"cannot evaluate an annotation of {cls.__name__}: {error}") from error
    fields: dict[str, FieldType] = {}
    for name, kind in annotations.items():
        origin: Any = get_origin(kind)
        if kind is ClassVar or origin is ClassVar:
            continue
        candidates = get_args(kind)[1:] if origin is Annotated else (kind,)
        found = [one for one in candidates if isinstance(one, FieldType)]
        if len(found) != 1:
            raise InvalidMessage(
                f"{cls.__name__}.{name} must have one type of fixed size: {name}: {kind!r}",
                hint="use tw.u8 … tw.f64, tw.bool8, tw.char[N], tw.raw[N] or an array tw.i64[N]",
            )
        fields[name] = found[0]
    return fields


def make_class(
    layout: MessageLayout, defaults: Mapping[str, Any] | None = None, written: type | None = None
) -> type[Message]:
    """Make the message class of a layout, with the members of the class `written`, if any."""
    defaults = defaults or {}
    names = [field.name for field in layout.fields]
    first_default = next((i for i, name in enumerate(names) if name in defaults), len(names))
    for name in names[first_default:]:
        if name not in defaults:
            raise InvalidMessage(
                f"{layout.name}: a field without a default follows one with a default: "
                f"field={name!r}",
                hint="give it a default, or move it before the others",
            )
    own: dict[str, Any] = dict(vars(written)) if written is not None else {}
    for name in ("__new__", "__init__", "__slots__", *sorted(RESERVED)):
        if name in own:
            raise InvalidMessage(
                f"{layout.name} must not define {name}: @message makes it", hint="remove it"
            )
    for name in ("__dict__", "__weakref__"):
        own.pop(name, None)
    functions, set_class = compile_functions(layout, defaults, declare)
    # The getters of namedtuple are the fastest in Python.
    fastest = namedtuple("_", names)  # type: ignore[misc]
    getters = {name: getattr(fastest, name) for name in names}
    cls: type[Message] = type(
        layout.name,
        (Message,),
        own
        | functions
        | getters
        | {
            "__slots__": (),
            "__match_args__": tuple(names),
            "__tapewire_layout__": layout,
            "type_id": layout.type_id,
        },
    )
    set_class(cls)
    if written is not None:
        _move_super(written, cls)
    for name, value in defaults.items():
        _check_default(cls, name, value)
    return cls


def _check_default(cls: type[Message], name: str, value: Any) -> None:
    field = next(field for field in cls.layout().fields if field.name == name)
    why = misfit(field, value)
    if why is not None:
        raise InvalidMessage(f"default of {cls.__name__}.{name} {why}: {name}={value!r}")


def _move_super(written: type, cls: type) -> None:
    """Make `super()` and `__class__` in the methods refer to the class made from `written`."""
    for member in vars(written).values():
        function = getattr(member, "__func__", getattr(member, "fget", member))
        for cell in getattr(function, "__closure__", None) or ():
            try:
                found = cell.cell_contents
            except ValueError:
                continue  # the cell is empty
            if found is written:
                cell.cell_contents = cls
