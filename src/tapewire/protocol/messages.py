"""`@message`: a class with annotated fields becomes a message of fixed layout."""

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
    # An instance is the tuple of its values: nothing in Python is made faster or holds less.
    _Base = tuple

__all__ = ["Message", "asdict", "declare", "message", "replace"]

_T = TypeVar("_T")
_M = TypeVar("_M", bound="Message")


class _Dtype:
    """`Fill.dtype`, made when it is asked for: importing Tapewire does not import numpy."""

    def __get__(self, instance: object, owner: type[Message]) -> np.dtype[Any]:
        return owner.layout().dtype


class Message(_Base):
    """What every message is; `@message` makes classes derive from it.

    Instances do not change, compare and hash by type and values, and unpack like tuples. They hold
    what a reader will see: an `f32` is already rounded, a numpy integer is an int.

    Derive from it by hand (``class Fill(tw.Message)``) so that type checkers know `dtype`,
    `decode`, `layout` and `type_id`; at run time it makes no difference.
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
        """Offsets, sizes and types; ``print(Fill.layout())`` shows them as a table."""
        return cls.__tapewire_layout__

    @overload
    @classmethod
    def decode(cls, source: Batch) -> np.ndarray[Any, Any]: ...
    @overload
    @classmethod
    def decode(cls, source: Record | Buffer) -> Self: ...
    @classmethod
    def decode(cls, source: Any) -> Any:
        """The message in a record or in bytes; of a batch, a structured array of `dtype`.

        The array is read-only and lies over the mapped file where the records are evenly spaced in
        one segment; else it is one copy.

        Raises:
            InvalidMessage: A record, or one of the batch, has another type id.
            UnsupportedVersion: The size is not that of this version.
            CorruptRecord: A `char` field does not hold UTF-8.

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
        f"a record is of another type: type_id=0x{type_id:04X}, "
        f"{layout.name} is 0x{layout.type_id:04X}",
        hint=f"open the log with types={{{layout.name}.type_id}}, or use record.decode()",
    )


def asdict(message: Message) -> dict[str, Any]:
    """The fields of a message by name, in order."""
    names = (field.name for field in message.layout().fields)
    return dict(zip(names, message, strict=True))  # type: ignore[call-overload]


def replace(message: _M, /, **changes: Any) -> _M:
    """A copy of a message with some fields changed, checked like a new one.

    Example:
        >>> from tapewire.protocol import replace
        >>> from tapewire.protocol.orders import CancelOrder
        >>> replace(CancelOrder("alpha", "BTCUSDT", 7), source_seq=12).source_seq
        12
    """
    return type(message)(**{**asdict(message), **changes})


def declare(writer: Writer, *messages: type[Any]) -> None:
    """Put messages into the log's `types.json` now.

    `append_message` does so with the first message of each class. Do it ahead where that first
    append must not wait for a file to be written, or where rows are appended by `append_batch`.

    Raises:
        LayoutConflict: The log holds another message under the same type id and version.
    """
    from tapewire.protocol import types_file

    missing = [cls for cls in messages if cls not in writer.declared]
    if missing:
        types_file.merge(writer.path, [cls.layout() for cls in missing])
        writer.declared.update(missing)


@dataclass_transform(frozen_default=True)
def message(type_id: int, *, version: int = 1) -> Callable[[type[_T]], type[_T]]:
    """Make a class with annotated fields a message with a fixed layout.

    Fields are laid out as a C compiler would: little-endian, each at a multiple of its size, with
    reserved zero bytes between and at the end. `version` must rise whenever the fields change, and
    the size with it.

    Raises:
        InvalidMessage: A field has no type of Tapewire's, a name that is taken, or a wrong default.
        LayoutConflict: Its size does not tell it from another version of this type id.

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
            f"a message derives from nothing, or from tapewire.Message: "
            f"{cls.__name__} has {cls.__bases__!r}"
        )
    try:
        annotations = get_annotations(cls, globals=scope, locals=names, eval_str=True)
    except (NameError, AttributeError, SyntaxError) as error:
        raise InvalidMessage(
            f"{cls.__name__}: an annotation cannot be evaluated: {error}"
        ) from error
    fields: dict[str, FieldType] = {}
    for name, kind in annotations.items():
        origin: Any = get_origin(kind)
        if kind is ClassVar or origin is ClassVar:
            continue
        said = get_args(kind)[1:] if origin is Annotated else (kind,)
        found = [one for one in said if isinstance(one, FieldType)]
        if len(found) != 1:
            raise InvalidMessage(
                f"{cls.__name__}.{name} has no type of fixed size: {name}: {kind!r}",
                hint="use tw.u8 … tw.f64, tw.bool8, tw.char[N], tw.raw[N] or an array tw.i64[N]",
            )
        fields[name] = found[0]
    return fields


def make_class(
    layout: MessageLayout, defaults: Mapping[str, Any] | None = None, written: type | None = None
) -> type[Message]:
    """The message class of a layout, with the methods that somebody has `written`, if any."""
    defaults = defaults or {}
    names = [field.name for field in layout.fields]
    first_default = next((i for i, name in enumerate(names) if name in defaults), len(names))
    for name in names[first_default:]:
        if name not in defaults:
            raise InvalidMessage(
                f"{layout.name}: a field without a default follows one with: field={name!r}",
                hint="give it a default, or put it further ahead",
            )
    own: dict[str, Any] = dict(vars(written)) if written is not None else {}
    for name in ("__new__", "__init__", "__slots__", *sorted(RESERVED)):
        if name in own:
            raise InvalidMessage(
                f"{layout.name}: @message makes {name} itself", hint="leave it out"
            )
    for name in ("__dict__", "__weakref__"):
        own.pop(name, None)
    functions, tell_class = compile_functions(layout, defaults, declare)
    # namedtuple's getters are the fastest that Python has.
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
    tell_class(cls)
    if written is not None:
        _move_super(written, cls)
    for name, value in defaults.items():
        _check_default(cls, name, value)
    return cls


def _check_default(cls: type[Message], name: str, value: Any) -> None:
    field = next(field for field in cls.layout().fields if field.name == name)
    why = misfit(field, value)
    if why is not None:
        raise InvalidMessage(f"the default of {cls.__name__}.{name} {why}: {name}={value!r}")


def _move_super(written: type, cls: type) -> None:
    """Let `super()` and `__class__` in the methods mean the class that was made of `written`."""
    for member in vars(written).values():
        function = getattr(member, "__func__", getattr(member, "fget", member))
        for cell in getattr(function, "__closure__", None) or ():
            try:
                found = cell.cell_contents
            except ValueError:
                continue  # a cell that is still empty
            if found is written:
                cell.cell_contents = cls
