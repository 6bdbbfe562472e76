"""A queue seen from outside: who writes it, who reads it, and how far behind each reader is."""

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
        sealed: It takes no more records.
        readable: Its length and header are right; `problems` says what is not.
        has_index: It has a seek index beside it.
        holds_records: Whether there is a record in it; None when that cannot be found out.
        first_seq: Number of the first record in it, or None.
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
        alive: Somebody holds the lock of the queue.
        pid: Who took it last; None after a clean close.
        epoch: How many writers the queue has had.
        heartbeat_ns: The last heartbeat, as stored.
        heartbeat_age: Seconds since then by the wall clock, which may jump: who wants to be sure
            looks twice and compares `heartbeat_ns`.
    """

    alive: bool
    pid: int | None
    epoch: int
    heartbeat_ns: int
    heartbeat_age: float

    @property
    def killed(self) -> bool:
        """The last writer neither lives nor was closed."""
        return self.pid is not None and not self.alive


@dataclass(frozen=True)
class ReaderStatus:
    """One named reader. All lags are 0 when no record lies behind its committed position.

    Attributes:
        name: Its name.
        path: Its file.
        alive: Somebody holds the lock of that file.
        pinned: Retention waits for it, alive or not.
        segment: Of the committed position.
        offset: Of the committed position.
        heartbeat_ns: The last heartbeat, as stored.
        heartbeat_age: Seconds since then by the wall clock.
        lag_records: Records it has not committed; None when it cannot be known (see `problems`).
        lag_bytes: Bytes of log from there to the end; segments in between count whole.
        lag_segments: Segments from there to the end.
        lag_seconds: Time stamp of the last record minus that of the first uncommitted one.
        next_seq: Number of the record it would read next; None when that is not known.
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
    """All that can be seen of a queue at one moment.

    Attributes:
        path: The queue's folder.
        version: Of its control file; 0 when that cannot be read.
        segment_bytes: Size of each segment.
        first_seq: Number of the very first record.
        sparse: Numbers may skip.
        current_segment: Where the writer is, by the control file: a hint.
        write_offset: The same, in that segment.
        end_segment: Where the next record comes, by the segments themselves.
        end_offset: The same, in that segment.
        checkpoint: Segment and offset up to which all is on disk, as the writer noted; or None.
        sync_errno: Why a sync of a writer failed, if none has succeeded since; 0 otherwise. Records
            after the checkpoint may be lost.
        last_seq: Number of the last record, or None.
        last_timestamp_ns: Its time, or None.
        first_available_seq: Number of the first record that is there, or None.
        records: How many there are by their numbers; None in a sparse log, and where another
            implementation may have begun numbers anew.
        segments: Every segment, in order.
        disk_bytes: What the whole folder takes on disk.
        writer: The writer.
        readers: Every named reader, by name.
        metrics: The writer's counters by name; None when there are none.
        ready: The folder is marked READY.
        lease: What LEASE says, or None.
        temporary_files: Half-made files; a living writer has some, a killed one leaves them.
        damaged_copies: Segments as they were before recovery mended them.
        problems: One line for each thing that could not be read.
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
        """The same as plain dicts and lists, ready for JSON."""
        fields = dataclasses.asdict(self)
        fields["checkpoint"] = None if self.checkpoint is None else list(self.checkpoint)
        for name in ("segments", "readers", "temporary_files", "damaged_copies", "problems"):
            fields[name] = list(fields[name])
        return fields


class QueueWatch:
    """Looks at one queue again and again; any thread may look.

    It remembers how far it has counted, so that a look costs the same however long the log is, and
    holds no file open in between. Damage in a sealed segment that comes after the first look is not
    seen: `tapewire verify` reads everything.

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
        """The queue's folder."""
        return self._watch.path

    def look(self) -> QueueStatus:
        """The queue as it is now.

        Raises:
            FileNotFoundError: There is nothing at the path.
            NotALog: What is there is not a queue.
        """
        if (kind := kind_of(self.path)) != "queue":
            raise NotALog(f"this is not a queue: kind={kind}", path=self.path)
        with self._lock:
            seen = self._watch.look()
        return _named(self.path, seen)

    def __repr__(self) -> str:
        return f"<QueueWatch {self.path!r}>"


def status(path: str | os.PathLike[str]) -> QueueStatus:
    """A queue as it is now: writes nothing, registers nothing, works on a live or damaged one.

    What cannot be read becomes a line in `problems`. Whoever looks often uses a `QueueWatch`.

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
        FileNotFoundError: There is nothing at `path`.
        NotALog: What is there is not a queue.
    """
    return QueueWatch(path).look()


def status_of_damaged(path: str | os.PathLike[str]) -> QueueStatus:
    """As `status`, also of a queue whose control.meta is missing."""
    if is_queue(path) or not _has_segments(path):
        return status(path)
    watch = Watch(path)
    return _named(watch.path, watch.look())


def _has_segments(path: str | os.PathLike[str]) -> bool:
    try:
        return any(name.endswith(".q") and name[:-2].isdigit() for name in os.listdir(path))
    except OSError:
        return False  # `status` raises what is wrong with the path


def find_queues(
    root: str | os.PathLike[str], on_error: Callable[[OSError], object] | None = None
) -> list[str]:
    """The path of every queue at or below `root`, sorted.

    Links are not followed; folders whose name begins with a dot, and a filesystem's own lost+found,
    are not looked into. `on_error` is told of each folder below `root` that cannot be listed;
    without it the first of them raises.

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
        # A pipe in its place would hold us up for ever.
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
        # It is to be given on: nothing in it may be too deep for that, nor be no JSON at all (NaN).
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
    def tell(error: OSError) -> None:
        problems.append(f"folder cannot be listed: {error.strerror} [{error.filename}]")

    total = 0
    for entry in _files_below(path, hidden=True, on_error=tell):
        try:
            total += entry.stat(follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:
            continue  # retired, or given its name, just now
    return total


def _files_below(
    top: str,
    *,
    hidden: bool,
    missing_ok: bool = True,
    on_error: Callable[[OSError], object] | None = None,
) -> Iterator[os.DirEntry[str]]:
    folders = [top]  # not by recursion: whoever makes folders decides how deep it goes
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                found = list(entries)
        except FileNotFoundError:
            if folder != top or missing_ok:
                continue  # removed just now
            raise
        except OSError as error:
            if on_error is None or folder == top:
                raise
            on_error(error)
            continue
        for entry in found:
            if not entry.is_dir(follow_symlinks=False):
                yield entry
            elif hidden or not (entry.name.startswith(".") or entry.name == "lost+found"):
                folders.append(entry.path)
