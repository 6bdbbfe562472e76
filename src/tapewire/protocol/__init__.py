"""Messages with a fixed layout: `@message` classes, their versions, and a log's `types.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tapewire import log
from tapewire.protocol.fields import (
    FieldType,
    bool8,
    char,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    raw,
    u8,
    u16,
    u32,
    u64,
)
from tapewire.protocol.layout import Field, MessageLayout
from tapewire.protocol.messages import Message, asdict, declare, message, replace
from tapewire.protocol.registry import forget, known, register

if TYPE_CHECKING:
    from tapewire.protocol.table import TypeTable, load_types

__all__ = [
    "Field",
    "FieldType",
    "Message",
    "MessageLayout",
    "TypeTable",
    "asdict",
    "bool8",
    "char",
    "declare",
    "f32",
    "f64",
    "forget",
    "i8",
    "i16",
    "i32",
    "i64",
    "known",
    "load_types",
    "message",
    "raw",
    "register",
    "replace",
    "u8",
    "u16",
    "u32",
    "u64",
]


# Types of `tapewire.protocol.market`, which needs numpy: the first such record imports it.
MARKET_TYPE_IDS = (0x1000, 0x1001, 0x1002, 0x1003, 0x1004, 0x10FF)


def _decode_market(record: log.Record) -> Any:
    from tapewire.protocol import market

    return market.decode(record)


for _type_id in MARKET_TYPE_IDS:
    log.register_decoder(_type_id, _decode_market)


def __getattr__(name: str) -> Any:
    """Import `TypeTable` and `load_types`, which read JSON, on first use."""
    if name in ("TypeTable", "load_types"):
        from tapewire.protocol import table

        return getattr(table, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
