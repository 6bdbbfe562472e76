"""Collects records into chunks: appending a thousand costs little more than appending one."""

from __future__ import annotations

from collections.abc import Iterator

from tapewire.ingest.importer import Chunk

__all__ = ["Pending"]

FULL_RECORDS = 4096
FULL_BYTES = 8 << 20


class Pending:
    """Collects records by stream, and returns them as chunks.

    Args:
        unique: As in `Chunk`.

    Example:
        >>> pending = Pending()
        >>> pending.add("okx", "BTC-USDT", "trades", 0x1004, 5, b"...")
        False
        >>> [(chunk.symbol, len(chunk)) for chunk in pending.take()]
        [('BTC-USDT', 1)]
    """

    def __init__(self, *, unique: bool = False) -> None:
        self._unique = unique
        self._chunks: dict[tuple[str, str, str], Chunk] = {}
        self._records = 0
        self._bytes = 0

    def add(  # one call a record: no keywords
        self,
        venue: str,
        symbol: str,
        stream: str,
        type_id: int,
        timestamp_ns: int,
        payload: bytes,
        line: int = 0,
        source: int = 0,
    ) -> bool:
        """Add a record to those of its stream; True when it is time to `take`."""
        key = (venue, symbol, stream)
        chunk = self._chunks.get(key)
        if chunk is None:
            chunk = Chunk(venue, symbol, stream, type_id, [], [], [], source, unique=self._unique)
            self._chunks[key] = chunk
        assert isinstance(chunk.timestamps_ns, list)
        assert isinstance(chunk.payloads, list)
        assert isinstance(chunk.lines, list)
        assert chunk.type_id == type_id, "a stream has records of one type"
        chunk.timestamps_ns.append(timestamp_ns)
        chunk.payloads.append(payload)
        chunk.lines.append(line)
        self._records += 1
        self._bytes += len(payload)
        return self._records >= FULL_RECORDS or self._bytes >= FULL_BYTES

    def take(self) -> Iterator[Chunk]:
        """Everything collected, in the order in which streams were first added."""
        chunks, self._chunks = self._chunks, {}
        self._records = self._bytes = 0
        yield from chunks.values()
