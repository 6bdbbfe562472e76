"""The pinned readers of a streaming query: retention waits for what its checkpoint has not.

The process on the driver that plans the query holds one named reader in each queue, under the name
that the query gives itself. The name is locked while that process lives, so that two queries of one
name are told; its position stays when the query stops, so that nothing is retired before it comes
back. It moves forward by `release` alone, which is told what the checkpoint has committed.
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

# The process of a query that was stopped or killed a moment ago is still going.
PATIENCE_S = 5.0


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

    def __init__(self, name: str, *, patience_s: float | None = None) -> None:
        self.name = check_name("reader", name)
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        self._readers: dict[str, Reader] = {}

    def holds(self, log: str) -> bool:
        """Whether there is one in this log."""
        return log in self._readers

    def hold(self, log: str, path: str, seq: int) -> None:
        """Keep what this log has from `seq` on; what it had kept before stays kept.

        A position that the name has from an earlier run may be behind `seq`, since the last batch
        of a run is never committed, and stays there; it may be ahead of it, where an older
        checkpoint was put back, and goes back.

        Raises:
            ReaderAlreadyActive: Another query, or whoever else, holds this name.
        """
        if log in self._readers:
            return
        if seq > 0 and self.name not in [each.name for each in status(path).readers]:
            _log.warning(
                "the checkpoint knows this queue, which does not know its reader: reader=%r was "
                "removed, or it is another queue of that name [%s]",
                self.name,
                path,
            )
        reader = self._open(path)
        try:
            committed = reader.committed
            if _stands(reader, seq):
                if committed is None or reader.position < committed:
                    reader.commit()
            elif committed is None:
                reader.commit()  # at the front: rather too much is kept than too little
        except BaseException:
            reader.close()
            raise
        self._readers[log] = reader

    def release(self, logs: Mapping[str, int]) -> None:
        """Let go what is below these numbers: the checkpoint has it. Never goes back."""
        for log, seq in logs.items():
            reader = self._readers.get(log)
            if reader is None:
                continue
            committed = reader.committed
            if _stands(reader, seq) and (committed is None or reader.position > committed):
                reader.commit()

    def _open(self, path: str) -> Reader:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return open_subscriber(path, self.name, start="earliest", pinned=True)
            except ReaderAlreadyActive as error:
                if time.monotonic() > deadline:
                    raise ReaderAlreadyActive(
                        f"another query reads by this name: reader={self.name!r}",
                        path=path,
                        hint="stop it, or give this query a name of its own: "
                        'option("reader", NAME); each needs its own checkpoint too',
                    ) from error
                time.sleep(0.02)

    def close(self) -> None:
        """Give the names free; the positions stay. Closing twice is fine."""
        while self._readers:
            self._readers.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<PinnedReaders {self.name!r} in {len(self._readers)} queues>"


def _stands(reader: Reader, seq: int) -> bool:
    """Whether the reader could be put there: not where its segment is damaged or gone."""
    try:
        reader.seek_seq(seq)
    except UNREACHABLE:
        return False
    return True
