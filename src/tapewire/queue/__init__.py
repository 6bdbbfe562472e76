"""The queue: one writer, many readers, segments mapped from disk, futex wake-ups."""

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
    """Open the writer of a queue; the queue is created if it does not exist.

    Options are the fields of `WriterConfig`, passed by name, as a `config`, or both (names win).
    `segment_bytes`, `first_seq` and `sparse` take effect when the queue is created; an existing
    queue keeps its own values, and a different one raises.

    Example:
        >>> import tapewire as tw
        >>> with tw.open_publisher(tmp / "md", segment_bytes=1 << 20) as writer:
        ...     writer.append(0x2001, b"bid 100.25")
        ...     writer.append(0x2001, b"ask 100.26")
        0
        1

    Raises:
        WriterAlreadyActive: The queue has a living writer.
        InvalidOption: An option is invalid, or differs from what the queue was created with.
        CorruptMetadata: control.meta or the header of a segment is damaged.
        UnsupportedVersion: A later release wrote this queue.
        DiskFull: There is no space for a segment.
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
    """Open a named reader, whose committed position is stored in the queue.

    Args:
        path: The queue's directory.
        name: The reader's name; one process holds it at a time.
        start: ``"resume"`` (after what this name committed; for a new name the earliest record),
            ``"earliest"``, ``"latest"``, `Seq(n)` or `Time(t)`.
        wait: How `wait` and `follow` wait.
        types: Type ids to return; records of other types are skipped natively.
        pinned: Retention waits for this reader even while it is not running.
        create_timeout: Seconds to wait for the queue to be created; by default it must exist.

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
        ReaderAlreadyActive: Another reader holds this name.
        InvalidName: The name has characters that are not allowed in a file name.
        SegmentMissing: Retention removed the records after the committed position.
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
    """Open an anonymous reader at the earliest record, for `tapewire.open_log`."""
    return Reader(where, None, "earliest", SpinThenPark(), types, False)


def _await_queue(path: str | os.PathLike[str], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not is_queue(path) and time.monotonic() < deadline:
        time.sleep(0.002)
