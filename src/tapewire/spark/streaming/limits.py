"""How far a micro-batch goes: so many records, so many bytes, shared out among the logs."""

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
from tapewire.scan.damaged import DAMAGE, pass_damage, seek_seq

__all__ = ["Ahead", "Limit", "cut"]

_STEP = 4096  # records looked at in one go
_ALL = 2**64


@dataclass(frozen=True)
class Limit:
    """What one micro-batch may have, over all its logs; None: as much as there is.

    Attributes:
        rows: Records. Of a view that gives a row for some of them only, so many at most.
        bytes: Of log: payloads and headers.
        least: Records below which there is no micro-batch yet.
    """

    rows: int | None = None
    bytes: int | None = None
    least: int = 0

    @classmethod
    def of(cls, limit: ReadLimit, max_rows: int | None, max_bytes: int | None) -> Limit:
        """What Spark asks for, and the options of the query.

        Spark takes one limit from a source and gives it back, or `ReadAllAvailable`, by which a
        trigger overrides all options.

        Raises:
            InvalidOption: Spark asks for a limit that means nothing here.
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
            f"the source knows no such limit: limit={type(limit).__name__}",
            hint="use the options max_rows and max_bytes",
        )


@dataclass(frozen=True)
class Ahead:
    """What a log has for the next micro-batch.

    Attributes:
        name: Of the log.
        path: Of the log.
        first: Number that is read next.
        end: Number behind the last that is there.
        dense: Numbers do not skip: they can be counted without looking.
    """

    name: str
    path: str
    first: int
    end: int
    dense: bool

    def capped(self, end: int) -> Ahead:
        """The same, and nothing from this number on."""
        return replace(self, end=max(self.first, min(self.end, end)))


def cut(logs: Sequence[Ahead], limit: Limit) -> dict[str, int]:
    """Where the micro-batch ends in each log that has something: behind a record of it.

    Each log gets an equal share, and what one does not need goes to the others. A record that is
    larger than the limit in bytes comes all the same, so that a query always goes on.
    """
    waiting = sorted((log for log in logs if log.end > log.first), key=_most_last)
    if limit.least and sum(log.end - log.first for log in waiting) < limit.least:
        return {}
    if limit.rows is None and limit.bytes is None:
        return {log.name: log.end for log in waiting}
    rows = _ALL if limit.rows is None else max(limit.rows, 1)
    room = _ALL if limit.bytes is None else max(limit.bytes, 1)
    ends: dict[str, int] = {}
    for place, log in enumerate(waiting):
        if rows <= 0 or room <= 0:
            break
        left = len(waiting) - place
        share = _Share(max(rows // left, 1), max(room // left, 1))
        end = share.end_of(log, count_bytes=limit.bytes is not None)
        rows -= share.rows
        room -= share.bytes
        if end > log.first:
            ends[log.name] = end
    return ends


def _most_last(log: Ahead) -> tuple[int, str]:
    return log.end - log.first, log.name


class _Share:
    """What one log may take, and has taken."""

    def __init__(self, most_rows: int, most_bytes: int) -> None:
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self.rows = 0
        self.bytes = 0

    def end_of(self, log: Ahead, *, count_bytes: bool) -> int:
        if log.dense and not count_bytes:
            self.rows = min(self._most_rows, log.end - log.first)
            return log.first + self.rows
        reached = log.first
        with open_log(log.path) as reader:
            seek_seq(reader, log.first)
            while self.rows < self._most_rows:
                try:
                    batch = reader.read_batch(min(_STEP, self._most_rows - self.rows))
                except DAMAGE as error:
                    # Whoever reads the slice will meet it, and say so.
                    if pass_damage(reader, error) is None:
                        return log.end
                    continue
                fitting = self._take(batch, log.end)
                if fitting:
                    reached = int(batch.seq[fitting - 1]) + 1
                if fitting < len(batch):
                    return log.end if int(batch.seq[fitting]) >= log.end else reached
                if not len(batch):
                    return log.end
        return reached

    def _take(self, batch: Batch, end: int) -> int:
        """How many records of the batch still fit; one does, if it is the first."""
        all_bytes = batch.payload_bytes + RECORD_HEADER_BYTES * len(batch)
        if self.bytes + all_bytes <= self._most_bytes and len(batch) and batch.seq[-1] < end:
            self.rows += len(batch)
            self.bytes += all_bytes
            return len(batch)
        for place in range(len(batch)):
            size = len(batch.payload(place)) + RECORD_HEADER_BYTES
            full = self.bytes + size > self._most_bytes and self.rows > 0
            if full or batch.seq[place] >= end:
                return place
            self.rows += 1
            self.bytes += size
        return len(batch)
