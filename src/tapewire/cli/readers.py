"""`tapewire readers ls|rm QUEUE`: the named readers of a queue."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from tapewire.cli.arguments import QueueArgument
from tapewire.cli.output import Exit, JsonOption, answer, fail, say

__all__ = ["readers"]

readers = typer.Typer(
    no_args_is_help=True, help="The named readers of a queue: list them, remove one."
)


@readers.command()
def ls(queue: QueueArgument, as_json: JsonOption = False) -> None:
    """List the named readers of a queue with their position and lag."""
    from tapewire.cli.inspect import reader_state, show_readers
    from tapewire.queue import status

    seen = status(queue)
    states = {reader.name: reader_state(reader, None, None) for reader in seen.readers}

    def show() -> None:
        if seen.readers:
            show_readers(seen.readers, states)
        else:
            say("no named readers")

    rows = [{**dataclasses.asdict(r), "state": states[r.name]} for r in seen.readers]
    answer({"queue": seen.path, "readers": rows}, as_json, show)


@readers.command()
def rm(
    queue: QueueArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the reader.")],
    yes: Annotated[bool, typer.Option("--yes", help="Remove it.", show_default=False)] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a reader and its position; a new reader of that name starts from scratch.

    A reader that is running is refused. Without --yes nothing is removed, and the exit code is 1.
    """
    from tapewire.queue import status
    from tapewire.queue._native import remove_reader

    seen = status(queue)
    reader = next((reader for reader in seen.readers if reader.name == name), None)
    if reader is None:
        fail(Exit.NOT_FOUND, f"no such reader: name={name}, in {seen.path}")
    if reader.alive:
        fail(Exit.USAGE, f"the reader is running: name={name}, in {seen.path}", "stop it first")
    removed = yes and remove_reader(queue, name)
    where = f"segment {reader.segment}, offset {reader.offset:,}"

    def show() -> None:
        verb = "removed" if removed else "would remove"
        say(f"{verb} {reader.path}: reader '{name}' had committed up to {where}")
        if not removed:
            say("nothing was changed; give --yes to remove it")

    answer(
        {"queue": seen.path, "reader": name, "path": reader.path, "removed": removed}, as_json, show
    )
    if not removed:
        raise typer.Exit(int(Exit.FINDINGS))
