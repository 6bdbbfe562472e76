"""Refuses a live queue where the workers may run on other hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tapewire.errors import InvalidOption
from tapewire.queue.status import status
from tapewire.spark.sessions.session import is_loopback

if TYPE_CHECKING:
    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions

__all__ = ["refuse_live"]


def refuse_live(logs: list[LogRef], options: ReadOptions, master: str | None) -> None:
    """Raise where a log is being written on this machine, and workers may be on others.

    Args:
        logs: What is to be read.
        options: `shared` says that every worker sees these very files.
        master: Spark's master; None when it is not known.

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
                "a live queue is read where it is written, and the workers may be elsewhere: "
                f"queue={log.name}, master={master or 'not known'}",
                path=log.path,
                hint="read an archive of it, or with master local[*]; where a shared filesystem "
                'shows every worker this path, say .option("shared", "true")',
            )
