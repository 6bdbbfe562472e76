"""Records outside a log: as JSON objects, as lines of text, and as fields of messages."""

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
    """How payloads are shown."""

    AUTO = "auto"  # decoded if the type is known, otherwise bytes
    HEX = "hex"
    DECODE = "decode"
    HEADERS = "headers"


class Messages:
    """The message types of a log: those of its `types.json`, and market data, which needs no file.

    A writer adds a message type to that file before it appends the first such record, so the file
    is read again when an unknown record arrives: a follower decodes types that were added later.

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
        self._directory = os.fspath(where)
        self._path = os.path.join(self._directory, FILE_NAME)
        self._report = report
        self._read: tuple[int, ...] | None = None
        self._table: TypeTable | None = None
        self._names: dict[int, str] = {}
        self._market: MarketFields | None = None
        self._unknown: set[tuple[int, int]] = set()  # (type, size) that the file does not have
        self._load_if_changed()

    def _load_if_changed(self) -> bool:
        try:
            found = os.stat(self._path)
        except OSError:  # also if the log is not a directory
            return False
        signature = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if signature == self._read:
            return False
        from tapewire.protocol import TypeTable

        self._read = signature
        try:
            self._table = TypeTable.load(self._directory)
        except (TapewireError, OSError) as error:
            self._report(f"{error} (messages are not decoded)")
            return False
        self._unknown.clear()
        # Layouts are in the order of versions, so the newest name counts.
        self._names = {layout.type_id: layout.name for layout in self._table.layouts}
        return True

    def name_of(self, type_id: int) -> str | None:
        """The name of a type in `types.json`, or None."""
        return self._names.get(type_id)

    def name_for(self, record: Record) -> str | None:
        """The name of a record's type, or None; market data must have a plausible size."""
        name = self._names.get(record.type_id)
        if name is None and record.type_id in MARKET_TYPE_IDS:
            return self._market_fields().name_for(record)
        return name

    def type_id_of(self, text: str) -> int:
        """Parse a type as the user gives it: ``8193``, ``0x2001``, or the name of a message."""
        try:
            type_id = int(text, 0)
        except ValueError:
            named = {layout.type_id for layout in self._layouts() if layout.name == text}
            named = named or _market_types(text)
            if len(named) == 1:
                return named.pop()
            if named:
                ids = ", ".join(f"0x{type_id:04X}" for type_id in sorted(named))
                raise ValueError(
                    f"ambiguous message name: type={text}; give one of {ids}"
                ) from None
            known = ", ".join(sorted(set(self._names.values())) + sorted(_market_names()))
            raise ValueError(
                f"unknown message name: type={text}; known from types.json and market data: {known}"
            ) from None
        if not 0 <= type_id < 0xFFFF:
            raise ValueError(f"invalid type id: type={text}, must be from 0 to 0xFFFE")
        return type_id

    def layouts_of(self, type_id: int) -> list[MessageLayout]:
        """Every version of a message, oldest first."""
        found = [layout for layout in self._layouts() if layout.type_id == type_id]
        if not found and type_id in MARKET_TYPE_IDS:
            from tapewire.protocol import market

            found = [cls.layout() for cls in market.MESSAGES.values() if cls.type_id == type_id]
        return found

    def _layouts(self) -> list[MessageLayout]:
        return [] if self._table is None else self._table.layouts

    def fields_of(self, record: Record) -> dict[str, Any] | None:
        """The fields of a record by name, ready for JSON; None if it cannot be decoded."""
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
            return None  # text that is not UTF-8: its bytes are shown
        return {name: _plain(value) for name, value in values.items()}

    def _market_fields(self) -> MarketFields:
        if self._market is None:
            from tapewire.cli.market_fields import MarketFields

            self._market = MarketFields(self._directory, self._report)
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
    """A field's value for JSON: bytes in hexadecimal, None for a float that is not finite."""
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
    """A record as a JSON object: `tail --json` and a JSONL export write one per line.

    Pass `fields` if the record is already decoded.
    """
    if fields is None:  # before `name_for`, since it reads types.json again if that has changed
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
    """A message on one line, the text that `--grep` searches.

    Example:
        >>> fields_text("Fill", {"price": 10025, "venue": "X Y"})
        'Fill price=10025 venue="X Y"'
    """
    return " ".join([name, *(f"{key}={_visible(value)}" for key, value in fields.items())])


def _visible(value: Any) -> str:
    r"""A value as JSON, without characters that control a terminal or end a line.

    Example:
        >>> print(_visible("é\x9b31m\u2028"))
        "é\u009b31m\u2028"
    """
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def hexdump(data: memoryview) -> Iterator[str]:
    r"""Lines of sixteen bytes: offset, hexadecimal, and ASCII.

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
