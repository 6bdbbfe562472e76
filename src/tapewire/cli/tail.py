"""`tapewire tail`: the last records of a log, those from a position on, and new ones."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, TextIO

import typer

import tapewire as tw
from tapewire.cli.arguments import FollowOption, FromTimeOption, LogArgument, TypesOption
from tapewire.cli.log_walk import last_records, seek_near, walk
from tapewire.cli.output import Exit, JsonOption, console, fail, warn
from tapewire.cli.records import Messages, Show, fields_text, hexdump, record_line
from tapewire.cli.times import iso, parse_time
from tapewire.log import Reader, Record

__all__ = ["tail"]

HEADINGS = f"{'seq':>14}  {'time (UTC)':<30}  {'type':<6}  {'flags':<6}  {'size':>8}"


def tail(
    log: LogArgument,
    count: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--lines",
            min=0,
            metavar="N",
            help="The last N records (default: 10); with --from-…, the first N from there "
            "(default: all).",
            show_default=False,
        ),
    ] = None,
    follow: FollowOption = False,
    from_seq: Annotated[
        int | None, typer.Option(min=0, metavar="SEQ", help="Start at this sequence number.")
    ] = None,
    from_time: FromTimeOption = None,
    types: TypesOption = None,
    grep: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="Only records whose decoded message, or whose bytes, match this.",
        ),
    ] = None,
    hex_: Annotated[bool, typer.Option("--hex", help="Show all payloads as bytes.")] = False,
    decode: Annotated[
        bool, typer.Option("--decode", help="Show decoded messages only; no bytes.")
    ] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Do not show payloads.")] = False,
    json: JsonOption = False,
) -> None:
    """Show the last records of a log; with -f, also new ones.

    Following continues across rolls, and after the writer was closed or killed.
    Damage is reported on standard error and skipped; the exit code is then 3,
    unless -f is given.
    """
    if from_seq is not None and from_time is not None:
        fail(Exit.USAGE, "give --from-seq or --from-time, not both")
    if hex_ + decode + headers > 1:
        fail(Exit.USAGE, "give one of --hex, --decode and --headers")
    show = Show.HEX if hex_ else Show.DECODE if decode else Show.HEADERS if headers else Show.AUTO
    messages = Messages(log, warn)
    only = {messages.type_id_of(text) for text in types} if types else None
    pick = _Filter(messages, grep)
    since = None if from_time is None else parse_time(from_time)
    printer = _Printer(sys.stdout, messages, show, json)
    check_exists = _existence_check(log)  # before the log is opened
    with tw.open_log(log, only) as reader:
        if follow and "wait" not in reader.caps:
            fail(
                Exit.USAGE, f"cannot follow a log of this kind: kind={reader.kind}", "leave out -f"
            )
        damage = _DamageReport(printer.flush)

        def idle() -> None:
            printer.flush()
            check_exists()

        chosen = _chosen(reader, count, follow, from_seq, since, pick.wanted, idle, damage)
        try:
            printer.headings()
            for record in chosen:
                printer.show(record, pick.fields_of(record))
            printer.flush()
        except KeyboardInterrupt:
            printer.flush()
            if not follow:
                raise SystemExit(130) from None
            return
    if damage.found and not follow:
        raise SystemExit(int(Exit.DAMAGED))


def _chosen(
    reader: Reader,
    count: int | None,
    follow: bool,
    from_seq: int | None,
    since: int | None,
    wanted: Callable[[Record], bool],
    idle: Callable[[], None],
    report: Callable[[str], None],
) -> Iterator[Record]:
    """The records to show, in order."""
    from_there = from_seq is not None or since is not None
    if not from_there:
        yield from last_records(reader, 10 if count is None else count, wanted, report)
        if not follow:
            return
        count = None
    elif from_seq is not None:
        seek_near(reader, from_seq)
    elif since is not None:
        reader.seek_time(since)
    reached = not from_there
    left = count
    if left == 0:
        return
    for record in walk(reader, report, follow=follow, idle=idle):
        # If the position is past the end, a follower first receives records before it.
        reached = reached or (record.seq >= (from_seq or 0) and record.timestamp_ns >= (since or 0))
        if not reached or not wanted(record):
            continue
        yield record
        if left is not None:
            left -= 1
            if left == 0:
                return


def _existence_check(log: str) -> Callable[[], None]:
    """A function that ends the command if the log has been removed or replaced since."""

    def identity() -> tuple[int, int] | None:
        # Of a queue, control.meta: the reader maps it, so its inode number is not reused
        # meanwhile, as that of the directory might be. Of other logs, the path itself.
        for path in (os.path.join(log, "control.meta"), log):
            with contextlib.suppress(OSError):
                found = os.stat(path)
                return found.st_dev, found.st_ino
        return None

    before = identity()

    def check() -> None:
        if identity() != before:
            fail(Exit.NOT_FOUND, f"the log was removed while being followed: {log}")

    return check


class _DamageReport:
    """Prints damage on standard error, after flushing the records shown so far."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self.found = False

    def __call__(self, line: str) -> None:
        self.found = True
        self._flush()
        warn(f"damaged: {line}")


class _Filter:
    """Decodes records, and selects those that `--grep` matches."""

    def __init__(self, messages: Messages, grep: str | None) -> None:
        self._messages = messages
        self._text: re.Pattern[str] | None = None
        self._bytes: re.Pattern[bytes] | None = None
        if grep is not None:
            try:
                self._text, self._bytes = re.compile(grep), re.compile(os.fsencode(grep))
            except re.error as error:
                fail(Exit.USAGE, f"invalid regular expression: --grep {grep}: {error}")

    def fields_of(self, record: Record) -> dict[str, Any] | None:
        return self._messages.fields_of(record)

    def wanted(self, record: Record) -> bool:
        if self._text is None or self._bytes is None:
            return True
        fields = self.fields_of(record)
        if fields is None:
            return self._bytes.search(record.payload) is not None
        name = self._messages.name_for(record) or ""
        return self._text.search(fields_text(name, fields)) is not None


class _Printer:
    """Writes records to standard output: as aligned lines, or as one JSON object per line."""

    def __init__(self, out: TextIO, messages: Messages, show: Show, as_json: bool) -> None:
        self._out = out
        self._messages = messages
        self._show = show
        self._json = as_json
        # In a file or a pipe a message is one line, so that grep finds all of it.
        self._width = console.width - 4 if console.is_terminal else sys.maxsize
        styled = console.is_terminal and not console.no_color
        self._bold, self._dim, self._plain = (
            ("\x1b[1m", "\x1b[2m", "\x1b[0m") if styled else ("", "", "")
        )

    def headings(self) -> None:
        if not self._json:
            self._out.write(f"{self._dim}{HEADINGS}{self._plain}\n")

    def flush(self) -> None:
        self._out.flush()

    def show(self, record: Record, fields: dict[str, Any] | None) -> None:
        if self._json:
            self._out.write(record_line(record, self._messages, self._show, fields))
            return
        name = self._messages.name_for(record)
        time = iso(record.timestamp_ns).replace("T", " ")
        # A decoded message starts with its name.
        named = name and (fields is None or self._show in (Show.HEX, Show.HEADERS))
        self._out.write(
            f"{self._bold}{record.seq:>14}{self._plain}  {time}  0x{record.type_id:04X}  "
            f"0x{record.flags:04X}  {len(record):>8}{f'  {name}' if named else ''}\n"
        )
        for line in self._payload(record, name, fields):
            self._out.write(f"    {line}\n")

    def _payload(
        self, record: Record, name: str | None, fields: dict[str, Any] | None
    ) -> Iterable[str]:
        if self._show is Show.HEADERS:
            return ()
        if self._show is not Show.HEX and fields is not None:
            text = fields_text(name or "", fields)
            return textwrap.wrap(
                text,
                self._width,
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        if self._show is Show.DECODE:
            return ("cannot decode: types.json has no message of this type and size",)
        return (f"{self._dim}{line}{self._plain}" for line in hexdump(record.payload))
