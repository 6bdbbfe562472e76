"""The parts of an export: the range of records, progress, and damage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import numpy as np

import tapewire as tw
from tapewire.cli.export.columns import sizes_of
from tapewire.cli.log_walk import last_seq, walk
from tapewire.cli.output import Exit, errors, fail, warn
from tapewire.damage import DAMAGE, message_of, skip_damage
from tapewire.errors import CorruptRecord, TapewireError
from tapewire.log import Batch, Reader

__all__ = ["ExportDamage", "ExportDone", "ExportPart", "ExportProgress"]

_BATCH = 16384


@dataclass
class ExportDone:
    """What an export has written so far."""

    records: int = 0
    payload_bytes: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    file_bytes: int = 0
    damaged: list[str] = field(default_factory=list)

    def count(self, batch: Batch) -> None:
        """Add a batch that was written."""
        self.records += len(batch)
        self.payload_bytes += int(sizes_of(batch).sum())
        self.first_seq = int(batch.seq[0]) if self.first_seq is None else self.first_seq
        self.last_seq = int(batch.seq[-1])


class ExportDamage:
    """Ends the export at damage, or records and skips it if `skip` is set."""

    def __init__(self, done: ExportDone, skip: bool) -> None:
        self._done = done
        self._skip = skip

    def passed(self, reader: Reader, error: TapewireError) -> bool:
        """Move the reader past the damage; return whether it can continue."""
        if not self._skip:
            self._give_up(error)
        passed = skip_damage(reader, error)
        self._note(passed.what if passed else f"{message_of(error)} (no valid record follows)")
        return passed is not None

    def refused(self, error: CorruptRecord) -> None:
        """Handle a record that is valid, but cannot be written as requested."""
        if not self._skip:
            self._give_up(error)
        self._note(message_of(error))

    def _give_up(self, error: TapewireError) -> NoReturn:
        fail(Exit.DAMAGED, message_of(error), "give --skip-damaged to skip it and continue")

    def _note(self, line: str) -> None:
        self._done.damaged.append(line)
        warn(f"damaged: {line}")


@dataclass(frozen=True)
class ExportPart:
    """The range of a log to export."""

    start: int  # first sequence number
    stop: int | None  # last sequence number
    end: Any  # end of the log at the start; None for a kind of log whose positions have no order
    to_the_end: bool  # the user gave no end

    @classmethod
    def of(
        cls, log: str, from_seq: int | None, to_seq: int | None, to_time_ns: int | None
    ) -> ExportPart:
        """Find the range; records that are appended from now on are not part of it."""
        with tw.open_log(log) as reader:
            rising = "seek_seq" in reader.caps and not _seq_restarts(reader)
            if not rising and (to_seq is not None or to_time_ns is not None):
                fail(
                    Exit.USAGE,
                    f"cannot select an end: sequence numbers do not rise from the start: log={log}",
                    "leave out --to-seq and --to-time",
                )
            stop = last_seq(reader) if rising else None
            if to_seq is not None:
                stop = to_seq if stop is None else min(stop, to_seq)
            if to_time_ns is not None and reader.seek_time(to_time_ns):
                beyond = next(walk(reader, _ignore), None)
                stop = stop if beyond is None else beyond.seq - 1  # may be -1: no records
            reader.seek_end()
            end = reader.position
        to_the_end = to_seq is None and to_time_ns is None
        return cls(from_seq or 0, stop, end if isinstance(end, tuple) else None, to_the_end)

    def batches(self, reader: Reader, damage: ExportDamage) -> Iterator[Batch]:
        """The batches of the range, from the reader's position on."""
        while self.end is None or reader.position < self.end:
            try:
                batch = reader.read_batch(_BATCH)
            except DAMAGE as error:
                if damage.passed(reader, error):
                    continue
                return
            if len(batch) == 0:
                return
            if int(batch.seq[0]) < self.start:
                batch = batch[_index_of(batch, self.start, "left") :]
                if len(batch) == 0:
                    continue
            if self.stop is None or int(batch.seq[-1]) <= self.stop:
                yield batch
                continue
            kept = _index_of(batch, self.stop, "right") if self.stop >= 0 else 0
            if kept:
                yield batch[:kept]
            return
        if self.to_the_end:
            _check_end(reader, damage)


def _check_end(reader: Reader, damage: ExportDamage) -> None:
    """Report damage at the end of the log; ignore a record that was appended meanwhile."""
    try:
        reader.read_batch(1)
    except DAMAGE as error:
        damage.passed(reader, error)


def _index_of(batch: Batch, seq: int, side: Literal["left", "right"]) -> int:
    """The index of a sequence number in the batch, as `numpy.searchsorted` gives it."""
    # As uint64: with a Python int, numpy would compare as floats, which are exact up to 2**53 only.
    return int(np.searchsorted(batch.seq, np.uint64(min(seq, 2**64 - 1)), side))


def _seq_restarts(reader: Reader) -> bool:
    """Whether sequence numbers start again in the log: then seeking 0 does not find its start."""
    if not reader.seek_start() or next(walk(reader, _ignore), None) is None:
        return False
    first = reader.position
    reader.seek_seq(0)
    return next(walk(reader, _ignore), None) is not None and bool(reader.position != first)


def _ignore(line: str) -> None:
    """Ignore damage while finding the range: the export reports it when it gets there."""


class ExportProgress:
    """A progress bar on standard error, if that is a terminal."""

    def __init__(self, part: ExportPart, done: ExportDone) -> None:
        self._part = part
        self._done = done
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> ExportProgress:
        if errors.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                BarColumn(bar_width=20),
                TextColumn("{task.percentage:>3.0f} %"),
                TextColumn("{task.fields[records]:>14,} records"),
                TextColumn("{task.fields[megabytes]:>9,.1f} MB"),
                TextColumn("{task.fields[rate]:>10,.0f}/s"),
                TimeRemainingColumn(compact=True),
                console=errors,
                transient=True,
            )
            self._task = self._bar.add_task("", total=None, records=0, megabytes=0.0, rate=0.0)
            self._bar.start()
            self._began = time.monotonic()
        return self

    def update(self) -> None:
        """Show the progress."""
        if self._bar is None:
            return
        done, part = self._done, self._part
        total = at = None
        if part.stop is not None and done.first_seq is not None and done.last_seq is not None:
            total, at = part.stop - done.first_seq + 1, done.last_seq - done.first_seq + 1
        self._bar.update(
            self._task,
            total=total,
            completed=at or 0,
            records=done.records,
            megabytes=done.payload_bytes / 1e6,
            rate=done.records / max(time.monotonic() - self._began, 1e-9),
        )

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()
