"""`tapewire export`: write a log, or a part of it, to a file for other tools."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapewire.cli.arguments import FromTimeOption, LogArgument, TypesOption
from tapewire.cli.output import (
    Exit,
    JsonOption,
    answer,
    console,
    fail,
    interruptible,
    needing,
    warn,
)
from tapewire.cli.times import parse_time
from tapewire.text import span_text

if TYPE_CHECKING:
    from tapewire.cli.export.columns import Columns
    from tapewire.cli.export.run import ExportDone
    from tapewire.cli.records import Messages

__all__ = ["export"]

# Formats, and their file extensions.
FORMATS = {
    "csv": (".csv",),
    "jsonl": (".jsonl", ".ndjson"),
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".feather", ".ipc"),
}

STANDARD_OUTPUT = "-"


def export(
    log: LogArgument,
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="File to write; - or none: text to standard output."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            "-o",
            "--output",
            metavar="FILE",
            help="Same as the argument FILE.",
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help=f"{', '.join(FORMATS)}; default: by the extension of FILE, or jsonl.",
        ),
    ] = None,
    from_seq: Annotated[
        int | None, typer.Option(min=0, metavar="SEQ", help="First sequence number.")
    ] = None,
    to_seq: Annotated[
        int | None, typer.Option(min=0, metavar="SEQ", help="Last sequence number.")
    ] = None,
    from_time: FromTimeOption = None,
    to_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="End before this time.")
    ] = None,
    types: TypesOption = None,
    decode: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="Only this message type; its fields become columns."),
    ] = None,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Report and skip damage, and continue.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a log, or a part of it, to a file: Parquet, CSV, JSONL or Arrow IPC.

    The file appears when it is complete; an interrupted export leaves none. A
    log that is being written is exported up to the end that it had at the start.
    """
    if file is not None and to is not None:
        fail(Exit.USAGE, "give FILE or --to, not both")
    to = to or file or STANDARD_OUTPUT
    chosen = format_ or ("jsonl" if to == STANDARD_OUTPUT else _format_of(to))
    if chosen not in FORMATS:
        fail(
            Exit.USAGE,
            f"unknown format: format={format_}" if format_ else f"unknown file extension: {to}",
            f"give --format with one of {', '.join(FORMATS)}",
        )
    if chosen in ("parquet", "arrow"):
        if to == STANDARD_OUTPUT:
            fail(Exit.USAGE, f"cannot write to standard output: format={chosen}", "give a FILE")
        with needing(
            "pyarrow",
            "Parquet and Arrow need pyarrow, which is not installed",
            "pip install 'tapewire[arrow]', or export CSV or JSONL",
        ):
            import pyarrow  # noqa: F401
    if from_seq is not None and from_time is not None:
        fail(Exit.USAGE, "give --from-seq or --from-time, not both")
    if to_seq is not None and to_time is not None:
        fail(Exit.USAGE, "give --to-seq or --to-time, not both")
    if to != STANDARD_OUTPUT and os.path.lexists(to):
        if not stat.S_ISREG(os.lstat(to).st_mode):
            fail(Exit.USAGE, f"not a regular file: {to}", "give another name")
        if not force:
            fail(Exit.USAGE, f"the file exists: {to}", "give --force to replace it")
    if decode and types:
        fail(Exit.USAGE, "give --decode or --type, not both", "--decode selects its type")
    since = None if from_time is None else parse_time(from_time)
    before = None if to_time is None else parse_time(to_time)
    started = time.monotonic()
    with interruptible():
        done = _write(
            log, to, chosen, (from_seq, since), (to_seq, before), types, decode, skip_damaged, force
        )
    if to != STANDARD_OUTPUT:  # there only the records are printed
        _print_summary(to, chosen, time.monotonic() - started, done, json)


def _write(
    log: str,
    to: str,
    format_: str,
    start: tuple[int | None, int | None],  # sequence number, or time; as is `stop`
    stop: tuple[int | None, int | None],
    types: list[str] | None,
    decode: str | None,
    skip_damaged: bool,
    force: bool,
) -> ExportDone:
    import tapewire as tw
    from tapewire.cli.export.files import make_sink, new_file, standard_output
    from tapewire.cli.export.run import ExportDamage, ExportDone, ExportPart, ExportProgress
    from tapewire.cli.log_walk import seek_near
    from tapewire.cli.records import Messages, Show

    messages = Messages(log, warn)
    chosen_types = [decode] if decode else types or []
    only = {messages.type_id_of(text) for text in chosen_types} or None
    columns = _columns(messages, decode)
    done = ExportDone()
    damage = ExportDamage(done, skip_damaged)
    with tw.open_log(log, only) as reader:
        from_seq, from_time_ns = start
        part = ExportPart.of(log, from_seq, *stop)
        if from_time_ns is not None:
            reader.seek_time(from_time_ns)
        elif from_seq is not None:
            seek_near(reader, from_seq)
        output = standard_output() if to == STANDARD_OUTPUT else new_file(to, force)
        with output as file, ExportProgress(part, done) as progress:
            # Closed in any case: a pyarrow writer must not outlive its file.
            with contextlib.closing(make_sink(format_, file, columns, messages, Show.AUTO)) as sink:
                for batch in part.batches(reader, damage):
                    for piece in columns.admit(batch, damage.refused):
                        sink.write(piece)
                        done.count(piece)
                    progress.update()
            if to != STANDARD_OUTPUT:
                done.file_bytes = file.tell()
    return done


def _format_of(name: str) -> str | None:
    """The format of a file's extension, or None.

    Example:
        >>> _format_of("trades.parquet"), _format_of("trades")
        ('parquet', None)
    """
    extension = Path(name).suffix.lower()
    return next((found for found, known in FORMATS.items() if extension in known), None)


def _columns(messages: Messages, decode: str | None) -> Columns:
    from tapewire.cli.export.columns import MessageColumns, RawColumns
    from tapewire.protocol.market import BOOK_EVENT

    if decode is None:
        return RawColumns()
    type_id = messages.type_id_of(decode)
    if type_id == BOOK_EVENT:
        from tapewire.cli.export.book import BookColumns

        return BookColumns()
    layouts = messages.layouts_of(type_id)
    if not layouts:
        fail(Exit.USAGE, f"the log's types.json has no message of this type: --decode {decode}")
    return MessageColumns(layouts)


def _print_summary(to: str, format_: str, seconds: float, done: ExportDone, as_json: bool) -> None:
    def show() -> None:
        numbers = "" if done.records == 0 else f" ({done.first_seq} to {done.last_seq})"
        console.print(
            f"{to}: {done.records:,} records{numbers}, {done.file_bytes:,} bytes of {format_}, "
            f"in {span_text(seconds)}",
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
        "file_bytes": done.file_bytes,
        "first_seq": done.first_seq,
        "last_seq": done.last_seq,
        "damaged": done.damaged,
        "seconds": round(seconds, 3),
    }
    answer(value, as_json, show)
