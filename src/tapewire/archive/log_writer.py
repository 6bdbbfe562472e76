"""The one writer of archive logs: appends the records that are missing, compares the others."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import numpy as np

import tapewire as tw
from tapewire.archive.record_columns import RecordColumns, first_difference
from tapewire.book.gaps import GapLedger
from tapewire.config import WriterConfig
from tapewire.errors import CorruptMetadata, TapewireError
from tapewire.files import is_queue
from tapewire.log import Batch
from tapewire.protocol import types_file
from tapewire.protocol.layout import MessageLayout

__all__ = ["LogWriter"]


def _conflict(path: Path, seq: int) -> TapewireError:
    return CorruptMetadata(
        f"the log holds another record under this sequence number: seq={seq}", path=os.fspath(path)
    )


class LogWriter:
    """Writes one log of an archive.

    A process that was killed may have left records in the log that it did not account for. The next
    one passes the same records again: those that exist are compared, the others are appended. A log
    that holds anything else is not continued.

    After `close`, the next append opens the log again.

    Args:
        path: The directory of the log; created if it does not exist.
        config: Options of the writer. It should not sync by itself where the caller does.
        segment_bytes: Segment size of a new log; None: that of `config`.
        conflict: Makes the error for a record that differs, of the log's path and the record's
            sequence number.

    Attributes:
        path: The directory of the log.
        ledger: Its gap ledger.
        dirty: A power cut may remove records that were passed to `append`, or the new log.
        next_seq: The sequence number of the next record passed to `append`; set it to that of an
            existing record to compare from there. Records of a sparse log have their own.
        end_seq: The sequence number after the last record in the log.
    """

    def __init__(
        self,
        path: Path,
        config: WriterConfig,
        *,
        segment_bytes: int | None = None,
        conflict: Callable[[Path, int], TapewireError] = _conflict,
    ) -> None:
        self.path = path
        self.ledger = GapLedger(path)
        self.dirty = False
        self._config = config
        self._segment_bytes = segment_bytes
        self._conflict = conflict
        self._declared: list[MessageLayout] = []
        self._writer: Any = None
        self._reader: Any = None
        self._reader_seq = 0
        self.end_seq: int = self._opened().next_seq
        self.next_seq: int = self.end_seq

    def __repr__(self) -> str:
        state = "closed" if self._writer is None else "dirty" if self.dirty else "durable"
        return f"<{type(self).__name__} {os.fspath(self.path)!r} end_seq={self.end_seq} {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def sparse(self) -> bool:
        """Whether records bring their sequence numbers."""
        return bool(self._opened().sparse)

    @property
    def segment_bytes(self) -> int:
        """The segment size of the log."""
        return int(self._opened().segment_bytes)

    def existing(self, records: RecordColumns) -> int:
        """How many of these records, from the first on, are in the log by sequence number."""
        if self.sparse and records.seq is not None:
            seqs = records.seq.astype(np.uint64, copy=False)
            return int(np.searchsorted(seqs, np.uint64(self.end_seq)))
        return max(0, min(self.end_seq - self.next_seq, len(records)))

    def append(self, records: RecordColumns, layouts: Iterable[MessageLayout] = ()) -> None:
        """Append the records that are missing; compare the ones that exist.

        Args:
            records: The records. Their sequence numbers count in a sparse log only.
            layouts: Added to the log's types.json before the first record is appended.

        Raises:
            TapewireError: The error of `conflict`: the log holds another record.
            DiskFull: Append the same records again when there is space.
        """
        if not len(records):
            return
        writer = self._opened()
        if not writer.sparse and records.seq is not None:
            records = dataclasses.replace(records, seq=None)
        self.dirty = True  # the process that appended existing records may not have synced them
        existing = self.existing(records)
        if existing:
            self._compare(records.part(0, existing))
        if existing < len(records):
            self._close_reader()
            self._declare(layouts)
            missing = records.part(existing, len(records)) if existing else records
            try:
                writer.append_batch(
                    missing.type_id,
                    missing.payload,
                    missing.timestamp_ns,
                    missing.flags,
                    missing.seq,
                )
            finally:
                self.end_seq = writer.next_seq
        if records.seq is None:
            self.next_seq += len(records)
        else:
            self.next_seq = int(records.seq[-1]) + 1

    def sync(self) -> None:
        """Make everything appended so far durable."""
        if self.dirty:
            self._opened().flush_sync()
            self.dirty = False

    def close(self) -> None:
        """Sync the log and close it. Closing twice is fine."""
        self._close_reader()
        if self._writer is None:
            return
        try:
            with self._writer:
                self.sync()
        finally:
            self._writer = None

    def _opened(self) -> Any:
        if self._writer is None:
            config = self._config
            # control.meta is created last: a process that was killed before left an empty log.
            if self._segment_bytes is not None and not is_queue(self.path):
                config = config.replace(segment_bytes=self._segment_bytes)
            self._writer = tw.open_publisher(self.path, config=config)
            self.dirty = True  # a new log is not durable yet, nor what a killed process appended
        return self._writer

    def _declare(self, layouts: Iterable[MessageLayout]) -> None:
        missing = [layout for layout in layouts if layout not in self._declared]
        if missing:
            types_file.merge(self.path, missing)
            self._declared += missing

    def _compare(self, records: RecordColumns) -> None:
        """Check that the log holds these records one after the other."""
        if records.seq is None:
            seqs = np.arange(self.next_seq, self.next_seq + len(records), dtype=np.uint64)
            records = dataclasses.replace(records, seq=seqs)
        seq = int(records.seqs()[0])
        if self._reader is None:
            self._reader = tw.open_log(self.path)
            self._reader.seek_seq(seq)
        elif self._reader_seq != seq:
            self._reader.seek_seq(seq)
        while len(records):
            batch: Batch = self._reader.read_batch(len(records))
            same = first_difference(RecordColumns.of_batch(batch), records)
            if same < len(batch) or not len(batch):
                self._close_reader()
                raise self._conflict(self.path, int(records.seqs()[same]))
            self._reader_seq = int(records.seqs()[same - 1]) + 1
            records = records.part(same, len(records))

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
