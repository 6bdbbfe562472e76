"""`tapewire snapshotter LOG`: save the books of a log regularly, in a separate process."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapewire.cli.output import Exit, JsonOption, print_json, say, signals_call, warn
from tapewire.cli.times import iso
from tapewire.text import count_text

if TYPE_CHECKING:
    from tapewire.replay import Round

__all__ = ["snapshotter"]


def snapshotter(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="Directory of a queue.")],
    seconds: Annotated[
        float | None,
        typer.Option(min=1e-9, metavar="S", help="Save every S seconds of recorded time."),
    ] = None,
    records: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Save every N records of the log.")
    ] = None,
    every_bytes: Annotated[
        int | None, typer.Option("--bytes", min=1, metavar="N", help="Save every N bytes of log.")
    ] = None,
    roll: Annotated[bool, typer.Option("--roll", help="Save at each new segment.")] = False,
    keep: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Keep the newest N snapshots of a book; 0: all."),
    ] = 100,
    max_bytes: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Keep at most N bytes of snapshots in total."),
    ] = None,
    max_age: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="S", help="Keep the snapshots of the last S seconds of recorded time."
        ),
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of its reader.")] = "snapshotter",
    once: Annotated[
        bool, typer.Option("--once", help="Stop at the end of the log; do not follow.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Follow a log, save its books regularly, and write its gaps to the ledger next to it.

    Default policy: every 10 seconds of recorded time or 10,000 records. A new
    snapshotter continues where the last one stopped or was killed. The newest
    snapshot of a book is always kept.

    Ctrl-C and SIGTERM end it with exit code 0.
    """
    from tapewire.replay import Every, Snapshotter

    if seconds is None and records is None and every_bytes is None and not roll:
        seconds, records = 10.0, 10_000
    every = Every(seconds, records, every_bytes, roll)
    saver = Snapshotter(log, every, keep or None, max_bytes, max_age, name=name)
    with signals_call(saver.stop):
        done = saver.run(follow=not once, on_round=_RoundPrinter(as_json))
    for finding in saver.findings:
        warn(f"skipped: {finding.why}")
    _show("done", done, as_json)
    if saver.findings:
        raise typer.Exit(int(Exit.FINDINGS))


class _RoundPrinter:
    """Prints a line for each round."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._written = 0

    def __call__(self, done: Round) -> None:
        # Nothing is saved while no book can be trusted, or none has changed.
        what = "saved" if self._json or done.written > self._written else "waits"
        self._written = done.written
        _show(what, done, self._json)


def _show(what: str, done: Round, as_json: bool) -> None:
    if as_json:
        print_json({"what": what, **dataclasses.asdict(done)})
        return
    if done.last_seq is None:
        say(f"{what:<6}nothing new in the log")
        return
    at = "" if done.clock_ns is None else f"  {iso(done.clock_ns)}"
    waits = f", books not trusted: {done.untrusted}" if done.untrusted else ""
    say(
        f"{what:<6}record {count_text(done.last_seq)}{at}  snapshots: {count_text(done.written)}, "
        f"removed: {count_text(done.removed)}, gaps: {count_text(done.gaps)}{waits}"
    )
