"""`tapewire archive tap|ls|verify`: live queues into an archive, and what lies in one."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapewire.cli.output import (
    Exit,
    JsonOption,
    answer,
    console,
    errors,
    interruptible,
    print_json,
    say,
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

ArchiveArgument = Annotated[Path, typer.Argument(metavar="ARCHIVE", help="The archive's folder.")]


@archive.command()
def tap(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="SOURCES", help="Folders of queues, or the root of a bus."),
    ],
    to: Annotated[
        Path, typer.Option("--to", metavar="ARCHIVE", help="The archive's folder; made if new.")
    ],
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Of its pinned reader in each queue.")
    ] = "archive-tap",
    venue: Annotated[
        str | None, typer.Option(metavar="VENUE", help="What a queue outside a bus carries.")
    ] = None,
    symbol: Annotated[
        str | None, typer.Option(metavar="SYMBOL", help="Likewise; without it, a whole venue.")
    ] = None,
    stream: Annotated[
        str | None, typer.Option(metavar="STREAM", help="Likewise: book, trades and so on.")
    ] = None,
    flush_seconds: Annotated[
        float, typer.Option(min=0, metavar="S", help="Sync and commit every S seconds,")
    ] = 1.0,
    flush_bytes: Annotated[
        int, typer.Option(min=1, metavar="N", help="or every N bytes of payload.")
    ] = 64 << 20,
    segment_bytes: Annotated[
        int | None, typer.Option(min=4096, metavar="N", help="Of new logs.")
    ] = None,
    max_open: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Logs open at a time; two for each queue."),
    ] = None,
    close_after: Annotated[
        float, typer.Option(min=0, metavar="S", help="Close a log that got nothing for S seconds.")
    ] = 60.0,
    raise_when_full: Annotated[
        bool, typer.Option("--raise-when-full", help="End on a full disk; else wait for room.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="To the end of the queues, then stop; else follow.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Follow live queues and archive them: a log per symbol, UTC day and stream.

    Of a bus, streams/raw and streams/clean are followed, queues that come later
    too. Records keep number, time, type, flags and payload. A queue is committed
    when the archive is durable: killed at any moment and run again, nothing is
    lost and nothing is there twice. While the tap stands still, live queues keep
    what it has not read, and nothing else changes for them.

    Ctrl-C and SIGTERM end it, exit code 0; 1 when something was not as it should
    be: a gap, a damaged record, a queue that cannot be archived.
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
    before = {
        number: signal.signal(number, lambda *_: tapping.stop())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    looks = _Looks(as_json)
    _allow_many_files()
    try:
        report = tapping.run(follow=not once, on_look=looks)
    finally:
        looks.warn(tapping.report)
        for number, handler in before.items():
            signal.signal(number, handler)
    if as_json:
        print_json({"what": "done", **report.to_dict()})
    else:
        say(f"done   {report}, {bytes_text(report.bytes)}")
    if not report.clean:
        raise typer.Exit(int(Exit.FINDINGS))


def _allow_many_files() -> None:
    """As many as this process may have: a queue takes two descriptors, an open log four."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Looks:
    """A line when records came, at most one every ten seconds, and each finding as it comes."""

    SECONDS = 10.0

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._told = 0
        self._records = 0
        self._waiting = False
        self._next = time.monotonic() + (0.0 if errors.is_terminal else self.SECONDS)

    def warn(self, report: TapReport) -> None:
        """Tell the findings that were not told yet."""
        for finding in report.findings[self._told :]:
            warn(finding)
        self._told = len(report.findings)

    def __call__(self, report: TapReport) -> None:
        self.warn(report)
        if report.waiting is not None and not self._waiting:
            warn(f"the archive's disk is full, waiting for room: {report.waiting}")
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
    """Every log of an archive: its numbers, its last time, its size, its gaps."""
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
    """Read a whole archive: is every checksum, every number and every day right?

    Changes nothing. Exits 3 when a log is damaged or holds a record of another
    day, 1 when only something beside the records (a seek index, the counters, a
    line of a gap ledger) is not right. Gaps that the ledgers tell of are counted: those
    were missing before they could be archived.
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
    """The log that is read, on one line of a terminal."""
    if not errors.is_terminal:
        return None

    next_line = 0.0

    def show(name: str, verdict: ArchiveVerdict) -> None:
        nonlocal next_line
        if time.monotonic() < next_line:
            return  # to count what thousands of logs hold at each of them would take long
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
                f"restart: {name}: numbers fall behind {count_text(at)} records: {before} → {after}"
            )
    for name, why in verdict.unreadable.items():
        say(f"unreadable: {name}: {why}")
    for name, why in verdict.misplaced.items():
        say(f"misplaced: {name}: {why}")
    for problem in verdict.problems:
        say(f"problem: {problem}")
    judgement = "every checksum, number and day is right" if verdict.intact else "not intact"
    say(
        f"{_so_far(verdict)}, {bytes_text(verdict.payload_bytes)} of payload, "
        f"noted gaps: {count_text(verdict.gaps)}: {judgement}"
    )
