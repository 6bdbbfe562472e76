"""One sample of a bus: plain values, ready for JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from tapewire.monitor.alerts import Alert

__all__ = [
    "Filesystem",
    "QueueView",
    "ReaderView",
    "Snapshot",
    "State",
    "WriterView",
    "printable",
]

# live: holds its lock, and its heartbeat changes. stale: holds its lock, but its heartbeat does not
# change (stopped, swapped out, hung). dead: no process holds the lock. closed: closed properly.
State = Literal["live", "stale", "dead", "closed"]


def printable(name: str) -> str:
    r"""Escape control characters, broken Unicode and backslashes in a file name.

    Different names stay different, so the result can be used as a key.

    Example:
        >>> printable("md"), printable("\x1b[31mred"), printable("a\\b")
        ('md', '\\x1b[31mred', 'a\\\\b')
    """
    return "".join(
        "\\\\"
        if char == "\\"
        else char
        if char.isprintable()
        else char.encode("unicode_escape").decode("ascii")
        for char in name
    )


@dataclass(frozen=True, slots=True)
class WriterView:
    """The writer of a queue; `heartbeat_age` is how long its heartbeat has not changed."""

    state: State
    pid: int | None
    epoch: int
    heartbeat_age: float


@dataclass(frozen=True, slots=True)
class ReaderView:
    """A named reader, with the lag of its commits behind the end of the log."""

    name: str
    state: State
    pinned: bool
    next_seq: int | None
    lag_records: int | None
    lag_bytes: int
    lag_segments: int
    lag_seconds: float
    records_per_second: float | None  # committed since the previous sample
    heartbeat_age: float


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue. If it could not be read at all, `error` has the reason and the rest is empty."""

    name: str  # below the root
    path: str
    error: str | None = None
    sparse: bool = False
    ready: bool = False
    segment_bytes: int = 0
    segments: int = 0
    disk_bytes: int = 0
    first_available_seq: int | None = None
    last_seq: int | None = None
    last_timestamp_ns: int | None = None
    records: int | None = None
    records_per_second: float | None = None  # since the previous sample; None in the first
    bytes_per_second: float | None = None
    writer: WriterView | None = None
    readers: tuple[ReaderView, ...] = ()
    metrics: dict[str, int] | None = None  # stats.meta, counted since the writer was opened
    problems: tuple[str, ...] = ()

    @property
    def worst_lag(self) -> ReaderView | None:
        """The reader with the greatest lag in bytes."""
        return max(self.readers, key=lambda reader: reader.lag_bytes, default=None)


@dataclass(frozen=True, slots=True)
class Filesystem:
    """A filesystem with queues, and its free space."""

    path: str  # where it is mounted
    total_bytes: int
    free_bytes: int  # for users other than root

    @property
    def used_share(self) -> float:
        """The used share, from 0 to 1."""
        return 1 - self.free_bytes / self.total_bytes if self.total_bytes else 0.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A bus at one moment."""

    root: str
    time_ns: int
    uptime: float  # seconds since the watch began, on the monotonic clock
    look_seconds: float  # duration of the sample
    queues: tuple[QueueView, ...]
    filesystems: tuple[Filesystem, ...]
    alerts: tuple[Alert, ...]

    def queue(self, name: str) -> QueueView | None:
        """Return the queue with this name, or None."""
        return next((queue for queue in self.queues if queue.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """Return dicts, lists, strings and numbers with the names of the fields, for JSON."""
        return asdict(self)
