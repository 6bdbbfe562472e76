"""Directories of the jobs that write to an archive, and the lock for committing."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tapewire._native import process_start_ticks, wall_clock_ns
from tapewire.bus.markers import Lease, boot_id
from tapewire.bus.names import check_name
from tapewire.errors import ConcurrentUse, CorruptMetadata
from tapewire.files import directories_below, make_directories, path_below, take_lock
from tapewire.protocol.json_file import InvalidField, load, members, parse_checked

__all__ = ["Jobs", "commit_lock"]

LOCK_SECONDS = 600.0  # to wait for another job's commit
FOREIGN_SECONDS = 7 * 86_400.0  # after which an idle job of another host counts as dead
_UNFINISHED_SECONDS = 3600.0
_JOB_FILE = "job.json"
_JOB = "job-"
_NEW = "new-"
_MAX_FILE_BYTES = 4096
_MAX_STEPS_UP = 32


class Jobs:
    """`_tapewire/staging`: a directory for each job, with a file that identifies its driver.

    Args:
        control: The directory `_tapewire` of the archive.
    """

    def __init__(self, control: Path) -> None:
        self._directory = path_below(control, "staging")

    def __repr__(self) -> str:
        return f"<Jobs {os.fspath(self._directory)!r}>"

    def create(self, writer: str | None) -> str:
        """Create the directory of a new job of this driver; returns its name."""
        make_directories(self._directory)
        name = f"{_JOB}{uuid.uuid4().hex}"
        temporary = self._directory / f"{_NEW}{name}"
        temporary.mkdir(mode=0o700)
        document = {**dataclasses.asdict(_driver()), "writer": writer or ""}
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(temporary / _JOB_FILE, how, 0o600), "w") as file:
            json.dump(document, file)
        temporary.rename(self._directory / name)
        return name

    def directory(self, job: str) -> Path:
        """The directory of a job, whether it exists or not."""
        return path_below(self._directory, check_name("job", job))

    def remove(self, job: str) -> None:
        """Remove a job's directory; an attempt that still writes to it fails."""
        shutil.rmtree(self.directory(job), ignore_errors=True)

    def sweep(self, mine: str | None) -> None:
        """Remove the directories of jobs that can no longer commit.

        Those are jobs whose driver is dead, and earlier batches of the query of `mine`. A driver on
        another host cannot be checked: its job counts as dead when nothing was written to its
        directory for a week.
        """
        me = None
        if mine is not None:
            with contextlib.suppress(FileNotFoundError):  # its batch was published before
                me = self._read(mine)
        for name in directories_below(self._directory):
            if name == mine:
                continue
            if name.startswith(_NEW):
                if _idle_seconds(self._directory / name) > _UNFINISHED_SECONDS:
                    shutil.rmtree(self._directory / name, ignore_errors=True)
                continue
            try:
                lease, writer = self._read(name)
            except FileNotFoundError:
                # A job has this file until it ends: this one has ended, and one of its tasks has
                # written since.
                dead = name.startswith(_JOB)
            except CorruptMetadata:
                # Unknown content: removed after a week without writes.
                dead = _idle_seconds(self._directory / name) > FOREIGN_SECONDS
            else:
                dead = _is_dead(lease, self._directory / name) or (
                    me is not None
                    and writer != ""
                    and (_who(lease), writer) == (_who(me[0]), me[1])
                )
            if dead:
                self.remove(name)

    def _read(self, job: str) -> tuple[Lease, str]:
        path = os.fspath(self.directory(job) / _JOB_FILE)
        return parse_checked(
            load(path, _MAX_FILE_BYTES), path, _checked, "remove the job's directory"
        )


def _checked(document: Any) -> tuple[Lease, str]:
    members(
        document,
        "the document",
        pid=int,
        start_time_ticks=int,
        epoch=int,
        timestamp_ns=int,
        host=str,
        boot_id=str,
        writer=str,
    )
    for name in ("pid", "start_time_ticks", "epoch", "timestamp_ns"):
        if not 0 <= document[name] < 2**63:
            raise InvalidField(f"{name} must be from 0 to 2**63 - 1: {name}={document[name]}")
    if document["pid"] == 0:
        raise InvalidField("no such process: pid=0")
    writer = document.pop("writer")
    return Lease(**document), writer


def _who(lease: Lease) -> tuple[Any, ...]:
    return lease.host, lease.boot_id, lease.pid, lease.start_time_ticks


def _is_dead(lease: Lease, directory: Path) -> bool:
    if lease.host != platform.node():
        return _idle_seconds(directory) > FOREIGN_SECONDS
    return not lease.alive


def _idle_seconds(directory: Path) -> float:
    """Seconds since something was created or removed in a job's directory or its attempts'."""
    newest = 0.0
    for path in (directory, *(directory / name for name in directories_below(directory))):
        with contextlib.suppress(FileNotFoundError):
            newest = max(newest, path.stat().st_mtime)
    return time.time() - newest


def _driver() -> Lease:
    """Spark's driver: the JVM above this process. Python workers come and go during a job."""
    pid = os.getpid()
    for _ in range(_MAX_STEPS_UP):
        name, parent = _process(pid)
        if name == "java":
            break
        if parent <= 1:
            pid = os.getpid()
            break
        pid = parent
    ticks = process_start_ticks(pid)
    if ticks is None:
        raise RuntimeError("cannot read the start time of a process: /proc is not mounted")
    return Lease(pid, ticks, 0, wall_clock_ns(), platform.node(), boot_id())


def _process(pid: int) -> tuple[str, int]:
    """The name and the parent of a process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "", 0
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, int(rest.split()[1])


@contextlib.contextmanager
def commit_lock(control: Path, job: str) -> Iterator[None]:
    """Prevent other commits to the archive. If this process is killed, the kernel unlocks it.

    Raises:
        ConcurrentUse: Another job did not end within `LOCK_SECONDS`; the message names it.
    """
    make_directories(control)
    path = control / "commit.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if not take_lock(fd, LOCK_SECONDS):
            holder = os.pread(fd, 512, 0).decode(errors="replace").strip()
            raise ConcurrentUse(
                f"another job has been committing for {LOCK_SECONDS} s: {holder!r}",
                path=os.fspath(path),
                hint="wait until it ends, or end it",
            )
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"host={platform.node()} pid={os.getpid()} job={job}\n".encode(), 0)
        yield
    finally:
        os.close(fd)
