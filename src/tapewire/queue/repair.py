"""Repair a queue after a crash or damage: in place, or as a dry run on a copy."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from tapewire.config import WriterConfig
from tapewire.errors import StorageError, WriterAlreadyActive
from tapewire.queue._native import Writer
from tapewire.queue.status import QueueStatus, status_of_damaged

__all__ = ["Repair", "rehearse", "repair"]

_FICLONE = 0x40049409  # share the blocks, where the filesystem supports it
_CHUNK_BYTES = 1 << 20
# Prefixes of the lines that report a loss, or an event of the writer's threads, not an action.
_ONLY_SEEN = (
    "sequence numbers ",
    "the log was on disk up to ",
    "records at offsets ",
    "writing a seek index: ",
    "syncing a sealed segment: ",
    "stats.meta: ",
    "a sync of the previous writer failed ",
)


@dataclass(frozen=True)
class Repair:
    """What a repair did, or would do.

    Attributes:
        path: The queue.
        rehearsed: It ran on a copy; the queue is unchanged.
        actions: A line for each action; empty if nothing needed repair.
        notes: A line for each problem that cannot be repaired.
        next_seq: The sequence number of the next record.
        padded: How many places with unfinished bytes became padding.
        damaged: How many damaged places became padding; a copy of the segment is kept.
        gaps: How many gaps there are in the sequence numbers.
    """

    path: str
    rehearsed: bool
    actions: tuple[str, ...]
    notes: tuple[str, ...]
    next_seq: int
    padded: int
    damaged: int
    gaps: int


def repair(path: str | os.PathLike[str]) -> Repair:
    """Check every record of a queue and repair what a crash or damage left.

    Does for all segments what opening a writer does for the last ones: each damaged span becomes
    padding, and a copy of the segment is kept; damaged segment headers and control.meta are written
    again. No valid record is lost, and none is appended.

    Example:
        >>> import tapewire as tw
        >>> from tapewire.queue.repair import repair
        >>> tw.open_publisher(tmp / "q", segment_bytes=1 << 20).close()
        >>> (tmp / "q" / "000000001.q.tmp").touch()
        >>> repair(tmp / "q").actions
        ('removed the temporary file 000000001.q.tmp',)

    Raises:
        WriterAlreadyActive: The queue has a living writer.
        CorruptMetadata: control.meta and the headers of all segments are damaged.
        FileNotFoundError: `path` does not exist.
    """
    before = status_of_damaged(path)  # a writer would create a queue where there is none
    config = WriterConfig(preallocate=False)
    with _log_lines() as lines, Writer(path, config, repair=True) as writer:
        counters = writer.metrics()
    said = [line.removeprefix(f"{before.path}: ") for line in lines]
    notes = [line for line in said if line.startswith(_ONLY_SEEN)]
    done = [line for line in said if line not in notes]
    return Repair(
        path=before.path,
        rehearsed=False,
        actions=(*_differences(before, status_of_damaged(path)), *done),
        notes=tuple(notes),
        next_seq=counters["next_seq"],
        padded=counters["recovered_pads"],
        damaged=counters["damaged_spans"],
        gaps=counters["gaps_found"],
    )


def rehearse(path: str | os.PathLike[str]) -> Repair:
    """Run `repair` on a copy in a hidden directory next to the queue, to see what it would do.

    The copy shares the blocks of the queue where the filesystem supports it. Elsewhere it may use
    up to a third of the free space, since live queues need space too.

    Raises:
        StorageError: The copy would use more than that (its errno is ENOSPC).
        WriterAlreadyActive: The queue has a living writer, or one opened it meanwhile.
        CorruptMetadata: control.meta and the headers of all segments are damaged.
        FileNotFoundError: `path` does not exist.
    """
    before = status_of_damaged(path)
    if before.writer.alive:
        raise _has_writer(before)
    parent = os.path.dirname(before.path)
    with tempfile.TemporaryDirectory(prefix=".tapewire-repair-", dir=parent) as directory:
        copy = os.path.join(directory, "queue")
        _copy_queue(before, copy)
        again = status_of_damaged(path)
        if again.writer.alive or again.writer.epoch != before.writer.epoch:
            raise _has_writer(again)
        done = repair(copy)
    return Repair(
        path=before.path,
        rehearsed=True,
        actions=tuple(line.replace(copy, before.path) for line in done.actions),
        notes=tuple(line.replace(copy, before.path) for line in done.notes),
        next_seq=done.next_seq,
        padded=done.padded,
        damaged=done.damaged,
        gaps=done.gaps,
    )


def _has_writer(seen: QueueStatus) -> WriterAlreadyActive:
    return WriterAlreadyActive(
        f"the queue has a writer: pid={seen.writer.pid}, epoch={seen.writer.epoch}",
        path=os.path.join(seen.path, "writer.lock"),
        hint="a writer repairs the queue when it opens it, so there is nothing to do",
    )


def _differences(before: QueueStatus, after: QueueStatus) -> list[str]:
    """The actions that the log lines of recovery do not report."""
    lines = []
    if before.writer.killed:
        lines.append(f"removed the killed writer's name from writer.lock: pid={before.writer.pid}")
    lines += [
        f"removed the temporary file {os.path.basename(path)}"
        for path in before.temporary_files
        if path not in after.temporary_files
    ]
    sealed_before = {segment.id: segment.sealed for segment in before.segments}
    readable = {segment.id for segment in before.segments if segment.readable}
    for segment in after.segments:
        if segment.id not in sealed_before:
            lines.append(f"created segment {segment.id}")
        elif segment.sealed and segment.id in readable and not sealed_before[segment.id]:
            lines.append(f"sealed segment {segment.id}")
    return lines


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def _log_lines() -> Iterator[list[str]]:
    """Collect the messages that the writer logs."""
    handler = _Lines()
    log = logging.getLogger("tapewire.queue")
    log.addHandler(handler)
    try:
        yield handler.lines
    finally:
        log.removeHandler(handler)


# ---- the copy


def _copy_queue(seen: QueueStatus, copy: str) -> None:
    os.makedirs(os.path.join(copy, "readers"), 0o700)
    space = _SpaceLimit(copy)
    for name in ("control.meta", "writer.lock", "index.meta", "stats.meta"):
        _copy_file(seen, name, copy, space)
    for reader in seen.readers:
        if not reader.alive:  # recovery does not change the live ones
            _copy_file(seen, os.path.relpath(reader.path, seen.path), copy, space)
    for segment in seen.segments:
        name = os.path.basename(segment.path)
        _copy_file(seen, name, copy, space)
        _copy_file(seen, os.path.splitext(name)[0] + ".idx", copy, space)
    for path in seen.temporary_files:
        with open(os.path.join(copy, os.path.basename(path)), "xb"):
            pass  # only its name matters


class _SpaceLimit:
    """Limits the space that a copy uses: a full disk stops every live writer on it."""

    def __init__(self, directory: str) -> None:
        filesystem = os.statvfs(directory)
        self._directory = directory
        # A third: recovery itself keeps copies of what it repairs.
        self._bytes = filesystem.f_bavail * filesystem.f_frsize // 3

    def take(self, count: int) -> None:
        self._bytes -= count
        if self._bytes < 0:
            raise StorageError(
                "a dry run on a copy would use more than a third of the free space: "
                f"missing={-self._bytes} bytes",
                path=os.path.dirname(self._directory),
                hint="free some space, or copy the queue elsewhere and run it there",
                errno=errno.ENOSPC,
            )


def _copy_file(seen: QueueStatus, name: str, directory: str, space: _SpaceLimit) -> None:
    """Copy one file of the queue, if it exists, with its holes."""
    source = os.path.join(seen.path, name)
    try:
        # Do not follow a link out of the queue, nor block on a pipe.
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise StorageError("not a regular file", path=source)
    with (
        open(fd, "rb", buffering=0) as old,
        open(os.path.join(directory, name), "xb", buffering=0, opener=_private) as new,
    ):
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
            return
        except OSError:
            pass  # most filesystems do not support it
        os.truncate(new.fileno(), info.st_size)
        for start, end in _data_ranges(old.fileno(), info.st_size):
            for at in range(start, end, _CHUNK_BYTES):
                chunk = os.pread(old.fileno(), min(_CHUNK_BYTES, end - at), at)
                if chunk.count(0) != len(chunk):  # zeros that were allocated ahead stay a hole
                    space.take(len(chunk))
                    os.pwrite(new.fileno(), chunk, at)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _data_ranges(fd: int, size: int) -> Iterator[tuple[int, int]]:
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            return  # only a hole follows
        at = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, at
