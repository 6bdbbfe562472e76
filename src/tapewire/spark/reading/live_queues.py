"""Refuses a live queue if workers may run on other hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tapewire.errors import InvalidOption
from tapewire.queue.status import status
from tapewire.spark.sessions.masters import is_loopback

if TYPE_CHECKING:
    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions

__all__ = ["refuse_live"]


def refuse_live(logs: list[LogRef], options: ReadOptions, master: str | None) -> None:
    """Raise if a process writes to one of the logs and workers may run on other hosts.

    Args:
        logs: What is to be read.
        options: `shared` states that every worker sees these files.
        master: Spark's master; None if not known.

    Raises:
        InvalidOption: With the remedy.
    """
    if options.shared or (master is not None and is_loopback(master)):
        return
    for log in logs:
        if log.kind != "queue" or not log.may_meet(None, options.time_to):
            continue
        if status(log.path).writer.alive:
            raise InvalidOption(
                "a live queue can be read only on its own host, and workers may run elsewhere: "
                f"queue={log.name}, master={master or 'not known'}",
                path=log.path,
                hint="read an archive of it, or use master local[*]; if every worker sees this "
                'path on a shared filesystem, set .option("shared", "true")',
            )
