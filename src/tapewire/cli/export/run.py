"""The work of an export: which records, how far it has come, and what to do about damage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import numpy as np

import tapewire as tw
from tapewire.cli.export.columns import sizes_of
from tapewire.cli.output import Exit, errors, fail, warn
from tapewire.cli.walking import last_seq, walk
from tapewire.damage import DAMAGE, pass_damage, said
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
        """A batch has been written."""
        self.records += len(batch)
        self.payload_bytes += int(sizes_of(batch).sum())
        self.first_seq = int(batch.seq[0]) if self.first_seq is None else self.first_seq
        self.last_seq = int(batch.seq[-1])


class ExportDamage:
    """Ends the export with what is damaged or, asked to skip it, notes it and goes on."""

    def __init__(self, done: ExportDone, skip: bool) -> None:
        self._done = done
        self._skip = skip

    def passed(self, reader: Reader, error: TapewireError) -> bool:
        """Whether the reader stands behind the damage and can go on."""
        if not self._skip:
            self._give_up(error)
        told = pass_damage(reader, error)
        self._note(told.what if told else f"{said(error)} (nothing right behind it)")
        return told is not None

    def refused(self, error: CorruptRecord) -> None:
        """A record is right, but cannot be written as was asked."""
        if not self._skip:
            self._give_up(error)
        self._note(said(error))

    def _give_up(self, error: TapewireError) -> NoReturn:
        fail(Exit.DAMAGED, said(error), "--skip-damaged goes on behind it")

    def _note(self, line: str) -> None:
        self._done.damaged.append(line)
        warn(f"damaged: {line}")


@dataclass(frozen=True)
class ExportPart:
    """The part of a log to be exported."""

    start: int  # no record before this number
    stop: int | None  # no record beyond this number
    end: Any  # where the log ended when we began; None where a kind's positions have no order
    to_the_end: bool  # no other place to end at was asked for

    @classmethod
    def of(
        cls, log: str, from_seq: int | None, to_seq: int | None, to_time_ns: int | None
    ) -> ExportPart:
        """Finds where to end: what is appended from now on is not part of it."""
        with tw.open_log(log) as scout:
            rising = "seek_seq" in scout.caps and not _numbers_begin_again(scout)
            if not rising and (to_seq is not None or to_time_ns is not None):
                fail(
                    Exit.USAGE,
                    "the numbers of this log do not rise from its start: it has no place to end at",
                    "leave out --to-seq and --to-time",
                )
            stop = last_seq(scout) if rising else None
            if to_seq is not None:
                stop = to_seq if stop is None else min(stop, to_seq)
            if to_time_ns is not None and scout.seek_time(to_time_ns):
                beyond = next(walk(scout, _ignore), None)
                stop = stop if beyond is None else beyond.seq - 1  # -1: nothing at all
            scout.seek_end()
            end = scout.position
        to_the_end = to_seq is None and to_time_ns is None
        return cls(from_seq or 0, stop, end if isinstance(end, tuple) else None, to_the_end)

    def batches(self, reader: Reader, damage: ExportDamage) -> Iterator[Batch]:
        """From where the reader stands."""
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
                batch = batch[_place(batch, self.start, "left") :]
                if len(batch) == 0:
                    continue
            if self.stop is None or int(batch.seq[-1]) <= self.stop:
                yield batch
                continue
            kept = _place(batch, self.stop, "right") if self.stop >= 0 else 0
            if kept:
                yield batch[:kept]
            return
        if self.to_the_end:
            _check_end(reader, damage)


def _check_end(reader: Reader, damage: ExportDamage) -> None:
    """Report what is lost where the log seems to end. A record that came meanwhile is no part."""
    try:
        reader.read_batch(1)
    except DAMAGE as error:
        damage.passed(reader, error)


def _place(batch: Batch, seq: int, side: Literal["left", "right"]) -> int:
    """Where a number has its place in the batch."""
    # As the column's own type: beside a Python int numpy would compare in floats, which hold 2**53.
    return int(np.searchsorted(batch.seq, np.uint64(min(seq, 2**64 - 1)), side))


def _numbers_begin_again(reader: Reader) -> bool:
    """Whether numbers fall somewhere: then 0 is sought in the newest run, not at the start."""
    if not reader.seek_start() or next(walk(reader, _ignore), None) is None:
        return False
    first = reader.position
    reader.seek_seq(0)
    return next(walk(reader, _ignore), None) is not None and bool(reader.position != first)


def _ignore(line: str) -> None:
    """ExportDamage that a look around meets is told when the export itself comes there."""


class ExportProgress:
    """A bar on standard error, where that is a terminal."""

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
        """Show how far it is."""
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
