"""`tapewire tail`: the last records of a log, those from a place on, and those that come."""

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
from tapewire.cli.output import Exit, JsonOption, console, fail, warn
from tapewire.cli.records import Messages, Show, fields_text, hexdump, record_line
from tapewire.cli.times import iso, parse_time
from tapewire.cli.walking import last_records, seek_near, walk
from tapewire.log import Reader, Record

__all__ = ["tail"]

HEADINGS = f"{'seq':>14}  {'time (UTC)':<30}  {'type':<6}  {'flags':<6}  {'size':>8}"


def tail(
    log: Annotated[str, typer.Argument(metavar="LOG", help="A log: the folder of a queue.")],
    count: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--lines",
            min=0,
            metavar="N",
            help="The last N records (10); with --from-…, the first N from there (all).",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Wait for more; Ctrl-C ends, exit code 0.")
    ] = False,
    from_seq: Annotated[
        int | None, typer.Option(min=0, metavar="SEQ", help="From this number on.")
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="From then on: ISO with a zone, nanoseconds, or -5m."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only this type: 8193, 0x2001 or a name."),
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only what this finds in the message or its bytes."),
    ] = None,
    hex_: Annotated[bool, typer.Option("--hex", help="Payloads as bytes, decoded or not.")] = False,
    decode: Annotated[
        bool, typer.Option("--decode", help="Payloads as messages; no bytes of others.")
    ] = False,
    headers: Annotated[bool, typer.Option("--headers", help="No payloads.")] = False,
    json: JsonOption = False,
) -> None:
    """Show the last records of a log, and with -f those that come.

    Follows across rolls, and across a writer's end and return.
    What is damaged is told on standard error and skipped; exit code 3, unless -f.
    """
    if from_seq is not None and from_time is not None:
        fail(Exit.USAGE, "give --from-seq or --from-time, not both")
    if hex_ + decode + headers > 1:
        fail(Exit.USAGE, "give one of --hex, --decode and --headers")
    show = Show.HEX if hex_ else Show.DECODE if decode else Show.HEADERS if headers else Show.AUTO
    messages = Messages(log, warn)
    only = {messages.type_id_of(text) for text in types} if types else None
    pick = _Pick(messages, grep)
    since = None if from_time is None else parse_time(from_time)
    printer = _Printer(sys.stdout, messages, show, json)
    still_there = _still_there(log)  # before it is opened: one that comes later is another
    with tw.open_log(log, only) as reader:
        if follow and "wait" not in reader.caps:
            fail(Exit.USAGE, f"a log of this kind does not grow: kind={reader.kind}", "omit -f")
        damage = _Damage(printer.flush)

        def idle() -> None:
            printer.flush()
            still_there()

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
            return  # the way to end it
    if damage.met and not follow:
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
        # What a follower was promised may lie beyond the end: records before it still come first.
        reached = reached or (record.seq >= (from_seq or 0) and record.timestamp_ns >= (since or 0))
        if not reached or not wanted(record):
            continue
        yield record
        if left is not None:
            left -= 1
            if left == 0:
                return


def _still_there(log: str) -> Callable[[], None]:
    """What ends the command when the log was removed or replaced: nothing will come."""

    def identity() -> tuple[int, int] | None:
        # Of a queue, the file that the reader has mapped: its number is given to no other
        # meanwhile. The folder may stay, or another get its number. Of other logs, themselves.
        for path in (os.path.join(log, "control.meta"), log):
            with contextlib.suppress(OSError):
                found = os.stat(path)
                return found.st_dev, found.st_ino
        return None

    before = identity()

    def check() -> None:
        if identity() != before:
            fail(Exit.NOT_FOUND, f"the log was removed while it was followed: {log}")

    return check


class _Damage:
    """Takes what is damaged: on standard error at once, behind what was shown so far."""

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before
        self.met = False

    def __call__(self, line: str) -> None:
        self.met = True
        self._before()
        warn(f"damaged: {line}")


class _Pick:
    """Whether a record is wanted by `--grep`; its fields are kept from asking to showing."""

    def __init__(self, messages: Messages, grep: str | None) -> None:
        self._messages = messages
        self._text: re.Pattern[str] | None = None
        self._bytes: re.Pattern[bytes] | None = None
        if grep is not None:
            try:
                self._text, self._bytes = re.compile(grep), re.compile(os.fsencode(grep))
            except re.error as error:
                fail(Exit.USAGE, f"not a regular expression: {error}: --grep {grep}")

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
    """Records on standard output: aligned lines for people, or one JSON object a line."""

    def __init__(self, out: TextIO, messages: Messages, show: Show, as_json: bool) -> None:
        self._out = out
        self._messages = messages
        self._show = show
        self._json = as_json
        # Into a file or a pipe a message is one line, for grep and the like.
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
        # A decoded message begins with its name anyway.
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
            return ("not decoded: types.json has no message of this type and size",)
        return (f"{self._dim}{line}{self._plain}" for line in hexdump(record.payload))
