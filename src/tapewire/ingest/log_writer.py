"""One log of an import: appends what is not there yet, and checks what is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import tapewire as tw
from tapewire.book.gaps import GapLedger
from tapewire.config import WriterConfig
from tapewire.errors import CorruptMetadata
from tapewire.files import is_queue
from tapewire.ingest.job import Job
from tapewire.ingest.model import LogSummary
from tapewire.protocol.messages import declare

__all__ = ["SEGMENT_BYTES", "LogWriter"]

# Of a new log. Small beside a live queue's, for an archive has a log for each stream, symbol and
# day, and large enough for a snapshot with 65,535 levels on both sides.
SEGMENT_BYTES = 4 << 20
_NOT_OURS = (
    "somebody else wrote to it, or another release began the import: import into a new archive"
)


class Follower(Protocol):
    """Holds a log open until `close`; may open it again."""

    def close(self) -> None:
        """Let go of the log."""
        ...


class LogWriter:
    """A log that a job writes to. Closed between uses where there are many; its counts stay.

    The first `present` records of the job are there from a run that was killed. They are not
    appended again but compared: a log that holds something else must not be continued.

    Attributes:
        log: Its path below the archive.
        folder: Its path.
        first_seq: The number of the job's first record in it.
        count: Records of the job so far, whether appended now or there already.
        ledger: Its gap ledger, which remembers what it has read of itself.
        follower: Who reads behind it, and lets go of it when it is closed.
    """

    def __init__(self, log: str, folder: Path, job: Job) -> None:
        self.log = log
        self.folder = folder
        self.count = 0
        self.gaps = 0
        self.ledger = GapLedger(folder)
        self.follower: Follower | None = None
        self._writer: Any = None
        self._reader: Any = None
        writer = self._open()
        try:
            self.first_seq = job.first_seq(log, writer.next_seq)
        except BaseException:
            self.close()
            raise
        self.present = writer.next_seq - self.first_seq

    def __repr__(self) -> str:
        return f"LogWriter({self.log!r}, {self.count} records from {self.first_seq})"

    def append(self, type_id: int, timestamps_ns: np.ndarray[Any, Any], payloads: Any) -> None:
        """Put records behind the others, but for those that are there."""
        old = min(max(self.present - self.count, 0), len(timestamps_ns))
        if old:
            self._compare(type_id, timestamps_ns[:old], payloads)
        if old < len(timestamps_ns):
            writer = self._writer if self._writer is not None else self._open()
            _declare(writer, type_id)
            writer.append_batch(
                type_id, payloads[old:] if old else payloads, timestamps_ns=timestamps_ns[old:]
            )
        self.count += len(timestamps_ns)

    @property
    def next_seq(self) -> int:
        """The number that the job's next record gets, or has."""
        return self.first_seq + self.count

    def finish(self) -> None:
        """The job has no more records for it.

        Raises:
            CorruptMetadata: It holds more than the job's: somebody else wrote to it.
        """
        if self.count < self.present:
            raise CorruptMetadata(
                "the log holds more records than this import writes: "
                f"first_seq={self.next_seq}, records={self.present - self.count}",
                path=os.fspath(self.folder),
                hint=_NOT_OURS,
            )

    def summary(self) -> LogSummary:
        """For the import's summary."""
        appended = max(self.count - self.present, 0)
        return LogSummary(self.log, self.count, appended, self.first_seq, self.gaps)

    def close(self) -> None:
        """Make it durable and let go of it; the next append opens it again."""
        reader, self._reader = self._reader, None
        writer, self._writer = self._writer, None
        if reader is not None:
            reader.close()
        if self.follower is not None:
            self.follower.close()
        if writer is not None:
            with writer:
                writer.flush_sync()

    def _open(self) -> Any:
        config = WriterConfig.archive()
        # Comes last when a queue is made: a run that was killed before left a folder and no queue.
        if not is_queue(self.folder):
            config = config.replace(segment_bytes=SEGMENT_BYTES)
        self._writer = tw.open_publisher(self.folder, config=config)
        return self._writer

    def _compare(self, type_id: int, timestamps_ns: np.ndarray[Any, Any], payloads: Any) -> None:
        """That the next records of the log are these."""
        if self._reader is None:
            self._reader = tw.open_log(self.folder)
            self._reader.seek_seq(self.next_seq)
        at = 0
        while at < len(timestamps_ns):
            batch = self._reader.read_batch(len(timestamps_ns) - at)
            stop = at + len(batch)
            same = (
                len(batch) > 0
                and np.array_equal(batch.timestamp_ns, timestamps_ns[at:stop].astype(np.uint64))
                and bool((batch.type_id == type_id).all())
                and all(
                    batch.payload(i) == memoryview(payloads[at + i]).cast("B")
                    for i in range(len(batch))
                )
            )
            if not same:
                raise CorruptMetadata(
                    "the log holds other records than this import writes: "
                    f"first_seq={self.next_seq + at}, records={len(batch)}",
                    path=os.fspath(self.folder),
                    hint=_NOT_OURS,
                )
            at = stop


def _declare(writer: Any, type_id: int) -> None:
    """Put the message's layout into the log's types.json, with the first record of it."""
    from tapewire.protocol.market import Quote, TradeTick

    for message in (Quote, TradeTick):
        if message.type_id == type_id:
            declare(writer, message)
