"""Lines of cryptofeed captures: ``<received>: <json>``, and ``wss://…`` for what was sent."""

from __future__ import annotations

from typing import Any

from tapewire.errors import InvalidMessage
from tapewire.ingest.capture_lines import MAX_TIME_NS, WRONG_TYPE, BadRow, LineImporter, parse_json
from tapewire.protocol.market import scaled

__all__ = ["CryptofeedImporter", "milliseconds_ns"]


class CryptofeedImporter(LineImporter):
    """Splits a line; a subclass imports the venue's message."""

    def formats_of(self, line: bytes) -> frozenset[str]:
        """The venues that send messages of this form."""
        document = parse_json(line.partition(b": ")[2])
        if "product_id" in document:
            return frozenset(("coinbase",))
        if not {"channel", "instId"} <= document["arg"].keys():
            return frozenset()
        return frozenset(("bitget" if "instType" in document["arg"] else "okx",))

    def message(self, line: bytes) -> None:
        """Split a line into time and JSON; lines that are not messages of the venue are skipped."""
        if not line.strip():
            self.report.skip("blank line")
            return
        if line.startswith((b"wss://", b"ws://", b"http://", b"https://")):
            self.report.skip("connection")  # opened, or what the client sent
            return
        stamp, colon, text = line.partition(b": ")
        if not colon:
            raise BadRow("no time at the start", f"{line[:40]!r}")
        try:
            timestamp_ns = scaled(stamp, 9)  # seconds; a float would lose the last digits
        except InvalidMessage as error:
            raise BadRow("no time at the start", error.message) from None
        if not 0 <= timestamp_ns <= MAX_TIME_NS:
            raise BadRow("no time at the start", f"{stamp[:40]!r}")
        document = parse_json(text)
        if type(document) is not dict:
            raise BadRow(WRONG_TYPE, "a message must be an object")
        self.venue_message(timestamp_ns, document, text)

    def venue_message(self, timestamp_ns: int, document: dict[str, Any], text: bytes) -> None:
        """Import one message of the venue."""
        raise NotImplementedError


def milliseconds_ns(value: Any) -> int:
    """A venue's time in milliseconds, as text or number, in nanoseconds.

    Example:
        >>> milliseconds_ns("1652459199958")
        1652459199958000000
    """
    number = scaled(value, 0) if type(value) is str else value
    if type(number) is not int or not 0 <= number <= MAX_TIME_NS // 1_000_000:
        raise BadRow(WRONG_TYPE, f"not a time in milliseconds: {value!r:.80}")
    return number * 1_000_000
