"""Generates the hot functions of a message class: constructor, pack, unpack, append.

Each is one short function that contains the names of the fields, as in `dataclasses` and
`namedtuple`; a loop over the fields would be several times slower. Names of fields are identifiers
that begin with a letter (`fields.is_name`), so they cannot inject code; names that begin with an
underscore are reserved for this module.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from tapewire.errors import CorruptRecord, InvalidMessage
from tapewire.protocol.layout import Field, MessageLayout

__all__ = ["compile_functions", "misfit"]

_SOURCE = """
def __new__(_cls, {parameters}):
    try:
{checks}
        _v = _unpack(_pack({packed}))
        return _new(_cls, {kept})
    except _MISFITS:
        raise _explain(_layout, ({names},)) from None

def __bytes__(_self):
    {names}, = _self
    return _pack({ready})

def __tapewire_append__(_self, _writer, _timestamp_ns=None, _flags=0, _seq=None):
    if _class not in _writer.declared:
        _declare(_writer, _class)
    {names}, = _self
    return _writer.append({type_id}, _pack({ready}), _timestamp_ns, _flags, _seq)

def __tapewire_make__(_data):
    _v = _unpack(_data)
    try:
        return _new(_class, {values})
    except _UnicodeDecodeError as _error:
        raise _not_text(_layout, _error) from None
"""

# Raised by `struct` and by the checks for a value that does not fit.
_MISFITS = (struct.error, TypeError, ValueError, OverflowError, AttributeError)


def compile_functions(
    layout: MessageLayout, defaults: Mapping[str, Any], declare: Callable[..., None]
) -> tuple[dict[str, Any], Callable[[type], None]]:
    """Return the methods of a message class by name, and a function that gives them the class."""
    packer = struct.Struct(layout.struct_format)
    checks: list[str] = []
    packed: list[str] = []  # arguments of the packer, from unchecked values
    ready: list[str] = []  # arguments of the packer, from checked values
    values: list[str] = []  # the fields, from the unpacked values
    kept: list[str] = []  # the fields of a new message, whose text need not be decoded again
    at = 0
    for field in layout.fields:
        name, kind = field.name, field.type
        if kind.name == "char":
            checks += [
                f"_b{at} = {name}.encode()",
                f"if _len(_b{at}) > {kind.count} or 0 in _b{at}: raise _ValueError",
            ]
            packed.append(f"_b{at}")
            ready.append(f"{name}.encode()")
            values.append(rf"_v[{at}].rstrip(b'\0').decode()")
        elif kind.name == "raw":
            checks.append(f"_b{at} = _bytes(_memoryview({name}))")
            checks.append(f"if _len(_b{at}) != {kind.count}: raise _ValueError")
            packed.append(f"_b{at}")
            ready.append(name)
            values.append(f"_v[{at}]")
        elif kind.array:
            checks.append(f"if _len({name}) != {kind.count}: raise _ValueError")
            if kind.name == "bool8":
                checks.append(f"if not _all_bool({name}): raise _ValueError")
            packed.append(f"*{name}")
            ready.append(f"*{name}")
            values.append(f"_v[{at}:{at + kind.count}]")
            at += kind.count - 1
        else:
            if kind.name == "bool8":
                checks.append(f"if {name} is not True and {name} is not False: raise _ValueError")
            packed.append(name)
            ready.append(name)
            values.append(f"_v[{at}]")
        kept.append(f"_str({name})" if kind.name == "char" else values[-1])
        at += 1
    plain = at == len(layout.fields) and all(not field.type.sized for field in layout.fields)
    source = _SOURCE.format(
        parameters=", ".join(
            f"{field.name}=_defaults[{field.name!r}]" if field.name in defaults else field.name
            for field in layout.fields
        ),
        checks="\n".join(f"        {line}" for line in checks),
        packed=", ".join(packed),
        ready=", ".join(ready),
        values="_v" if plain else f"({', '.join(values)},)",
        kept="_v" if plain else f"({', '.join(kept)},)",
        names=", ".join(field.name for field in layout.fields),
        type_id=layout.type_id,
    )
    scope = {**_BUILT_IN, "_declare": declare, "_defaults": defaults, "_layout": layout}
    scope |= {"_pack": packer.pack, "_unpack": packer.unpack}
    functions: dict[str, Any] = {}
    exec(compile(source, f"<message {layout.name}>", "exec"), scope, functions)
    functions["__tapewire_make__"] = staticmethod(functions["__tapewire_make__"])
    return functions, lambda cls: scope.update(_class=cls)


def all_bool(values: Any) -> bool:
    """Whether each value is a bool: `struct` accepts any object for ``?``."""
    return all(value is True or value is False for value in values)


def explain(layout: MessageLayout, values: tuple[Any, ...]) -> InvalidMessage:
    """Make the error for the first value that does not fit its field."""
    for field, value in zip(layout.fields, values, strict=True):
        why = misfit(field, value)
        if why is not None:
            return InvalidMessage(f"{layout.name}.{field.name} {why}: {field.name}={value!r}")
    return InvalidMessage(f"{layout.name}: the values do not fit: {values!r}")


def not_text(layout: MessageLayout, error: UnicodeDecodeError) -> CorruptRecord:
    """Make the error for a `char` field in a log whose bytes are not UTF-8."""
    names = ", ".join(field.name for field in layout.fields if field.type.name == "char")
    return CorruptRecord(
        f"a char field of {layout.name} is not UTF-8: bytes={error.object!r}, char fields: {names}",
        hint=f"read the bytes with {layout.name}.dtype or record.payload",
    )


def misfit(field: Field, value: Any) -> str | None:
    """Return why a value does not fit its field, as the rest of a sentence; None if it fits."""
    kind = field.type
    if kind.name == "char":
        if not isinstance(value, str):
            return f"must be a str ({kind!r})"
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            return "must be valid UTF-8"
        if size > kind.count:
            return f"must have at most {kind.count} bytes of UTF-8, it has {size}"
        return "must not contain NUL, the padding of text" if "\0" in value else None
    if kind.name == "raw":
        try:
            size = len(bytes(memoryview(value)))
        except TypeError:
            return f"must be bytes ({kind!r})"
        return None if size == kind.count else f"must have {kind.count} bytes, it has {size}"
    if kind.array:
        try:
            size = len(value)
            items = list(value)
        except TypeError:
            return f"must be a sequence ({kind!r})"
        if size != kind.count:
            return f"must have {kind.count} elements, it has {size}"
    else:
        items = [value]
    for item in items:
        why = _misfit_number(kind.name, kind.code, kind.item_bytes, item)
        if why is not None:
            return why
    return None


def _misfit_number(name: str, code: str, item_bytes: int, value: Any) -> str | None:
    if name == "bool8":
        return None if value is True or value is False else "must be True or False (bool8)"
    try:
        struct.pack(f"<{code}", value)
    except (struct.error, TypeError, OverflowError):
        if name[0] == "f":
            return f"must be a float ({name})"
        if not hasattr(value, "__index__"):
            return f"must be an int ({name})"
        bits = 8 * item_bytes
        low, high = (
            (0, 2**bits - 1) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        return f"must be from {low} to {high} ({name})"
    return None


# The globals of the generated functions. A field may have the name of a built-in, so the built-ins
# have names with an underscore here.
_BUILT_IN: dict[str, Any] = {
    "_MISFITS": _MISFITS,
    "_UnicodeDecodeError": UnicodeDecodeError,
    "_ValueError": ValueError,
    "_all_bool": all_bool,
    "_bytes": bytes,
    "_explain": explain,
    "_len": len,
    "_memoryview": memoryview,
    "_new": tuple.__new__,
    "_not_text": not_text,
    "_str": str.__str__,  # converts a subclass of str to a plain str
}
