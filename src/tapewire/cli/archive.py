"""`tapewire archive tap|ls|verify`: archive live queues; list and verify an archive."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapewire.cli.arguments import ArchiveOption
from tapewire.cli.output import (
    Exit,
    JsonOption,
    answer,
    console,
    errors,
    interruptible,
    print_json,
    say,
    signals_call,
    warn,
)
from tapewire.cli.terminal_text import print_columns
from tapewire.cli.times import iso
from tapewire.cli.verify import exit_by, say_speed
from tapewire.text import bytes_text, count_text, counted

if TYPE_CHECKING:
    from tapewire.archive import ArchivedLog, ArchiveVerdict, TapReport

__all__ = ["archive"]

archive = typer.Typer(
    no_args_is_help=True,
    help="An archive of logs by venue, symbol, day and stream: fill it, list it, verify it.",
)

ArchiveArgument = Annotated[
    Path, typer.Argument(metavar="ARCHIVE", help="Directory of the archive.")
]


@archive.command()
def tap(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="SOURCES", help="Directories of queues, or the root of a bus."),
    ],
    to: ArchiveOption,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the pinned reader in each queue.")
    ] = "archive-tap",
    venue: Annotated[
        str | None, typer.Option(metavar="VENUE", help="Venue of a queue outside a bus.")
    ] = None,
    symbol: Annotated[
        str | None,
        typer.Option(
            metavar="SYMBOL",
            help="Symbol of a queue outside a bus; without it, all symbols of the venue.",
        ),
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(
            metavar="STREAM", help="Stream of a queue outside a bus: book, trades and so on."
        ),
    ] = None,
    flush_seconds: Annotated[
        float, typer.Option(min=0, metavar="S", help="Sync and commit every S seconds.")
    ] = 1.0,
    flush_bytes: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Sync and commit every N bytes of payload."),
    ] = 64 << 20,
    segment_bytes: Annotated[
        int | None,
        typer.Option(min=4096, metavar="N", help="Segment size of new logs, bytes."),
    ] = None,
    max_open: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Logs that may be open at a time; default: two per queue."
        ),
    ] = None,
    close_after: Annotated[
        float,
        typer.Option(
            min=0, metavar="S", help="Close a log that has received nothing for S seconds."
        ),
    ] = 60.0,
    raise_when_full: Annotated[
        bool,
        typer.Option(
            "--raise-when-full", help="Exit when the disk is full, instead of waiting for space."
        ),
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Stop at the end of the queues; do not follow.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Follow live queues and archive them: a log per symbol, UTC day and stream.

    On a bus, the queues of streams/raw and streams/clean are followed, new ones
    included. Records keep sequence number, time, type, flags and payload. A
    queue's position is committed after its records are durable in the archive,
    so a tap that was killed loses and duplicates nothing when it runs again.
    While no tap runs, live queues keep the records that it has not read.

    Ctrl-C and SIGTERM end it with exit code 0, or 1 after a gap, a damaged
    record, or a queue that cannot be archived.
    """
    from tapewire.archive import Flush
    from tapewire.archive import tap as tap_into

    tapping = tap_into(
        sources,
        to,
        name=name,
        venue=venue,
        symbol=symbol,
        stream=stream,
        flush=Flush(flush_bytes, flush_seconds),
        segment_bytes=segment_bytes,
        max_open=max_open,
        close_after=close_after,
        on_disk_full="raise" if raise_when_full else "wait",
    )
    shown = _TapProgress(as_json)
    _allow_many_files()
    with signals_call(tapping.stop):
        try:
            report = tapping.run(follow=not once, on_look=shown)
        finally:
            shown.warn(tapping.report)
    if as_json:
        print_json({"what": "done", **report.to_dict()})
    else:
        say(f"done   {report}, {bytes_text(report.bytes)}")
    if not report.clean:
        raise typer.Exit(int(Exit.FINDINGS))


def _allow_many_files() -> None:
    """Raise the limit of open files: a queue takes two descriptors, an open log four."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _TapProgress:
    """Prints a line when there are new records, at most every ten seconds, and each finding."""

    SECONDS = 10.0

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._warned = 0
        self._records = 0
        self._waiting = False
        self._next = time.monotonic() + (0.0 if errors.is_terminal else self.SECONDS)

    def warn(self, report: TapReport) -> None:
        """Print the new findings."""
        for finding in report.findings[self._warned :]:
            warn(finding)
        self._warned = len(report.findings)

    def __call__(self, report: TapReport) -> None:
        self.warn(report)
        if report.waiting is not None and not self._waiting:
            warn(f"the archive's disk is full, waiting for space: {report.waiting}")
        self._waiting = report.waiting is not None
        if report.records == self._records or time.monotonic() < self._next:
            return
        self._records = report.records
        self._next = time.monotonic() + self.SECONDS
        if self._json:
            print_json({"what": "tapping", **report.to_dict()})
        else:
            say(f"taps   {report}, {bytes_text(report.bytes)}")


@archive.command()
def ls(root: ArchiveArgument, as_json: JsonOption = False) -> None:
    """List the logs of an archive: sequence numbers, last time, size, gaps."""
    from tapewire.archive import ls as logs_of

    logs = logs_of(root)
    total = sum(log.bytes for log in logs)

    def show() -> None:
        if logs:
            head = ["log", "first", "last", "last time", "size", "gaps", ""]
            print_columns(console, head, [_row(log) for log in logs], right=(1, 2, 4, 5))
        days = len({log.date for log in logs})
        what = f"{counted(len(logs), 'log')}, {counted(days, 'day')}"
        say(f"{what}, {bytes_text(total)} on disk")
        for log in logs:
            if log.problem:
                warn(f"{log.log}: {log.problem}")

    value = {"archive": str(root), "bytes": total, "logs": [log.to_dict() for log in logs]}
    answer(value, as_json, show)
    if any(log.problem for log in logs):
        raise typer.Exit(int(Exit.FINDINGS))


def _row(log: ArchivedLog) -> list[str]:
    return [
        log.log,
        "" if log.first_seq is None else count_text(log.first_seq),
        "" if log.last_seq is None else count_text(log.last_seq),
        "" if log.last_timestamp_ns is None else iso(log.last_timestamp_ns),
        bytes_text(log.bytes),
        count_text(log.gaps),
        "open" if log.open else "",
    ]


@archive.command()
def verify(root: ArchiveArgument, as_json: JsonOption = False) -> None:
    """Verify an archive: every checksum, every sequence number, the day of every record.

    Changes nothing. Gaps in the ledgers are counted, not reported as damage:
    those records were missing before they could be archived.

    Exits 3 if a log is damaged or has a record of another day, 1 if only other
    data (a seek index, the counters, a line of a gap ledger) is invalid.
    """
    from tapewire.archive import verify as verify_all

    began = time.monotonic()
    with interruptible():
        verdict = verify_all(root, _progress())
    seconds = time.monotonic() - began
    answer(_to_dict(verdict, seconds), as_json, lambda: _show(verdict))
    if not as_json:
        say_speed(verdict, seconds)
    exit_by(verdict)


def _progress() -> Callable[[str, ArchiveVerdict], None] | None:
    """A function that shows the log being read on one line of a terminal."""
    if not errors.is_terminal:
        return None

    next_line = 0.0

    def show(name: str, verdict: ArchiveVerdict) -> None:
        nonlocal next_line
        if time.monotonic() < next_line:
            return  # adding up thousands of logs at each of them would take too long
        next_line = time.monotonic() + 0.1
        line = f"{_so_far(verdict)}, {name}"
        errors.print(line[: errors.width - 1].ljust(errors.width - 1), end="\r", markup=False)

    return show


def _so_far(verdict: ArchiveVerdict) -> str:
    return f"{counted(len(verdict.logs), 'log')}, {counted(verdict.records, 'record')}"


def _to_dict(verdict: ArchiveVerdict, seconds: float) -> dict[str, Any]:
    return {
        "archive": verdict.root,
        "intact": verdict.intact,
        "logs": [
            {
                "log": name,
                "intact": log.intact,
                "records": log.records,
                "payload_bytes": log.payload_bytes,
                "first_seq": log.first_seq,
                "last_seq": log.last_seq,
                "damaged_places": log.damaged_places,
                "restarts_found": log.restarts_found,
            }
            for name, log in verdict.logs.items()
        ],
        "records": verdict.records,
        "payload_bytes": verdict.payload_bytes,
        "gaps": verdict.gaps,
        "unreadable": verdict.unreadable,
        "misplaced": verdict.misplaced,
        "problems": verdict.problems,
        "seconds": seconds,
    }


def _show(verdict: ArchiveVerdict) -> None:
    for name, log in verdict.logs.items():
        for place in log.damage:
            lost = "" if place.first_lost is None else f", records {place.first_lost} …"
            say(f"damage: {name}: {place.what}{lost}")
        for at, before, after in log.restarts:
            say(
                f"restart: {name}: sequence numbers start again after {count_text(at)} records: "
                f"{before} → {after}"
            )
    for name, why in verdict.unreadable.items():
        say(f"unreadable: {name}: {why}")
    for name, why in verdict.misplaced.items():
        say(f"misplaced: {name}: {why}")
    for problem in verdict.problems:
        say(f"problem: {problem}")
    intact = "all checksums, sequence numbers and days are valid"
    say(
        f"{_so_far(verdict)}, {bytes_text(verdict.payload_bytes)} of payload, "
        f"gaps in ledgers: {count_text(verdict.gaps)}: {intact if verdict.intact else 'not intact'}"
    )
