"""A reader that signs itself off: its meta file lives as long as it does."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any, Self

from tapewire.bus.names import check_name
from tapewire.queue import Reader, open_subscriber

__all__ = ["ReaderRegistration", "name_is_held", "reader_meta_path"]


def reader_meta_path(queue: str | os.PathLike[str], name: str) -> Path:
    """The file in which a queue keeps the position of the reader `name`."""
    return Path(queue) / "readers" / f"{check_name('name', name)}.meta"


def name_is_held(queue: str | os.PathLike[str], name: str) -> bool:
    """Whether somebody, here or elsewhere, has the reader `name` open; does not wait."""
    try:
        descriptor = os.open(
            reader_meta_path(queue, name),
            os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK,
        )
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        # Held for an instant; whoever takes the name tries for longer than that.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class ReaderRegistration:
    """A reader of a queue for the time of a ``with`` block, known to the writer's retention.

    Opening makes the reader's meta file, and the engine's heartbeat keeps it alive. Leaving the
    block, also by Ctrl-C or `sys.exit`, closes the reader and removes the file: nothing of it is
    left, and the next one starts anew. An error that leaves the block keeps the file, so that
    ``start="resume"`` goes on behind what was committed. After `kill -9` the file stays, too, and
    no longer counts when its heartbeat is older than the writer's `reader_ttl`.

    Options are those of `tapewire.open_subscriber`.

    Example:
        >>> import tapewire as tw
        >>> from tapewire import bus
        >>> with tw.open_publisher(tmp / "md", segment_bytes=65536) as writer:
        ...     with bus.ReaderRegistration(tmp / "md", "router") as reg:
        ...         _ = writer.append(1, b"hello")
        ...         bytes(reg.reader.next().payload), reg.meta_path.exists()
        ...     reg.meta_path.exists()
        (b'hello', True)
        False
    """

    def __init__(self, path: str | os.PathLike[str], name: str, **options: Any) -> None:
        self.name = check_name("name", name)
        self.reader: Reader = open_subscriber(path, name, **options)
        self.meta_path = reader_meta_path(path, name)

    @property
    def closed(self) -> bool:
        """Whether the reader is closed."""
        return self.reader.closed

    def close(self, *, forget: bool = True) -> None:
        """Close the reader and remove its meta file. Closing twice is fine."""
        self.reader.close(forget=forget)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        failed = kind is not None and issubclass(kind, Exception)
        self.close(forget=not failed)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<ReaderRegistration {os.fspath(self.meta_path)!r} {state}>"
