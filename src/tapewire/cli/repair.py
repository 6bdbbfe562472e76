"""`tapewire repair QUEUE`: repair what a crash or damage left, offline."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from tapewire.cli.output import Exit, JsonOption, answer, interruptible, say

__all__ = ["repair"]


def repair(
    queue: Annotated[Path, typer.Argument(metavar="QUEUE", help="Directory of a queue.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it.", show_default=False)] = False,
    as_json: JsonOption = False,
) -> None:
    """Repair what a crash or damage left, in all segments; append nothing.

    Each damaged span becomes padding, and a copy of its segment is kept. Damaged
    segment headers and control.meta are written again.

    Without --yes it is a dry run, which changes nothing and exits 1 when there
    is something to do: the queue is copied to a hidden directory beside it and
    repaired there.

    A queue with a living writer is refused.
    """
    from tapewire.queue.repair import rehearse
    from tapewire.queue.repair import repair as mend

    with interruptible():  # a copy that is left half would lie hidden, and may be large
        done = mend(queue) if yes else rehearse(queue)

    def show() -> None:
        if done.rehearsed and done.actions:
            say("a dry run, on a copy:")
        for action in done.actions:
            say(f"  {action}")
        if not done.actions:
            say("nothing to repair")
        for note in done.notes:
            say(f"note: {note}")
        say(f"the next record gets sequence number {done.next_seq:,}")
        if done.rehearsed and done.actions:
            say("nothing was changed: say --yes to do it")

    lists = {"actions": list(done.actions), "notes": list(done.notes)}
    answer({**dataclasses.asdict(done), **lists}, as_json, show)
    if done.rehearsed and done.actions:
        raise typer.Exit(int(Exit.FINDINGS))
