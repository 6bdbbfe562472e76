"""Stages rows in queues beside the archive, and merges these queues.

A task's rows of one log are a run: a separate queue, which no reader of the archive sees. If rows
of a log came out of order or from several tasks, it has several runs, which are merged by sequence
number.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tapewire as tw
from tapewire.archive.log_writer import LogWriter
from tapewire.archive.open_logs import OpenLogs
from tapewire.archive.record_columns import USER_FLAGS, RecordColumns, plain
from tapewire.archive.transaction.digest import Digest
from tapewire.config import WriterConfig
from tapewire.errors import InvalidOption, SequenceNotRising
from tapewire.files import sync
from tapewire.protocol import types_file
from tapewire.protocol.layout import MessageLayout

__all__ = ["StagedRun", "StagingOptions", "StagingTask", "batches", "columns_of", "merge"]

BUFFER_BYTES = 16 << 20  # of rows that are sorted by log and sequence number at a time
MAX_OPEN = 64  # writers open at a time: each has four descriptors and a mapping
MAX_RUNS = 32  # merged at a time: each is a mapping and a batch
_BATCH_BYTES = 4 << 20  # of one run, while merging


@dataclass(frozen=True)
class StagedRun:
    """A queue with rows of one log.

    Attributes:
        log: Path of the log below the archive.
        directory: Path of the queue below the job's directory.
        records: Number of records.
        first_seq: Sequence number of the first record.
        last_seq: Sequence number of the last record.
    """

    log: str
    directory: str
    records: int
    first_seq: int
    last_seq: int


@dataclass
class _OpenRun:
    log: str
    directory: Path
    records: int = 0
    first_seq: int = -1
    last_seq: int = -1
    level: int = 0  # how many times its rows were merged

    def closed(self, job: Path) -> StagedRun:
        directory = self.directory.relative_to(job).as_posix()
        return StagedRun(self.log, directory, self.records, self.first_seq, self.last_seq)


@dataclass
class _Log:
    current: _OpenRun
    done: list[_OpenRun] = field(default_factory=list)


@dataclass(frozen=True)
class StagingOptions:
    """How rows become staged queues.

    Attributes:
        segment_bytes: Segment size of the queues.
        sparse: Whether rows have sequence numbers.
        drop: Drop rows with a duplicate sequence number.
        digested: Whether to compute a digest of the rows.
        layout: Layout of the message in the rows; None for records of any type.
    """

    segment_bytes: int
    sparse: bool
    drop: bool = False
    digested: bool = False
    layout: MessageLayout | None = None


class StagingTask:
    """The runs of one attempt at one task; on an error its directory is removed.

    Memory: one buffer of rows and `MAX_OPEN` mapped segments.

    Args:
        job: Directory of the job, which exists.
        name: Name of this attempt's directory in it.
        split: Splits an Arrow table of rows: yields the path of each log below the archive and its
            rows, by sequence number or in the order given.
        options: How rows become queues.
    """

    def __init__(
        self,
        job: Path,
        name: str,
        split: Callable[[Any], Iterable[tuple[str, RecordColumns]]],
        options: StagingOptions,
    ) -> None:
        self._job = job
        self._split = split
        self._options = options
        self._config = _config(options.segment_bytes, options.sparse)
        self._layouts = [] if options.layout is None else [options.layout]
        self._buffer: list[Any] = []
        self._buffered = 0
        self._logs: dict[str, _Log] = {}
        self._writers: OpenLogs[Path, LogWriter] = OpenLogs(MAX_OPEN)
        self._made = 0
        self.records = 0
        self.digest = Digest()
        self.directory = job / name
        try:
            self.directory.mkdir(mode=0o700)
        except FileNotFoundError:
            raise InvalidOption(
                "a worker cannot see the directory of its job, or the job has ended",
                path=os.fspath(job),
                hint="write to a filesystem that the driver and every worker share",
            ) from None

    def __repr__(self) -> str:
        done = f"{self.records} rows, {len(self._logs)} logs"
        return f"<StagingTask {os.fspath(self.directory)!r} {done}>"

    def __enter__(self) -> StagingTask:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is not None:
            with contextlib.suppress(Exception):  # the first error is raised
                self.close()
            shutil.rmtree(self.directory, ignore_errors=True)
        else:
            self.close()

    def close(self) -> None:
        """Sync and close every queue. Closing twice is fine."""
        self._writers.close()

    def add(self, batch: Any) -> None:
        """Add the rows of an Arrow record batch."""
        self._buffer.append(batch)
        self._buffered += batch.nbytes
        if self._buffered >= BUFFER_BYTES:
            self._drain()

    def finish(self) -> list[StagedRun]:
        """End the task; returns its runs, durable, at most one for each log."""
        self._drain()
        runs = []
        for log in self._logs.values():
            if log.done:
                log.current = self._merged([*log.done, log.current])
                log.done = []
            runs.append(log.current.closed(self._job))
        self.close()
        sync(self.directory)
        return sorted(runs, key=lambda run: run.log)

    def _drain(self) -> None:
        batches, self._buffer, self._buffered = self._buffer, [], 0
        if not batches:
            return
        for log, columns in self._split(pa.Table.from_batches(batches)):
            self.records += len(columns)
            if self._options.digested:
                self.digest.add(Digest.of(log, columns))
            self._append(log, rising(log, columns, drop=self._options.drop))

    def _append(self, log: str, columns: RecordColumns) -> None:
        at = self._logs.get(log)
        if at is None:
            at = self._logs[log] = _Log(self._new_run(log))
        elif columns.seq is not None and columns.seq[0] <= at.current.last_seq:
            at.done.append(at.current)
            at.current = self._new_run(log)
            self._fold(at)
        run = at.current
        self._writer(run).append(columns, self._layouts)
        if run.first_seq < 0:
            run.first_seq = 0 if columns.seq is None else int(columns.seq[0])
        run.records += len(columns)
        run.last_seq = run.records - 1 if columns.seq is None else int(columns.seq[-1])

    def _fold(self, log: _Log) -> None:
        """Merge runs when there are many of one level: a row is merged once for each level.

        Only adjacent runs are merged: of rows with one sequence number the first one is kept.
        """
        while len(last := log.done[-MAX_RUNS:]) == MAX_RUNS and last[0].level == last[-1].level:
            log.done[-MAX_RUNS:] = [self._merged(last)]

    def _merged(self, runs: Sequence[_OpenRun]) -> _OpenRun:
        directories = [run.directory for run in runs]
        self._writers.close_logs(directories)
        made = merge(
            runs[0].log, directories, self._new_directory(), self._config, drop=self._options.drop
        )
        made.level = runs[0].level + 1
        for directory in directories:
            shutil.rmtree(directory)
        return made

    def _new_directory(self) -> Path:
        self._made += 1
        return self.directory / f"{self._made:06d}"

    def _new_run(self, log: str) -> _OpenRun:
        return _OpenRun(log, self._new_directory())

    def _writer(self, run: _OpenRun) -> LogWriter:
        return self._writers.get(run.directory, lambda: LogWriter(run.directory, self._config))


def rising(log: str, columns: RecordColumns, *, drop: bool) -> RecordColumns:
    """The rows of a log, sorted by sequence number, without duplicates.

    Raises:
        SequenceNotRising: A sequence number is duplicated, and `drop` is false.
    """
    if columns.seq is None or len(columns) < 2:
        return columns
    repeated = columns.seq[1:] == columns.seq[:-1]
    if not repeated.any():
        return columns
    if not drop:
        raise _duplicated(log, int(columns.seq[1:][repeated][0]))
    return columns.take(np.flatnonzero(np.concatenate(([True], ~repeated))))


def merge(
    log: str, runs: Sequence[Path], into: Path, config: WriterConfig, *, drop: bool
) -> _OpenRun:
    """Merge runs into one: by sequence number, or one after the other if rows have none.

    Raises:
        SequenceNotRising: Two runs have a sequence number in common, and `drop` is false.
    """
    runs = list(runs)
    spare: list[Path] = []
    count = 0
    while len(runs) > MAX_RUNS:  # merge adjacent runs: each row is copied once a round
        fewer: list[Path] = []
        for start in range(0, len(runs), MAX_RUNS):
            fewer.append(into.with_name(f"{into.name}-{count}"))
            merge(log, runs[start : start + MAX_RUNS], fewer[-1], config, drop=drop)
            count += 1
        for part in spare:
            shutil.rmtree(part)
        runs = spare = fewer
    made = _OpenRun(log, into)
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(tw.open_log(run)) for run in runs]
        with LogWriter(into, config) as writer:
            parts = _by_number(readers) if config.sparse else _in_turn(readers)
            for columns in parts:
                kept = rising(log, columns, drop=drop)
                writer.append(kept)
                if made.first_seq < 0:
                    made.first_seq = (
                        int(kept.seq[0]) if config.sparse and kept.seq is not None else 0
                    )
                made.records += len(kept)
            made.last_seq = writer.end_seq - 1
    types_file.merge(into, _layouts(runs))
    for part in spare:
        shutil.rmtree(part)
    return made


def _layouts(runs: Iterable[Path]) -> list[MessageLayout]:
    return [layout for run in runs for layout in types_file.read(run)]


def columns_of(batch: Any) -> RecordColumns:
    """A batch of a log as columns, with Arrow payloads that stay in the mapping."""
    return RecordColumns(
        batch.timestamp_ns,
        batch.type_id,
        batch.flags & USER_FLAGS,
        batch.to_arrow().column("payload"),
        batch.seq.astype(np.int64),
    )


def batches(reader: Any) -> Iterator[RecordColumns]:
    """The rest of a log from the reader's position, in pieces of some megabytes."""
    wanted = 1024
    while len(batch := reader.read_batch(wanted)):
        yield columns_of(batch)
        each = max(1, batch.payload_bytes // len(batch))
        wanted = max(64, min(65536, _BATCH_BYTES // each))


def _in_turn(readers: Iterable[Any]) -> Iterator[RecordColumns]:
    for reader in readers:
        for columns in batches(reader):
            columns.seq = None
            yield columns


def _by_number(readers: Iterable[Any]) -> Iterator[RecordColumns]:
    """Records of all readers by sequence number; equal ones in the order of the readers."""
    heads: list[tuple[RecordColumns, Iterator[RecordColumns]]] = []
    for reader in readers:
        more = batches(reader)
        head = next(more, None)
        if head is not None:
            heads.append((head, more))
    while heads:
        # Up to here every record of every reader is in a head.
        horizon = min(head.seqs()[-1] for head, _ in heads)
        parts: list[RecordColumns] = []
        left: list[tuple[RecordColumns, Iterator[RecordColumns]]] = []
        for head, more in heads:
            stop = int(np.searchsorted(head.seqs(), horizon, side="right"))
            if stop:
                parts.append(head.part(0, stop))
            rest: RecordColumns | None = head.part(stop, len(head))
            if not rest:
                rest = next(more, None)
            if rest:
                left.append((rest, more))
        heads = left
        yield parts[0] if len(parts) == 1 else _sorted(parts)


def _sorted(parts: Sequence[RecordColumns]) -> RecordColumns:
    joined = RecordColumns(
        np.concatenate([part.timestamp_ns for part in parts]),
        np.concatenate([part.type_id for part in parts]),
        np.concatenate([part.flags for part in parts]),
        pa.concat_arrays([plain(part.payload) for part in parts]),
        np.concatenate([part.seqs() for part in parts]),
    )
    return joined.take(np.argsort(joined.seqs(), kind="stable"))


def _config(segment_bytes: int, sparse: bool) -> WriterConfig:
    # Durable when closed, not before: an incomplete run is never used.
    return WriterConfig.archive(segment_bytes=segment_bytes, flush=None, sparse=sparse)


def _duplicated(log: str, seq: int) -> SequenceNotRising:
    return SequenceNotRising(
        f"duplicate sequence number: seq={seq}, log={log}",
        hint='drop the duplicates, or let the sink drop them: option("duplicates", "drop")',
    )
