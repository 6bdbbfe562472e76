"""Where a micro-batch ends: limits of records and bytes, shared among the logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from tapewire.errors import InvalidOption
from tapewire.log import Batch, open_log
from tapewire.queue._native import RECORD_HEADER_BYTES
from tapewire.scan.damaged import DAMAGE, seek_seq, skip_damage

__all__ = ["BatchLimit", "UnreadRange", "batch_ends"]

_READ_RECORDS = 4096  # records per read while counting
_UNLIMITED = 2**64


@dataclass(frozen=True)
class BatchLimit:
    """Limits of one micro-batch, over all its logs; None: no limit.

    Attributes:
        rows: Most records. Views that return rows for some records only return at most as many.
        bytes: Most bytes of log: payloads and headers.
        least: Fewest records: with fewer unread, no micro-batch is planned.
    """

    rows: int | None = None
    bytes: int | None = None
    least: int = 0

    @classmethod
    def of(cls, limit: ReadLimit, max_rows: int | None, max_bytes: int | None) -> BatchLimit:
        """Combine the limit that Spark passes with the options of the query.

        A source gives Spark one limit, which Spark passes back; or it passes `ReadAllAvailable`,
        by which a trigger overrides all options.

        Raises:
            InvalidOption: The limit is of a kind that logs do not have.
        """
        if isinstance(limit, ReadAllAvailable):
            return cls()
        if isinstance(limit, ReadMaxRows):
            return cls(limit.max_rows, max_bytes)
        if isinstance(limit, ReadMaxBytes):
            return cls(max_rows, limit.max_bytes)
        if isinstance(limit, ReadMinRows):
            return cls(max_rows, max_bytes, limit.min_rows)
        raise InvalidOption(
            f"the source does not support this limit: limit={type(limit).__name__}",
            hint="use the options max_rows and max_bytes",
        )


@dataclass(frozen=True)
class UnreadRange:
    """The records of a log that a query has not read.

    Attributes:
        name: Name of the log.
        path: Path of the log.
        first: Sequence number that is read next.
        end: Sequence number after the last record.
        dense: Sequence numbers have no gaps, so records can be counted without reading them.
    """

    name: str
    path: str
    first: int
    end: int
    dense: bool

    def capped(self, end: int) -> UnreadRange:
        """The part of the range before sequence number `end`."""
        return replace(self, end=max(self.first, min(self.end, end)))


def batch_ends(logs: Sequence[UnreadRange], limit: BatchLimit) -> dict[str, int]:
    """For each log with unread records, the sequence number at which the micro-batch ends.

    Each log gets an equal share of the limits; what one does not need goes to the others. A record
    larger than the limit in bytes is included all the same, so that a query always advances.
    """
    waiting = sorted((log for log in logs if log.end > log.first), key=_size_and_name)
    if limit.least and sum(log.end - log.first for log in waiting) < limit.least:
        return {}
    if limit.rows is None and limit.bytes is None:
        return {log.name: log.end for log in waiting}
    rows_left = _UNLIMITED if limit.rows is None else max(limit.rows, 1)
    bytes_left = _UNLIMITED if limit.bytes is None else max(limit.bytes, 1)
    ends: dict[str, int] = {}
    for i, log in enumerate(waiting):
        if rows_left <= 0 or bytes_left <= 0:
            break
        logs_left = len(waiting) - i
        share = _Share(max(rows_left // logs_left, 1), max(bytes_left // logs_left, 1))
        end = share.end_of(log, count_bytes=limit.bytes is not None)
        rows_left -= share.rows
        bytes_left -= share.bytes
        if end > log.first:
            ends[log.name] = end
    return ends


def _size_and_name(log: UnreadRange) -> tuple[int, str]:
    return log.end - log.first, log.name


class _Share:
    """The share of one log: its limits, and how much of them is used."""

    def __init__(self, max_rows: int, max_bytes: int) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self.rows = 0
        self.bytes = 0

    def end_of(self, log: UnreadRange, *, count_bytes: bool) -> int:
        """The sequence number at which the share is used up, or the end of the range."""
        if log.dense and not count_bytes:
            self.rows = min(self._max_rows, log.end - log.first)
            return log.first + self.rows
        reached = log.first
        with open_log(log.path) as reader:
            seek_seq(reader, log.first)
            while self.rows < self._max_rows:
                try:
                    batch = reader.read_batch(min(_READ_RECORDS, self._max_rows - self.rows))
                except DAMAGE as error:
                    # The task that reads the slice reports it.
                    if skip_damage(reader, error) is None:
                        return log.end
                    continue
                fitting = self._add(batch, log.end)
                if fitting:
                    reached = int(batch.seq[fitting - 1]) + 1
                if fitting < len(batch):
                    return log.end if int(batch.seq[fitting]) >= log.end else reached
                if not len(batch):
                    return log.end
        return reached

    def _add(self, batch: Batch, end: int) -> int:
        """Add the records that fit, at least one per share; return how many."""
        all_bytes = batch.payload_bytes + RECORD_HEADER_BYTES * len(batch)
        if self.bytes + all_bytes <= self._max_bytes and len(batch) and batch.seq[-1] < end:
            self.rows += len(batch)
            self.bytes += all_bytes
            return len(batch)
        for i in range(len(batch)):
            size = len(batch.payload(i)) + RECORD_HEADER_BYTES
            full = self.bytes + size > self._max_bytes and self.rows > 0
            if full or batch.seq[i] >= end:
                return i
            self.rows += 1
            self.bytes += size
        return len(batch)
