"""The pinned readers of a streaming query: retention keeps what its checkpoint has not committed.

The process on the driver that plans the query holds one named reader in each queue; the option
`reader` gives the name. The name is locked while that process runs, so a second query with the
same name is refused. The position stays when the query stops, so that nothing is retired before it
runs again. Only `release` moves it forward, to what the checkpoint has committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Self

from tapewire.bus.names import check_name
from tapewire.errors import ReaderAlreadyActive
from tapewire.queue import Reader, open_subscriber, status
from tapewire.scan.damaged import UNREACHABLE

__all__ = ["PinnedReaders"]

_log = logging.getLogger("tapewire.spark")

# The process of a query that was stopped or killed a moment ago may still hold the name.
NAME_TIMEOUT_S = 5.0


class PinnedReaders:
    """One pinned reader in each queue of a query.

    Example:
        >>> import tapewire as tw
        >>> from tapewire.queue import status
        >>> with tw.open_publisher(tmp / "md", segment_bytes=1 << 20) as writer:
        ...     for payload in (b"a", b"b", b"c"):
        ...         _ = writer.append(1, payload)
        >>> with PinnedReaders("my-query") as pins:
        ...     pins.hold("md", str(tmp / "md"), 0)
        ...     pins.release({"md": 2})
        >>> [(reader.name, reader.pinned, reader.next_seq) for reader in status(tmp / "md").readers]
        [('my-query', True, 2)]
    """

    def __init__(self, name: str, *, timeout_s: float | None = None) -> None:
        self.name = check_name("reader", name)
        self._timeout_s = NAME_TIMEOUT_S if timeout_s is None else timeout_s
        self._readers: dict[str, Reader] = {}

    def holds(self, log: str) -> bool:
        """Whether a reader is open in this log."""
        return log in self._readers

    def hold(self, log: str, path: str, seq: int) -> None:
        """Keep the records of this log from `seq` on, and those that were kept before.

        If the name has a position from an earlier run, it may be before `seq`, because the last
        micro-batch of a run is never committed; then it stays. If it is after `seq`, an older
        checkpoint was restored; then it moves back.

        Raises:
            ReaderAlreadyActive: Another process holds this name.
        """
        if log in self._readers:
            return
        if seq > 0 and self.name not in [each.name for each in status(path).readers]:
            _log.warning(
                "the checkpoint has a position in this queue, but the queue has no such reader: "
                "reader=%r; it was removed, or this is another queue of the same name [%s]",
                self.name,
                path,
            )
        reader = self._open(path)
        try:
            committed = reader.committed
            if _can_seek(reader, seq):
                if committed is None or reader.position < committed:
                    reader.commit()
            elif committed is None:
                reader.commit()  # at the beginning: keep too much rather than too little
        except BaseException:
            reader.close()
            raise
        self._readers[log] = reader

    def release(self, logs: Mapping[str, int]) -> None:
        """Allow retention of records below these sequence numbers. Never moves back."""
        for log, seq in logs.items():
            reader = self._readers.get(log)
            if reader is None:
                continue
            committed = reader.committed
            if _can_seek(reader, seq) and (committed is None or reader.position > committed):
                reader.commit()

    def _open(self, path: str) -> Reader:
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return open_subscriber(path, self.name, start="earliest", pinned=True)
            except ReaderAlreadyActive as error:
                if time.monotonic() > deadline:
                    raise ReaderAlreadyActive(
                        f"another query uses this reader name: reader={self.name!r}",
                        path=path,
                        hint="stop it, or give this query its own name: "
                        'option("reader", NAME); each query also needs its own checkpoint',
                    ) from error
                time.sleep(0.02)

    def close(self) -> None:
        """Release the names; the positions stay. Closing again has no effect."""
        while self._readers:
            self._readers.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<PinnedReaders {self.name!r} in {len(self._readers)} queues>"


def _can_seek(reader: Reader, seq: int) -> bool:
    """Seek; False if the segment is damaged or missing."""
    try:
        reader.seek_seq(seq)
    except UNREACHABLE:
        return False
    return True
