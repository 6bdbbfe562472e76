"""What a record looks like outside a log: as a JSON object, as lines for people, as fields."""

from __future__ import annotations

import base64
import enum
import json
import math
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tapewire.cli.times import iso
from tapewire.errors import CorruptRecord, TapewireError
from tapewire.log import Record
from tapewire.protocol import MARKET_TYPE_IDS
from tapewire.protocol.messages import asdict
from tapewire.protocol.types_file import FILE_NAME

if TYPE_CHECKING:
    from tapewire.cli.market_fields import MarketFields
    from tapewire.protocol import Message, MessageLayout, TypeTable

__all__ = ["Messages", "Show", "fields_text", "hexdump", "record_line", "record_object"]


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class Show(enum.Enum):
    """What is shown of a payload."""

    AUTO = "auto"  # decoded where its type is known, bytes where not
    HEX = "hex"
    DECODE = "decode"
    HEADERS = "headers"


class Messages:
    """The messages that a log knows by its `types.json`, and market data, which needs no file.

    A writer puts a message into that file before it appends the first one, so the file is read
    again when an unknown record is met: a follower decodes what was declared after it began.

    Example:
        >>> import tapewire as tw
        >>> from tapewire.protocol.orders import CancelOrder
        >>> with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        ...     _ = writer.append_message(CancelOrder("alpha", "BTCUSDT", 7))
        >>> messages = Messages(tmp / "q")
        >>> messages.name_of(CancelOrder.type_id), messages.type_id_of("CancelOrder")
        ('CancelOrder', 4354)
        >>> with tw.open_log(tmp / "q") as log:
        ...     messages.fields_of(log.next())["symbol"]
        'BTCUSDT'
    """

    def __init__(
        self, where: str | os.PathLike[str], report: Callable[[str], None] = lambda line: None
    ) -> None:
        self._folder = os.fspath(where)
        self._path = os.path.join(self._folder, FILE_NAME)
        self._report = report
        self._read: tuple[int, ...] | None = None
        self._table: TypeTable | None = None
        self._names: dict[int, str] = {}
        self._market: MarketFields | None = None
        self._unknown: set[tuple[int, int]] = set()  # type and size, when the file was last read
        self._load_if_changed()

    def _load_if_changed(self) -> bool:
        try:
            found = os.stat(self._path)
        except OSError:  # of a log that is no folder too
            return False
        signature = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if signature == self._read:
            return False
        from tapewire.protocol import TypeTable

        self._read = signature
        try:
            self._table = TypeTable.load(self._folder)
        except (TapewireError, OSError) as error:
            # A log can be read without: payloads are bytes then.
            self._report(f"{error} (messages are not decoded)")
            return False
        self._unknown.clear()
        # In the order of versions: the newest name counts.
        self._names = {layout.type_id: layout.name for layout in self._table.layouts}
        return True

    def name_of(self, type_id: int) -> str | None:
        """The name that the log gives a type, or None."""
        return self._names.get(type_id)

    def name_for(self, record: Record) -> str | None:
        """The name of a record's type; of market data only where the record can be some."""
        name = self._names.get(record.type_id)
        if name is None and record.type_id in MARKET_TYPE_IDS:
            return self._market_fields().name_for(record)
        return name

    def type_id_of(self, text: str) -> int:
        """A type as it is typed: ``8193``, ``0x2001``, or the name of a message."""
        try:
            type_id = int(text, 0)
        except ValueError:
            named = {layout.type_id for layout in self._layouts() if layout.name == text}
            named = named or _market_types(text)
            if len(named) == 1:
                return named.pop()
            if named:
                ids = ", ".join(f"0x{type_id:04X}" for type_id in sorted(named))
                raise ValueError(f"several types have this name: type={text}; use {ids}") from None
            known = ", ".join(sorted(set(self._names.values())) + sorted(_market_names()))
            raise ValueError(
                f"no message has this name: type={text}; known: {known} (by types.json, or as "
                "market data)"
            ) from None
        if not 0 <= type_id < 0xFFFF:
            raise ValueError(f"a type id is from 0 to 0xFFFE: type={text}")
        return type_id

    def layouts_of(self, type_id: int) -> list[MessageLayout]:
        """Every version of a message, the oldest first."""
        found = [layout for layout in self._layouts() if layout.type_id == type_id]
        if not found and type_id in MARKET_TYPE_IDS:
            from tapewire.protocol import market

            found = [cls.layout() for cls in market.MESSAGES.values() if cls.type_id == type_id]
        return found

    def _layouts(self) -> list[MessageLayout]:
        return [] if self._table is None else self._table.layouts

    def fields_of(self, record: Record) -> dict[str, Any] | None:
        """The fields of a record by name, as JSON has them; None when they cannot be had."""
        cls = self._class_of(record)
        if record.type_id in MARKET_TYPE_IDS:
            found = self._market_fields().of(record, cls)
            if found is not None:
                return found
        if cls is None:
            return None
        try:
            values = asdict(cls.decode(record))
        except CorruptRecord:
            return None  # text that is none: its bytes are shown
        return {name: _plain(value) for name, value in values.items()}

    def _market_fields(self) -> MarketFields:
        if self._market is None:
            from tapewire.cli.market_fields import MarketFields

            self._market = MarketFields(self._folder, self._report)
        return self._market

    def _class_of(self, record: Record) -> type[Message] | None:
        cls = self._table.find(record) if self._table is not None else None
        if cls is not None or (record.type_id, len(record)) in self._unknown:
            return cls
        if self._load_if_changed() and self._table is not None:
            cls = self._table.find(record)
        if cls is None:
            self._unknown.add((record.type_id, len(record)))
        return cls


def _market_names() -> set[str]:
    from tapewire.protocol import market

    return set(market.NAMES.values())


def _market_types(name: str) -> set[int]:
    from tapewire.protocol import market

    return {type_id for type_id, known in market.NAMES.items() if known == name}


def _plain(value: Any) -> Any:
    """A field's value as JSON has it: bytes in hexadecimal, null for what is no finite number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def record_object(
    record: Record, messages: Messages, show: Show = Show.AUTO, fields: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A record as JSON: what `tail --json` and a JSONL export write, one on a line.

    `fields` are those of the record where they are at hand already.
    """
    if fields is None:  # first of all: it looks whether types.json knows more by now
        fields = messages.fields_of(record)
    result: dict[str, Any] = {
        "seq": record.seq,
        "timestamp_ns": record.timestamp_ns,
        "time": iso(record.timestamp_ns),
        "type_id": record.type_id,
        "type": messages.name_for(record),
        "flags": record.flags,
        "size": len(record),
    }
    if show is Show.HEADERS:
        return result
    if show is not Show.HEX and fields is not None:
        result["fields"] = fields
        return result
    result["payload"] = base64.b64encode(record.payload).decode()
    return result


def record_line(
    record: Record, messages: Messages, show: Show = Show.AUTO, fields: dict[str, Any] | None = None
) -> str:
    """`record_object` as one line of JSON, with its newline."""
    return _ENCODER.encode(record_object(record, messages, show, fields)) + "\n"


def fields_text(name: str, fields: dict[str, Any]) -> str:
    """A message on one line; what `--grep` searches.

    Example:
        >>> fields_text("Fill", {"price": 10025, "venue": "X Y"})
        'Fill price=10025 venue="X Y"'
    """
    return " ".join([name, *(f"{key}={_visible(value)}" for key, value in fields.items())])


def _visible(value: Any) -> str:
    r"""A value as JSON in which nothing steers a terminal or ends a line.

    Example:
        >>> print(_visible("é\x9b31m\u2028"))
        "é\u009b31m\u2028"
    """
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


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
