"""One log that an import writes: the job's records in it, and their number."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import tapewire as tw
from tapewire.archive.log_writer import LogWriter
from tapewire.archive.record_columns import RecordColumns
from tapewire.config import WriterConfig
from tapewire.errors import CorruptMetadata
from tapewire.ingest.importer import LogSummary
from tapewire.ingest.job import Job
from tapewire.protocol.market import Quote, TradeTick

__all__ = ["SEGMENT_BYTES", "ImportLog"]

# Segment size of new logs. Smaller than a live queue's, because an archive has a log for each
# stream, symbol and day; large enough for a snapshot with 65,535 levels on both sides.
SEGMENT_BYTES = 4 << 20
_NOT_OURS = (
    "another process has written to it, or another release began the import: import into a new "
    "archive"
)
_LAYOUTS = {message.type_id: message.layout() for message in (Quote, TradeTick)}


class Follower(Protocol):
    """Has the log open until `close`; may open it again."""

    def close(self) -> None:
        """Close the log."""
        ...


class ImportLog(LogWriter):
    """A log that a job writes to.

    The sequence numbers of the job's records start at `first_seq`: the records that a killed run
    appended are compared.

    Attributes:
        log: Its path below the archive.
        first_seq: The sequence number of the job's first record in it.
        gaps: How many gaps the job has found in it.
        overlapping: How many of the job's records may be among those before it.
        follower: Reads the log while it is written; closed with it.
    """

    def __init__(self, log: str, path: Path, job: Job) -> None:
        super().__init__(
            path, WriterConfig.archive(), segment_bytes=SEGMENT_BYTES, conflict=_conflict
        )
        self.log = log
        self.gaps = 0
        self.overlapping = 0
        self.follower: Follower | None = None
        try:
            self.first_seq = self.next_seq = job.first_seq(log, self.end_seq)
        except BaseException:
            self.close()
            raise
        self._present = self.end_seq - self.first_seq

    @property
    def continues(self) -> bool:
        """Whether it has records from before the job."""
        return self.first_seq > 0

    @functools.cached_property
    def earlier_end_ns(self) -> int:
        """The time of the last record from before the job."""
        with contextlib.closing(tw.open_log(self.path)) as reader:
            reader.seek_seq(self.first_seq - 1)
            record = reader.next()
            return 0 if record is None else int(record.timestamp_ns)

    @property
    def count(self) -> int:
        """Records of the job so far, whether appended now or before."""
        return self.next_seq - self.first_seq

    def append_chunk(self, type_id: int, timestamps_ns: np.ndarray[Any, Any], rows: Any) -> None:
        """Append or compare the next records of the job, all of one type."""
        layouts = [_LAYOUTS[type_id]] if type_id in _LAYOUTS else []
        self.append(RecordColumns(timestamps_ns, type_id, 0, rows, None), layouts)

    def finish(self) -> None:
        """Check that the log holds no records after the job's last one.

        Raises:
            CorruptMetadata: It does: another process has written to it.
        """
        if self.next_seq < self.end_seq:
            raise CorruptMetadata(
                "the log holds more records than this import writes: "
                f"first_seq={self.next_seq}, records={self.end_seq - self.next_seq}",
                path=os.fspath(self.path),
                hint=_NOT_OURS,
            )

    def summary(self) -> LogSummary:
        """What the job wrote, for its summary."""
        appended = max(self.count - self._present, 0)
        return LogSummary(
            self.log, self.count, appended, self.first_seq, self.gaps, self.overlapping
        )

    def close(self) -> None:
        """Sync the log and close it, after its follower."""
        if self.follower is not None:
            self.follower.close()
        super().close()


def _conflict(path: Path, seq: int) -> CorruptMetadata:
    return CorruptMetadata(
        f"the log holds other records than this import writes: first_seq={seq}",
        path=os.fspath(path),
        hint=_NOT_OURS,
    )
