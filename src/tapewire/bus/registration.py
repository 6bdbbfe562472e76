"""A reader whose meta file is removed when it is closed."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any, Self

from tapewire.bus.names import check_name
from tapewire.queue import Reader, open_subscriber

__all__ = ["ReaderRegistration", "name_is_held", "reader_meta_path"]


def reader_meta_path(queue: str | os.PathLike[str], name: str) -> Path:
    """Return the file in which a queue stores the position of the reader `name`."""
    return Path(queue) / "readers" / f"{check_name('name', name)}.meta"


def name_is_held(queue: str | os.PathLike[str], name: str) -> bool:
    """Whether any process has the reader `name` open; does not wait."""
    try:
        descriptor = os.open(
            reader_meta_path(queue, name),
            os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK,
        )
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        # Held only for an instant; a process that opens the reader retries for longer than that.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class ReaderRegistration:
    """A reader of a queue for the duration of a ``with`` block, known to the writer's retention.

    Opening creates the reader's meta file, and a heartbeat keeps it alive. Leaving the block, also
    by Ctrl-C or `sys.exit`, closes the reader and removes the file, so the next reader starts from
    scratch. If the block raises, the file is kept, so that ``start="resume"`` continues after the
    last commit. The file also remains after `kill -9`; it no longer counts when its heartbeat is
    older than the writer's `reader_ttl`.

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
        """Close the reader and remove its meta file. A second call has no effect."""
        self.reader.close(forget=forget)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        failed = kind is not None and issubclass(kind, Exception)
        self.close(forget=not failed)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<ReaderRegistration {os.fspath(self.meta_path)!r} {state}>"
