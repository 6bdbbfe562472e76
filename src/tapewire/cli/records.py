"""What a record looks like outside a log: as a JSON object, as lines for people, as fields."""

from __future__ import annotations

import base64
import enum
import json
import math
import os
from collections.abc import Iterator
from typing import Any

from tapewire.cli.times import iso
from tapewire.log import Record

__all__ = ["Messages", "Show", "fields_text", "hexdump", "record_line", "record_object"]


class Show(enum.Enum):
    """What is shown of a payload."""

    AUTO = "auto"  # decoded where its type is known, bytes where not
    HEX = "hex"
    DECODE = "decode"
    HEADERS = "headers"


class Messages:
    """The messages that a log knows by its `types.json`; a log without one knows none.

    Example:
        >>> import tapewire as tw
        >>> with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        ...     Messages.of(tmp / "q").name_of(0x1001) is None
        True
    """

    @classmethod
    def of(cls, where: str | os.PathLike[str]) -> Messages:
        """Those of a log; `where` need not be a folder."""
        return cls()

    def name_of(self, type_id: int) -> str | None:
        """The name of a type, or None."""
        return None

    def type_id_of(self, text: str) -> int:
        """A type as it is typed: ``4097``, ``0x1001``, or the name of a message."""
        try:
            type_id = int(text, 0)
        except ValueError:
            pass
        else:
            if 0 <= type_id < 0xFFFF:
                return type_id
            raise ValueError(f"a type id is from 0 to 0xFFFE: type={text}")
        raise ValueError(f"no message of this name is in the log's types.json: type={text}")

    def fields_of(self, record: Record) -> dict[str, Any] | None:
        """The fields of a record by name, as JSON has them; None when they cannot be had."""
        return None


def record_object(
    record: Record, messages: Messages, show: Show = Show.AUTO, fields: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A record as JSON: what `tail --json` and a JSONL export write, one on a line.

    `fields` are those of the record where they are at hand already.
    """
    result: dict[str, Any] = {
        "seq": record.seq,
        "timestamp_ns": record.timestamp_ns,
        "time": iso(record.timestamp_ns),
        "type_id": record.type_id,
        "type": messages.name_of(record.type_id),
        "flags": record.flags,
        "size": len(record),
    }
    if show is Show.HEADERS:
        return result
    if show is not Show.HEX:
        fields = messages.fields_of(record) if fields is None else fields
        if fields is not None:
            result["fields"] = fields
            return result
    result["payload"] = base64.b64encode(record.payload).decode()
    return result


def record_line(
    record: Record, messages: Messages, show: Show = Show.AUTO, fields: dict[str, Any] | None = None
) -> str:
    """`record_object` as one line of JSON, with its newline."""
    value = record_object(record, messages, show, fields)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """`value` with null for the numbers that JSON does not have: not-a-number, infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [finite(item) for item in value]
    return value


def fields_text(name: str, fields: dict[str, Any]) -> str:
    """A message on one line; what `--grep` searches.

    Example:
        >>> fields_text("Fill", {"price": 10025, "venue": "X Y"})
        'Fill price=10025 venue="X Y"'
    """
    return " ".join(
        [name, *(f"{key}={json.dumps(v, ensure_ascii=False)}" for key, v in fields.items())]
    )


def hexdump(data: memoryview) -> Iterator[str]:
    r"""Sixteen bytes a line: offset, hexadecimal, and what of it is ASCII.

    Example:
        >>> print(*hexdump(memoryview(b"session open")), sep="\n")
        0000  73 65 73 73 69 6f 6e 20  6f 70 65 6e              |session open|
    """
    width = max(4, len(f"{max(0, len(data) - 1):x}"))
    for offset in range(0, len(data), 16):
        row = bytes(data[offset : offset + 16])
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        yield f"{offset:0{width}x}  {left:<23}  {right:<23}  |{text}|"
