"""`tapewire export`: a log, or a part of it, as a file for other tools."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import typer

import tapewire as tw
from tapewire.cli.export_columns import Columns, MessageColumns, RawColumns
from tapewire.cli.export_files import (
    FORMATS,
    format_of,
    make_sink,
    written_whole,
)
from tapewire.cli.output import Exit, JsonOption, answer, console, errors, fail, interruptible, warn
from tapewire.cli.records import Messages, Show
from tapewire.cli.times import parse_time, seconds_text
from tapewire.cli.walking import DAMAGE, last_seq, pass_damage
from tapewire.errors import CorruptRecord
from tapewire.log import Batch, Reader

__all__ = ["export"]

_BATCH = 65536


@dataclass
class _Done:
    """What an export has written so far."""

    records: int = 0
    payload_bytes: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    damaged: list[str] = field(default_factory=list)

    def count(self, batch: Batch) -> None:
        self.records += len(batch)
        self.payload_bytes += sum(len(record) for record in batch)
        self.first_seq = int(batch.seq[0]) if self.first_seq is None else self.first_seq
        self.last_seq = int(batch.seq[-1])


def export(
    log: Annotated[str, typer.Argument(metavar="LOG", help="A log: the folder of a queue.")],
    to: Annotated[str, typer.Option("--to", metavar="FILE", help="The file to write.")],
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help=f"{', '.join(FORMATS)}; left out, by the ending of FILE.",
        ),
    ] = None,
    from_seq: Annotated[
        int | None, typer.Option(min=0, metavar="SEQ", help="From this number on.")
    ] = None,
    to_seq: Annotated[
        int | None, typer.Option(min=0, metavar="SEQ", help="Up to this number, it included.")
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="From then on: ISO with a zone, nanoseconds, or -5m."),
    ] = None,
    to_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="What came before then.")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only this type: 4097, 0x1001 or a name."),
    ] = None,
    decode: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE", help="Only this message; its fields become the columns (types.json)."
        ),
    ] = None,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Report what is damaged and go on behind it.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE where it exists.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a log, or a part of it, into a file: Parquet, CSV, JSONL or Arrow IPC.

    The file appears under its name when it is complete; Ctrl-C leaves nothing.
    A log that is being written is exported as far as it reached at the beginning.
    """
    chosen = format_ or format_of(to)
    if chosen not in FORMATS:
        fail(
            Exit.USAGE,
            f"not a format: {format_}" if format_ else f"the ending of {to} is no known format",
            f"give --format with one of {', '.join(FORMATS)}",
        )
    if chosen in ("parquet", "arrow"):
        _need_pyarrow()
    if from_seq is not None and from_time is not None:
        fail(Exit.USAGE, "give --from-seq or --from-time, not both")
    if to_seq is not None and to_time is not None:
        fail(Exit.USAGE, "give --to-seq or --to-time, not both")
    if os.path.lexists(to) and not force:
        fail(Exit.USAGE, f"there is a file already: {to}", "--force replaces it")
    if decode and types:
        fail(Exit.USAGE, "give --decode or --type, not both", "--decode takes one type only")
    messages = Messages(log, warn)
    chosen_types = [decode] if decode else types or []
    only = {messages.type_id_of(text) for text in chosen_types} or None
    columns = _columns(messages, decode)
    done = _Done()
    started = time.monotonic()

    def damage(reader: Reader, error: Exception) -> bool:
        """Whether to go on behind it."""
        if not skip_damaged:
            raise error
        told = pass_damage(reader, error)
        note(told or f"{error} (nothing right behind it)")
        return told is not None

    def refused(error: CorruptRecord) -> None:
        if not skip_damaged:
            raise error
        note(str(error))

    def note(line: str) -> None:
        done.damaged.append(line)
        warn(f"damaged: {line}")

    end = None if to_time is None else parse_time(to_time)
    with tw.open_log(log, only) as reader, interruptible():
        part = _Part.of(log, to_seq, end)
        if from_time is not None:
            reader.seek_time(parse_time(from_time))
        elif from_seq is not None:
            reader.seek_seq(from_seq)
        with written_whole(to, force) as file, _Progress(part, done) as progress:
            # Closed in any case: a writer of pyarrow's must not outlive its file.
            with contextlib.closing(make_sink(chosen, file, columns, messages, Show.AUTO)) as sink:
                for batch in part.batches(reader, damage):
                    for piece in columns.admit(batch, refused):
                        sink.write(piece)
                        done.count(piece)
                    progress.update()
            size = file.tell()
    _conclude(to, chosen, size, time.monotonic() - started, done, json)


def _columns(messages: Messages, decode: str | None) -> Columns:
    if decode is None:
        return RawColumns()
    layouts = messages.layouts_of(messages.type_id_of(decode))
    if not layouts:
        fail(Exit.USAGE, f"no message of this type is in the log's types.json: --decode {decode}")
    return MessageColumns(layouts)


def _conclude(to: str, format_: str, size: int, seconds: float, done: _Done, as_json: bool) -> None:
    def show() -> None:
        numbers = "" if done.records == 0 else f" ({done.first_seq} to {done.last_seq})"
        console.print(
            f"{to}: {done.records:,} records{numbers}, {size:,} bytes of {format_}, "
            f"in {seconds_text(seconds)}",
            markup=False,
            soft_wrap=True,
        )
        if done.damaged:
            console.print(f"damaged places skipped: {len(done.damaged)}", soft_wrap=True)

    value: dict[str, Any] = {
        "file": to,
        "format": format_,
        "records": done.records,
        "payload_bytes": done.payload_bytes,
        "file_bytes": size,
        "first_seq": done.first_seq,
        "last_seq": done.last_seq,
        "damaged": done.damaged,
        "seconds": round(seconds, 3),
    }
    answer(value, as_json, show)


@dataclass(frozen=True)
class _Part:
    """The part of a log to be exported."""

    stop: int | None  # no record beyond this number
    end: Any  # where the log ended when we began; None where a kind's positions have no order

    @classmethod
    def of(cls, log: str, to_seq: int | None, to_time_ns: int | None) -> _Part:
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
            if stop is not None and to_seq is not None:
                stop = min(stop, to_seq)
            if stop is not None and to_time_ns is not None and scout.seek_time(to_time_ns):
                beyond = scout.next()
                stop = stop if beyond is None else beyond.seq - 1  # -1: nothing at all
            scout.seek_end()
            end = scout.position
        return cls(stop, end if isinstance(end, tuple) else None)

    def batches(
        self, reader: Reader, damage: Callable[[Reader, Exception], bool]
    ) -> Iterator[Batch]:
        """From where the reader stands; `damage` says whether to go on behind a damaged place."""
        while self.end is None or reader.position < self.end:
            try:
                batch = reader.read_batch(_BATCH)
            except DAMAGE as error:
                if damage(reader, error):
                    continue
                return
            if len(batch) == 0:
                return
            if self.stop is None or int(batch.seq[-1]) <= self.stop:
                yield batch
                continue
            kept = int(np.searchsorted(batch.seq, self.stop, "right")) if self.stop >= 0 else 0
            if kept:
                yield batch[:kept]
            return


def _numbers_begin_again(reader: Reader) -> bool:
    """Whether numbers fall somewhere: then 0 is sought in the newest run, not at the start."""
    if "seek_seq" not in reader.caps or not reader.seek_start():
        return False
    first = reader.next()
    reader.seek_seq(0)
    sought = reader.next()
    return first is not None and sought is not None and first.timestamp_ns != sought.timestamp_ns


class _Progress:
    """A bar on standard error, where that is a terminal."""

    def __init__(self, part: _Part, done: _Done) -> None:
        self._part = part
        self._done = done
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> _Progress:
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


def _need_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        fail(
            Exit.USAGE,
            "Parquet and Arrow need pyarrow, which is not installed",
            "pip install 'tapewire[arrow]', or export CSV or JSONL",
        )
