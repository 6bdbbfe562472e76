"""The queue: one writer, many readers, mapped segments on disk, woken by futex."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

from tapewire.config import (
    BusySpin,
    Seq,
    Sleep,
    SpinThenPark,
    Time,
    WriterConfig,
    check_at_least,
)
from tapewire.errors import InvalidName, InvalidOption
from tapewire.files import is_queue
from tapewire.queue._native import (
    DisconnectReason,
    Position,
    Reader,
    Reservation,
    Writer,
    WriterStatus,
)
from tapewire.queue.status import (
    QueueStatus,
    QueueWatch,
    ReaderStatus,
    SegmentStatus,
    WriterState,
    find_queues,
    status,
)

__all__ = [
    "DisconnectReason",
    "Position",
    "QueueStatus",
    "QueueWatch",
    "Reader",
    "ReaderStatus",
    "Reservation",
    "SegmentStatus",
    "Writer",
    "WriterState",
    "WriterStatus",
    "find_queues",
    "open_publisher",
    "open_reader",
    "open_subscriber",
    "status",
]


def open_publisher(
    path: str | os.PathLike[str], config: WriterConfig | None = None, **options: Any
) -> Writer:
    """Open the writer of a queue, creating the queue where there is none.

    Options are the fields of `WriterConfig`, given by name, as a `config`, or both (names win).
    `segment_bytes`, `first_seq` and `sparse` count when the queue is created; left out, an existing
    queue keeps its own.

    Example:
        >>> import tapewire as tw
        >>> with tw.open_publisher(tmp / "md", segment_bytes=1 << 20) as writer:
        ...     writer.append(0x2001, b"bid 100.25")
        ...     writer.append(0x2001, b"ask 100.26")
        0
        1

    Raises:
        WriterAlreadyActive: The queue has a living writer.
        InvalidOption: An option cannot be, or differs from what the queue was created with.
        CorruptMetadata: control.meta or a segment's header is damaged.
        UnsupportedVersion: A later release wrote this queue.
        DiskFull: There is no room for a segment.
    """
    if config is not None and not isinstance(config, WriterConfig):
        raise InvalidOption(f"config must be a WriterConfig: config={config!r}")
    return Writer(path, (config or WriterConfig()).replace(**options))


def open_subscriber(
    path: str | os.PathLike[str],
    name: str,
    *,
    start: str | Seq | Time = "resume",
    wait: BusySpin | SpinThenPark | Sleep = SpinThenPark(),  # noqa: B008 - an immutable value
    types: Iterable[int] | None = None,
    pinned: bool = False,
    create_timeout: float | None = None,
) -> Reader:
    """Open a named reader, whose committed position outlives the process.

    Args:
        path: The queue's folder.
        name: The reader's name; one process holds it at a time.
        start: ``"resume"`` (behind what this name committed; the earliest record for a new name),
            ``"earliest"``, ``"latest"``, `Seq(n)` or `Time(t)`.
        wait: How `wait` and `follow` wait.
        types: Type ids to give; others are skipped natively.
        pinned: Retention waits for this reader even when it is not running.
        create_timeout: Wait so many seconds for the queue to be created.

    Example:
        >>> import tapewire as tw
        >>> with tw.open_publisher(tmp / "md", segment_bytes=1 << 20) as writer:
        ...     _ = writer.append(1, b"a"), writer.append(1, b"b")
        ...     with tw.open_subscriber(tmp / "md", "strategy") as reader:
        ...         first = bytes(reader.next().payload)
        ...         reader.commit()
        ...     with tw.open_subscriber(tmp / "md", "strategy") as reader:
        ...         first, bytes(reader.next().payload)
        (b'a', b'b')

    Raises:
        FileNotFoundError: There is no queue at `path`.
        ReaderAlreadyActive: Somebody holds this name.
        InvalidName: The name has characters that a file name must not have.
        SegmentMissing: What comes behind the committed position was retired.
    """
    if not name or type(name) is not str:
        raise InvalidName(f"not a valid reader name: name={name!r}")
    if not isinstance(start, str | Seq | Time):
        raise InvalidOption(
            f'start must be "resume", "earliest", "latest", Seq(n) or Time(t): start={start!r}'
        )
    if create_timeout is not None:
        check_at_least("create_timeout", create_timeout, 0)
        _await_queue(path, create_timeout)
    return Reader(path, name, start, wait, types, bool(pinned))


def open_reader(where: str | os.PathLike[str], types: Iterable[int] | None = None) -> Reader:
    """An anonymous reader from the earliest record; what `tapewire.open_log` calls for a queue."""
    return Reader(where, None, "earliest", SpinThenPark(), types, False)


def _await_queue(path: str | os.PathLike[str], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not is_queue(path) and time.monotonic() < deadline:
        time.sleep(0.002)
