"""Writes chunks, instruments and gaps of an import into an archive, by day."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np

from tapewire.archive.open_logs import OpenLogs
from tapewire.book.gaps import Gap
from tapewire.bus.layout import ArchiveLayout
from tapewire.clock import DAY_NS, date_of
from tapewire.errors import InvalidMessage
from tapewire.ingest.import_log import ImportLog
from tapewire.ingest.importer import Chunk, LogSummary
from tapewire.ingest.job import Job
from tapewire.ingest.losses import Losses, begins_book
from tapewire.ingest.repeats import Repeats
from tapewire.ingest.running_book import RunningBook
from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.protocol.market import BOOK_EVENT

__all__ = ["ChunkWriter"]

MAX_OPEN = 128  # logs open at a time: each has some descriptors and a mapping
_Stream = tuple[str, str, str]


class ChunkWriter:
    """Writes the chunks of a job into the logs of their days.

    Attributes:
        losses: Takes what is missing; the books that it may have changed are marked.
        logs: Every log that the job has records in, by its path below the archive.
    """

    def __init__(self, archive: Path, job: Job) -> None:
        self._layout = ArchiveLayout(archive)
        self._job = job
        self._instruments = Instruments.load(archive)
        own = self._instruments.path
        if own is None or not os.path.samefile(os.path.dirname(own), archive):
            self._instruments = Instruments()  # these belong to an archive above this one
        self._books: dict[_Stream, RunningBook] = {}
        self._current: dict[_Stream, tuple[int, ImportLog]] = {}
        self._open: OpenLogs[str, ImportLog] = OpenLogs(MAX_OPEN)
        self._unsaved = False
        self.losses = Losses()
        self._repeats = Repeats(self.losses.forget)
        self.logs: dict[str, ImportLog] = {}

    def __enter__(self) -> ChunkWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def instrument(self, instrument: Instrument) -> Instrument:
        """Add it to the archive's instruments.json; returns it with the ids that it has there."""
        known = self._instruments.get(instrument.venue, instrument.symbol)
        if known is None:
            known = self._instruments.add(instrument)
            self._unsaved = True  # until a log has its first record
        return known

    def gap(self, gap: Gap) -> None:
        """Add a gap to the ledger of the current log of its stream."""
        stream = (gap.venue, gap.symbol, gap.stream)
        if stream not in self._current:
            self._log_of(stream, gap.timestamp_ns // DAY_NS, gap.timestamp_ns)
        _, log = self._current[stream]
        log.gaps += 1
        log.ledger.add(dataclasses.replace(gap, seq=log.next_seq))

    def write(self, chunk: Chunk) -> None:
        """Append the records of a chunk to the logs of their days, and the losses among them."""
        if len(chunk) == 0:
            return
        instrument = self._instruments.get(chunk.venue, chunk.symbol)
        for part in self.losses.marked(chunk, instrument):
            self._write(part)

    def end_books(self, cause: str) -> None:
        """Mark the ends of books where rows after their last records are lost."""
        for chunk in self.losses.ends(cause, self._instruments.get):
            self._write(chunk)
        for stream, chunk in self._repeats.rest():
            self._append(stream, self._current[stream][1], chunk)

    @property
    def left_out(self) -> collections.Counter[str]:
        """Kind → number of records that were not written because their log has them."""
        return self._repeats.left_out

    def _write(self, chunk: Chunk) -> None:
        times = np.asarray(chunk.timestamps_ns, dtype=np.int64)
        if times.min() < 0:
            raise InvalidMessage(
                f"times start at 1970: timestamp_ns={times.min()}, {chunk.venue}:{chunk.symbol}"
            )
        stream = (chunk.venue, chunk.symbol, chunk.stream)
        days = times // DAY_NS
        edges = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(times)]
        for start, stop in itertools.pairwise(edges):
            one_day = start == 0 and stop == len(times)
            part = chunk if one_day else chunk.part(start, stop)
            log = self._log_of(stream, int(days[start]), int(times[start]), part)
            for new in self._repeats.new(stream, log, part, self._books.get(stream)):
                self._append(stream, log, new)

    def _append(self, stream: _Stream, log: ImportLog, chunk: Chunk) -> None:
        times = np.asarray(chunk.timestamps_ns, dtype=np.int64)
        log.append_chunk(chunk.type_id, times, chunk.payloads)
        if stream in self._books:
            self._books[stream].catch_up(log)

    def finish(self) -> None:
        """Check that no log holds records after the job's last one.

        Raises:
            CorruptMetadata: A log holds more than the job wrote.
        """
        for log in self.logs.values():
            log.finish()

    def summaries(self) -> dict[str, LogSummary]:
        """What the job wrote into each log, in the order in which logs were opened."""
        return {name: log.summary() for name, log in self.logs.items()}

    def untrusted(self) -> dict[str, str]:
        """Books that are untrusted at the end, and why; by ``venue/symbol/stream``."""
        return {
            "/".join(stream): str(running.book.distrust_reason)
            for stream, running in self._books.items()
            if not running.book.trusted
        }

    def close(self) -> None:
        """Sync and close every log."""
        for book in self._books.values():
            book.close()
        self._open.close()

    def _log_of(
        self, stream: _Stream, day: int, timestamp_ns: int, chunk: Chunk | None = None
    ) -> ImportLog:
        """The log of a stream's day; a new one begins with the book, unless `chunk` does.

        So does the further part of an earlier one, if times went back over midnight: the records
        since its last one are in another log.
        """
        known = self._current.get(stream)
        if known is not None and known[0] == day:
            return self._opened(known[1])
        venue, symbol, name = stream
        path = self._layout.log(venue, symbol, date_of(day), name)
        key = path.relative_to(self._layout.root).as_posix()
        if known is not None:
            self._open.close_logs([known[1].log])
        if self._unsaved:
            self._instruments.save(self._layout.root)
            self._unsaved = False
        log = self.logs.get(key)
        if log is None:
            log = self._open.get(key, lambda: ImportLog(key, path, self._job))
            self.logs[key] = log
            self._begin(stream, log, timestamp_ns, chunk)
        elif name == "book" and stream in self._books:
            self._append_book(
                log, timestamp_ns, self._books[stream].snapshot_in_between(timestamp_ns)
            )
        self._current[stream] = (day, log)
        return self._opened(log)

    def _opened(self, log: ImportLog) -> ImportLog:
        """Count a log among the open ones: the next append opens it if it was closed."""
        return self._open.get(log.log, lambda: log)

    def _begin(
        self, stream: _Stream, log: ImportLog, timestamp_ns: int, chunk: Chunk | None
    ) -> None:
        venue, symbol, name = stream
        if name != "book" and not name.startswith("book_snapshot_"):
            return
        running = self._books.get(stream)
        payloads: list[bytes] | np.ndarray[Any, Any] = []
        if running is None:
            instrument = self._instruments.get(venue, symbol)
            if instrument is None:
                return
            running = self._books[stream] = RunningBook(instrument, name)
        elif name == "book" and (chunk is None or not begins_book(chunk)):
            payloads = running.snapshot(timestamp_ns)
        if log.continues and name == "book":
            self._repeats.begins(stream)
            running.begin(log)
            if running.numbered:
                return  # what is new continues the book that the log has
        self._append_book(log, timestamp_ns, payloads)

    def _append_book(
        self, log: ImportLog, timestamp_ns: int, payloads: list[bytes] | np.ndarray[Any, Any]
    ) -> None:
        if len(payloads):
            times = np.full(len(payloads), timestamp_ns)
            self._opened(log).append_chunk(BOOK_EVENT, times, payloads)
