"""The state of a queue seen from outside: its writer, its readers and their lags."""

from __future__ import annotations

import dataclasses
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tapewire.errors import NotALog
from tapewire.files import is_queue
from tapewire.log import kind_of
from tapewire.queue._native import Watch

__all__ = [
    "QueueStatus",
    "QueueWatch",
    "ReaderStatus",
    "SegmentStatus",
    "WriterState",
    "find_queues",
    "status",
]

_LEASE_BYTES_MOST = 65536


@dataclass(frozen=True)
class SegmentStatus:
    """One segment file.

    Attributes:
        id: Its number.
        path: The file.
        bytes: Its length.
        sealed: Whether the writer has left it: no record is added any more.
        readable: Whether its length and header are valid; see `problems` if not.
        has_index: Whether it has a seek index.
        holds_records: Whether it contains a record; None if that is unknown.
        first_seq: Sequence number of its first record, or None.
    """

    id: int
    path: str
    bytes: int
    sealed: bool
    readable: bool
    has_index: bool
    holds_records: bool | None
    first_seq: int | None


@dataclass(frozen=True)
class WriterState:
    """The queue's writer.

    Attributes:
        alive: Whether a process holds the lock of the queue.
        pid: The process that took it last; None after a clean close.
        epoch: How many writers the queue has had.
        heartbeat_ns: The last heartbeat, as stored.
        heartbeat_age: Seconds since then by the wall clock, which may jump: to be certain, compare
            the `heartbeat_ns` of two looks.
    """

    alive: bool
    pid: int | None
    epoch: int
    heartbeat_ns: int
    heartbeat_age: float

    @property
    def killed(self) -> bool:
        """Whether the last writer died without closing the queue."""
        return self.pid is not None and not self.alive


@dataclass(frozen=True)
class ReaderStatus:
    """One named reader. All lags are 0 if no record follows its committed position.

    Attributes:
        name: Its name.
        path: Its file.
        alive: Whether a process holds the lock of that file.
        pinned: Whether retention waits for it, alive or not.
        segment: Segment of the committed position.
        offset: Offset of the committed position.
        heartbeat_ns: The last heartbeat, as stored.
        heartbeat_age: Seconds since then by the wall clock.
        lag_records: Records it has not committed; None if unknown (see `problems`).
        lag_bytes: Bytes of log from there to the end; segments in between count in full.
        lag_segments: Segments from there to the end.
        lag_seconds: Timestamp of the last record minus that of the first uncommitted one.
        next_seq: Sequence number of the record it would read next; None if unknown.
    """

    name: str
    path: str
    alive: bool
    pinned: bool
    segment: int
    offset: int
    heartbeat_ns: int
    heartbeat_age: float
    lag_records: int | None
    lag_bytes: int
    lag_segments: int
    lag_seconds: float
    next_seq: int | None


@dataclass(frozen=True)
class QueueStatus:
    """The state of a queue at one moment.

    Attributes:
        path: The queue's directory.
        version: Version of its control file; 0 if that cannot be read.
        segment_bytes: Size of each segment.
        first_seq: Sequence number of the first record that the queue ever had.
        sparse: Whether sequence numbers may skip values.
        current_segment: Segment of the writer according to the control file: a hint.
        write_offset: Offset of the writer in that segment: a hint.
        end_segment: Segment in which the next record comes, according to the segments themselves.
        end_offset: Offset of the next record in that segment.
        checkpoint: Segment and offset up to which the writer has synced everything; or None.
        sync_errno: errno of a failed sync of a writer, if none has succeeded since; else 0. Records
            after the checkpoint may be lost.
        last_seq: Sequence number of the last record, or None.
        last_timestamp_ns: Time of the last record, or None.
        first_available_seq: Sequence number of the first record that still exists, or None.
        records: Number of records according to their sequence numbers; None in a sparse log, and
            where another implementation may have restarted the numbers.
        segments: All segments, in order.
        disk_bytes: Disk usage of the directory.
        writer: The writer.
        readers: All named readers, sorted by name.
        metrics: The writer's counters by name; None if there are none.
        ready: Whether the directory is marked READY.
        lease: The content of LEASE, or None.
        temporary_files: Unfinished files; a living writer has some, a killed one leaves them.
        damaged_copies: Copies of segments from before recovery repaired them.
        problems: One line for each file that could not be read.
    """

    path: str
    version: int
    segment_bytes: int
    first_seq: int
    sparse: bool
    current_segment: int
    write_offset: int
    end_segment: int
    end_offset: int
    checkpoint: tuple[int, int] | None
    sync_errno: int
    last_seq: int | None
    last_timestamp_ns: int | None
    first_available_seq: int | None
    records: int | None
    segments: tuple[SegmentStatus, ...]
    disk_bytes: int
    writer: WriterState
    readers: tuple[ReaderStatus, ...]
    metrics: dict[str, int] | None
    ready: bool
    lease: dict[str, Any] | None
    temporary_files: tuple[str, ...]
    damaged_copies: tuple[str, ...]
    problems: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain dicts and lists, for JSON."""
        fields = dataclasses.asdict(self)
        fields["checkpoint"] = None if self.checkpoint is None else list(self.checkpoint)
        for name in ("segments", "readers", "temporary_files", "damaged_copies", "problems"):
            fields[name] = list(fields[name])
        return fields


class QueueWatch:
    """Reads the state of one queue repeatedly; any thread may call it.

    It remembers how far it has counted, so that a look takes the same time however long the log is,
    and holds no file open in between. It does not detect damage that occurs in a sealed segment
    after the first look: `tapewire verify` reads everything.

    Example:
        >>> import tapewire as tw
        >>> from tapewire.queue.status import QueueWatch
        >>> watch = QueueWatch(tmp / "md")
        >>> with tw.open_publisher(tmp / "md", segment_bytes=1 << 20) as writer:
        ...     for payload in (b"a", b"b"):
        ...         _ = writer.append(1, payload)
        ...         print(watch.look().last_seq)
        0
        1
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._watch = Watch(path)
        self._lock = threading.Lock()

    @property
    def path(self) -> str:
        """The queue's directory."""
        return self._watch.path

    def look(self) -> QueueStatus:
        """Return the current state of the queue.

        Raises:
            FileNotFoundError: The path does not exist.
            NotALog: There is no queue at the path.
        """
        if (kind := kind_of(self.path)) != "queue":
            raise NotALog(f"not a queue: kind={kind}", path=self.path)
        with self._lock:
            seen = self._watch.look()
        return _named(self.path, seen)

    def __repr__(self) -> str:
        return f"<QueueWatch {self.path!r}>"


def status(path: str | os.PathLike[str]) -> QueueStatus:
    """Return the current state of a queue, which may be live or damaged; writes nothing.

    What cannot be read becomes a line in `problems`. For repeated calls use a `QueueWatch`.

    Example:
        >>> import tapewire as tw
        >>> from tapewire.queue.status import status
        >>> with tw.open_publisher(tmp / "md", segment_bytes=1 << 20) as writer:
        ...     _ = writer.append(1, b"a"), writer.append(1, b"b")
        ...     with tw.open_subscriber(tmp / "md", "strategy") as reader:
        ...         _ = reader.next()
        ...         reader.commit()
        ...         seen = status(tmp / "md")
        >>> seen.writer.alive, seen.last_seq
        (True, 1)
        >>> [(reader.name, reader.lag_records) for reader in seen.readers]
        [('strategy', 1)]

    Raises:
        FileNotFoundError: `path` does not exist.
        NotALog: There is no queue at `path`.
    """
    return QueueWatch(path).look()


def status_of_damaged(path: str | os.PathLike[str]) -> QueueStatus:
    """As `status`, but also for a queue whose control.meta is missing."""
    if is_queue(path) or not _has_segments(path):
        return status(path)
    watch = Watch(path)
    return _named(watch.path, watch.look())


def _has_segments(path: str | os.PathLike[str]) -> bool:
    try:
        return any(name.endswith(".q") and name[:-2].isdigit() for name in os.listdir(path))
    except OSError:
        return False  # `status` raises the reason


def find_queues(
    root: str | os.PathLike[str], on_error: Callable[[OSError], object] | None = None
) -> list[str]:
    """Return the paths of all queues at or below `root`, sorted.

    Links are not followed; directories whose name begins with a dot, and lost+found, are skipped.
    `on_error` is called for each directory below `root` that cannot be listed; without it the first
    one raises.

    Example:
        >>> import tapewire as tw
        >>> for name in ("a", "b"):
        ...     tw.open_publisher(tmp / "bus" / name, segment_bytes=1 << 20).close()
        >>> [os.path.basename(path) for path in find_queues(tmp / "bus")]
        ['a', 'b']
    """
    top = os.path.abspath(os.fspath(root))
    return sorted(
        os.path.dirname(entry.path)
        for entry in _files_below(top, hidden=False, missing_ok=False, on_error=on_error)
        if entry.name == "control.meta" and entry.is_file(follow_symlinks=False)
    )


def _named(path: str, seen: dict[str, Any]) -> QueueStatus:
    now = time.time_ns()
    problems = list(seen["problems"])
    owner = seen["owner"]
    segment, offset = seen["hint"]
    end_segment, end_offset = seen["end"]
    return QueueStatus(
        path=path,
        version=seen["version"],
        segment_bytes=seen["segment_bytes"],
        first_seq=seen["first_seq"],
        sparse=seen["sparse"],
        current_segment=segment,
        write_offset=offset,
        end_segment=end_segment,
        end_offset=end_offset,
        checkpoint=seen["checkpoint"],
        sync_errno=seen["sync_errno"],
        last_seq=seen["last_seq"],
        last_timestamp_ns=seen["last_timestamp_ns"],
        first_available_seq=seen["first_available_seq"],
        records=seen["records"],
        segments=tuple(SegmentStatus(*fields) for fields in seen["segments"]),
        disk_bytes=_disk_bytes(path, problems),
        writer=WriterState(
            alive=seen["held"],
            pid=owner[0] if owner else None,
            epoch=seen["epoch"],
            heartbeat_ns=seen["heartbeat_ns"],
            heartbeat_age=_age(now, seen["heartbeat_ns"]),
        ),
        readers=tuple(_reader(now, *fields) for fields in seen["readers"]),
        metrics=seen["metrics"] or None,
        ready=_is_file(os.path.join(path, "READY")),
        lease=_lease(os.path.join(path, "LEASE"), problems),
        temporary_files=tuple(sorted(seen["temporary_files"])),
        damaged_copies=tuple(seen["damaged_copies"]),
        problems=tuple(problems),
    )


def _reader(
    now: int,
    name: str,
    path: str,
    alive: bool,
    pinned: bool,
    segment: int,
    offset: int,
    heartbeat_ns: int,
    lag_records: int | None,
    lag_bytes: int,
    lag_segments: int,
    lag_ns: int,
    next_seq: int | None,
) -> ReaderStatus:
    return ReaderStatus(
        name=name,
        path=path,
        alive=alive,
        pinned=pinned,
        segment=segment,
        offset=offset,
        heartbeat_ns=heartbeat_ns,
        heartbeat_age=_age(now, heartbeat_ns),
        lag_records=lag_records,
        lag_bytes=lag_bytes,
        lag_segments=lag_segments,
        lag_seconds=lag_ns / 1e9,
        next_seq=next_seq,
    )


def _age(now_ns: int, then_ns: int) -> float:
    return max(0, now_ns - then_ns) / 1e9


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _lease(path: str, problems: list[str]) -> dict[str, Any] | None:
    try:
        # Do not block on a pipe.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        problems.append(f"LEASE cannot be read: {error.strerror} [{path}]")
        return None
    import json

    try:
        text = os.read(fd, _LEASE_BYTES_MOST)
        lease = json.loads(text)
        # It is passed on as JSON: it must be neither too deep nor contain NaN.
        if not (_is_flat(lease) and json.dumps(lease, allow_nan=False)):
            lease = None
    except (OSError, ValueError, RecursionError):
        lease = None
    finally:
        os.close(fd)
    if isinstance(lease, dict):
        return lease
    problems.append(f"LEASE is not one JSON object [{path}]")
    return None


def _is_flat(value: Any, levels: int = 8) -> bool:
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_flat(each, levels - 1) for each in inner)


def _disk_bytes(path: str, problems: list[str]) -> int:
    def note(error: OSError) -> None:
        problems.append(f"directory cannot be listed: {error.strerror} [{error.filename}]")

    total = 0
    for entry in _files_below(path, hidden=True, on_error=note):
        try:
            total += entry.stat(follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:
            continue  # removed or renamed just now
    return total


def _files_below(
    top: str,
    *,
    hidden: bool,
    missing_ok: bool = True,
    on_error: Callable[[OSError], object] | None = None,
) -> Iterator[os.DirEntry[str]]:
    directories = [top]  # not by recursion: the depth is in the hands of others
    while directories:
        directory = directories.pop()
        try:
            with os.scandir(directory) as entries:
                found = list(entries)
        except FileNotFoundError:
            if directory != top or missing_ok:
                continue  # removed just now
            raise
        except OSError as error:
            if on_error is None or directory == top:
                raise
            on_error(error)
            continue
        for entry in found:
            if not entry.is_dir(follow_symlinks=False):
                yield entry
            elif hidden or not (entry.name.startswith(".") or entry.name == "lost+found"):
                directories.append(entry.path)
