"""The archive of an import: chunks into logs by day, instruments, gaps."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
from pathlib import Path

import numpy as np

from tapewire.book.gaps import Gap
from tapewire.bus.layout import ArchiveLayout
from tapewire.clock import DAY_NS, date_of
from tapewire.errors import InvalidMessage
from tapewire.ingest.books import RunningBook
from tapewire.ingest.job import Job
from tapewire.ingest.log_writer import LogWriter
from tapewire.ingest.model import Chunk, LogSummary
from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.protocol.market import BOOK_EVENT

__all__ = ["Target"]

MAX_OPEN = 128  # logs open at a time: each holds some descriptors and a mapping
_Stream = tuple[str, str, str]


class Target:
    """Where the records of a job go.

    Attributes:
        logs: Every log that the job has records in, by its path below the archive.
    """

    def __init__(self, archive: Path, job: Job) -> None:
        self._layout = ArchiveLayout(archive)
        self._job = job
        self._instruments = Instruments.load(archive)
        own = self._instruments.path
        if own is None or not os.path.samefile(os.path.dirname(own), archive):
            self._instruments = Instruments()  # those of an archive that this one lies in
        self._books: dict[_Stream, RunningBook] = {}
        self._current: dict[_Stream, tuple[int, LogWriter]] = {}
        self._open: collections.OrderedDict[str, LogWriter] = collections.OrderedDict()
        self._unsaved = False
        self.logs: dict[str, LogWriter] = {}

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def instrument(self, instrument: Instrument) -> Instrument:
        """Make it known in the archive's instruments.json; returns it with the ids it has there."""
        known = self._instruments.get(instrument.venue, instrument.symbol)
        if known is None:
            known = self._instruments.add(instrument)
            self._unsaved = True  # until a log has its first record
        return known

    def gap(self, gap: Gap) -> None:
        """Into the ledger of the log that its stream is at."""
        stream = (gap.venue, gap.symbol, gap.stream)
        if stream not in self._current:
            self._log_of(stream, gap.timestamp_ns // DAY_NS, gap.timestamp_ns)
        _, log = self._current[stream]
        log.gaps += 1
        log.ledger.add(dataclasses.replace(gap, seq=log.next_seq))

    def write(self, chunk: Chunk) -> None:
        """Append the records of a chunk to the logs of their days."""
        times = np.asarray(chunk.timestamps_ns, dtype=np.int64)
        if len(times) == 0:
            return
        if times.min() < 0:
            raise InvalidMessage(
                f"times start at 1970: timestamp_ns={times.min()}, {chunk.venue}:{chunk.symbol}"
            )
        stream = (chunk.venue, chunk.symbol, chunk.stream)
        days = times // DAY_NS
        edges = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(times)]
        for start, stop in itertools.pairwise(edges):
            log = self._log_of(stream, int(days[start]), int(times[start]))
            whole = start == 0 and stop == len(times)
            rows = chunk.payloads if whole else chunk.payloads[start:stop]
            log.append(chunk.type_id, times[start:stop], rows)
            if stream in self._books:
                self._books[stream].catch_up(log)

    def finish(self) -> None:
        """No chunk follows.

        Raises:
            CorruptMetadata: A log holds more than the job wrote.
        """
        for log in self.logs.values():
            log.finish()

    def summaries(self) -> dict[str, LogSummary]:
        """What is in each log, in the order in which they were met."""
        return {name: log.summary() for name, log in self.logs.items()}

    def untrusted(self) -> dict[str, str]:
        """Books that are not right at the end, and why; by ``venue/symbol/stream``."""
        return {
            "/".join(stream): str(running.book.distrust_reason)
            for stream, running in self._books.items()
            if not running.book.trusted
        }

    def close(self) -> None:
        """Make every log durable."""
        for book in self._books.values():
            book.close()
        while self._open:
            self._open.popitem()[1].close()

    def _log_of(self, stream: _Stream, day: int, timestamp_ns: int) -> LogWriter:
        """The log of a stream's day; a new one begins with the book as it stands."""
        known = self._current.get(stream)
        if known is not None and known[0] == day:
            self._keep(known[1])
            return known[1]
        venue, symbol, name = stream
        date = date_of(day)
        folder = self._layout.log(venue, symbol, date, name)
        path = folder.relative_to(self._layout.root).as_posix()
        if known is not None:
            self._open.pop(known[1].log, None)
            known[1].close()
        if self._unsaved:
            self._instruments.save(self._layout.root)
            self._unsaved = False
        log = self.logs.get(path)
        if log is None:
            log = self.logs[path] = LogWriter(path, folder, self._job)
            self._begin(stream, log, timestamp_ns)
        self._keep(log)
        self._current[stream] = (day, log)
        return log

    def _begin(self, stream: _Stream, log: LogWriter, timestamp_ns: int) -> None:
        venue, symbol, name = stream
        if name != "book":
            return
        running = self._books.get(stream)
        if running is not None:
            payloads = running.snapshot(timestamp_ns)
            if payloads:
                log.append(BOOK_EVENT, np.full(len(payloads), timestamp_ns), payloads)
            return
        instrument = self._instruments.get(venue, symbol)
        if instrument is not None and instrument.book_mode == "l2":
            self._books[stream] = RunningBook(instrument, name)

    def _keep(self, log: LogWriter) -> None:
        self._open[log.log] = log
        self._open.move_to_end(log.log)
        while len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)[1].close()
