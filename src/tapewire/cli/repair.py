"""`tapewire repair QUEUE`: repair a queue after a crash or damage, offline."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from tapewire.cli.arguments import QueueArgument
from tapewire.cli.output import Exit, JsonOption, answer, interruptible, say

__all__ = ["repair"]


def repair(
    queue: QueueArgument,
    yes: Annotated[
        bool, typer.Option("--yes", help="Repair the queue itself.", show_default=False)
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Repair all segments of a queue after a crash or damage; append nothing.

    Each damaged span becomes padding, and a copy of its segment is kept. Damaged
    segment headers and control.meta are written again.

    Without --yes it is a dry run, which repairs a copy of the queue in a hidden
    directory next to it, and exits 1 if there is something to repair.

    A queue with a live writer is refused.
    """
    from tapewire.queue.repair import rehearse
    from tapewire.queue.repair import repair as repair_queue

    with interruptible():  # an incomplete copy would remain hidden, and may be large
        done = repair_queue(queue) if yes else rehearse(queue)

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
            say("nothing was changed; give --yes to repair the queue")

    lists = {"actions": list(done.actions), "notes": list(done.notes)}
    answer({**dataclasses.asdict(done), **lists}, as_json, show)
    if done.rehearsed and done.actions:
        raise typer.Exit(int(Exit.FINDINGS))
