"""Repairing a queue after a crash or damage: in place, or as a dry run on a copy."""

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

_FICLONE = 0x40049409  # share the blocks, where the filesystem can
_CHUNK_BYTES = 1 << 20
# How the lines begin that report a loss, or what the writer's threads met, not something done.
_ONLY_SEEN = (
    "numbers ",
    "the log was on disk up to ",
    "records at offsets ",
    "writing a seek index: ",
    "syncing a sealed segment: ",
    "stats.meta: ",
    "a sync of the writer before failed ",
)


@dataclass(frozen=True)
class Repair:
    """What was done, or would be.

    Attributes:
        path: The queue.
        rehearsed: It was done to a copy; the queue is as it was.
        actions: A line for each thing done; empty when there was nothing to do.
        notes: A line for each thing that was seen and cannot be repaired.
        next_seq: The number that the next record gets.
        padded: How many places of unfinished bytes were fenced off.
        damaged: How many damaged places were fenced off, with a copy kept.
        gaps: How many times numbers are missing.
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
    """Look at every record of a queue and repair what a crash or damage left.

    As the opening of a writer does, but for all segments: each damaged span becomes padding, with a
    copy of the segment kept; damaged segment headers and control.meta are written again; no valid
    record is lost, and none is appended.

    Example:
        >>> import tapewire as tw
        >>> from tapewire.queue.repair import repair
        >>> tw.open_publisher(tmp / "q", segment_bytes=1 << 20).close()
        >>> (tmp / "q" / "000000001.q.tmp").touch()
        >>> repair(tmp / "q").actions
        ('removed the temporary file 000000001.q.tmp',)

    Raises:
        WriterAlreadyActive: The queue has a living writer.
        CorruptMetadata: control.meta is damaged, and so is the header of every segment.
        FileNotFoundError: There is nothing at `path`.
    """
    before = status_of_damaged(path)  # a writer would make a queue where there is none
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
    """What `repair` would do, found out on a copy in a hidden directory beside the queue.

    Where the filesystem can, the copy shares the blocks of the queue; where not, it may take a
    third of what is free there, since living queues need space, too.

    Raises:
        StorageError: The copy would take more than that (its errno is ENOSPC).
        WriterAlreadyActive: The queue has a living writer, or got one meanwhile.
        CorruptMetadata: control.meta is damaged, and so is the header of every segment.
        FileNotFoundError: There is nothing at `path`.
    """
    before = status_of_damaged(path)
    if before.writer.alive:
        raise _has_writer(before)
    parent = os.path.dirname(before.path)
    with tempfile.TemporaryDirectory(prefix=".tapewire-repair-", dir=parent) as folder:
        copy = os.path.join(folder, "queue")
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
        hint="a living writer has repaired the queue when it opened it",
    )


def _differences(before: QueueStatus, after: QueueStatus) -> list[str]:
    """What the log lines of recovery do not report."""
    lines = []
    if before.writer.killed:
        lines.append(f"took the killed writer's name out of writer.lock: pid={before.writer.pid}")
    lines += [
        f"removed the temporary file {os.path.basename(path)}"
        for path in before.temporary_files
        if path not in after.temporary_files
    ]
    sealed_before = {segment.id: segment.sealed for segment in before.segments}
    readable = {segment.id for segment in before.segments if segment.readable}
    for segment in after.segments:
        if segment.id not in sealed_before:
            lines.append(f"made segment {segment.id}")
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
    """What the writer has to say goes to the log: into this list as well."""
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
    room = _Room(copy)
    for name in ("control.meta", "writer.lock", "index.meta", "stats.meta"):
        _copy_file(seen, name, copy, room)
    for reader in seen.readers:
        if not reader.alive:  # recovery leaves those that live alone
            _copy_file(seen, os.path.relpath(reader.path, seen.path), copy, room)
    for segment in seen.segments:
        name = os.path.basename(segment.path)
        _copy_file(seen, name, copy, room)
        _copy_file(seen, os.path.splitext(name)[0] + ".idx", copy, room)
    for path in seen.temporary_files:
        with open(os.path.join(copy, os.path.basename(path)), "xb"):
            pass  # it only has to be there


class _Room:
    """What a copy may take: a disk that it fills stops every living writer on it."""

    def __init__(self, folder: str) -> None:
        filesystem = os.statvfs(folder)
        self._folder = folder
        # A third: recovery, too, keeps a copy of what it mends.
        self._bytes = filesystem.f_bavail * filesystem.f_frsize // 3

    def take(self, count: int) -> None:
        self._bytes -= count
        if self._bytes < 0:
            raise StorageError(
                "a dry run on a copy would take more than a third of the free space: "
                f"missing={-self._bytes} bytes",
                path=os.path.dirname(self._folder),
                hint="free some space, or copy the queue elsewhere and look there",
                errno=errno.ENOSPC,
            )


def _copy_file(seen: QueueStatus, name: str, folder: str, room: _Room) -> None:
    """Copy one file of the queue, if it is there, with its holes."""
    source = os.path.join(seen.path, name)
    try:
        # No link out of the queue, and a pipe in its place must not hold us up.
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise StorageError("not a file, but in the place of one", path=source)
    with (
        open(fd, "rb", buffering=0) as old,
        open(os.path.join(folder, name), "xb", buffering=0, opener=_private) as new,
    ):
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
            return
        except OSError:
            pass  # most filesystems cannot
        os.truncate(new.fileno(), info.st_size)
        for start, end in _data_ranges(old.fileno(), info.st_size):
            for at in range(start, end, _CHUNK_BYTES):
                chunk = os.pread(old.fileno(), min(_CHUNK_BYTES, end - at), at)
                if chunk.count(0) != len(chunk):  # allocated ahead: a hole does
                    room.take(len(chunk))
                    os.pwrite(new.fileno(), chunk, at)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _data_ranges(fd: int, size: int) -> Iterator[tuple[int, int]]:
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            return  # only a hole is left
        at = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, at
