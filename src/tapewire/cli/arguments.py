"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "ArchiveOption",
    "BusArgument",
    "FollowOption",
    "FromTimeOption",
    "LogArgument",
    "QueueArgument",
    "SymbolOption",
    "TypesOption",
]

LogArgument = Annotated[
    str, typer.Argument(metavar="LOG", help="A log, such as the directory of a queue.")
]
QueueArgument = Annotated[Path, typer.Argument(metavar="QUEUE", help="Directory of a queue.")]
BusArgument = Annotated[
    Path, typer.Argument(metavar="BUS", help="Directory of a bus, or of one queue.")
]
ArchiveOption = Annotated[
    Path,
    typer.Option(
        "--to", metavar="ARCHIVE", help="Directory of the archive; created if it does not exist."
    ),
]
FollowOption = Annotated[
    bool, typer.Option("-f", "--follow", help="Wait for more; end with Ctrl-C, exit code 0.")
]
FromTimeOption = Annotated[
    str | None,
    typer.Option(
        "--from-time",
        metavar="TIME",
        help="Start at this time: ISO 8601 with a zone, nanoseconds, or -5m (5 minutes ago).",
    ),
]
SymbolOption = Annotated[
    list[str] | None,
    typer.Option("--symbol", metavar="SYMBOL", help="Only this symbol; may be repeated."),
]
TypesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="Only this type, 8193, 0x2001 or a message name; may be repeated.",
    ),
]
