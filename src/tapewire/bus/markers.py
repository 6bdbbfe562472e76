"""READY and LEASE: small files in a queue's folder by which processes tell of each other.

READY says "my setup is done, join me"; LEASE says who is there. Both appear by an atomic rename and
are not synced to disk: they speak of running processes, and no process survives a power cut. The
bytes are in docs/formats/bus.md.
"""

from __future__ import annotations

import json
import os
import platform
import stat
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tapewire._native import process_start_ticks, wall_clock_ns
from tapewire.config import check_at_least, check_whole
from tapewire.errors import CorruptMetadata, UnsupportedVersion
from tapewire.protocol.json_file import decode, locked_folder

__all__ = [
    "Lease",
    "LeaseWatch",
    "clear_lease",
    "clear_ready",
    "is_ready",
    "mark_ready",
    "read_lease",
    "write_lease",
]

READY = "READY"
LEASE = "LEASE"
LEASE_VERSION = 1
_LEASE_BYTES_MAX = 4096


def mark_ready(path: str | os.PathLike[str]) -> None:
    """Say that whoever writes the queue in `path` is ready: `RouterDiscovery` now finds it.

    Make the queue first, and call `clear_ready` before a new start if a killed predecessor may have
    left its mark. Marked already: nothing happens.

    Example:
        >>> import tapewire as tw
        >>> from tapewire import bus
        >>> with tw.open_publisher(tmp / "orders_out", segment_bytes=65536) as orders:
        ...     bus.mark_ready(tmp / "orders_out")
        ...     bus.is_ready(tmp / "orders_out")
        True
    """
    if not is_ready(path):
        _publish(Path(path), READY, b"")


def is_ready(path: str | os.PathLike[str]) -> bool:
    """Whether `path` holds READY, as a file and not as a link."""
    try:
        return stat.S_ISREG(os.lstat(Path(path) / READY).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def clear_ready(path: str | os.PathLike[str]) -> None:
    """Take READY away; `RouterDiscovery` reports the strategy as removed. Not there: fine."""
    (Path(path) / READY).unlink(missing_ok=True)


@dataclass(frozen=True)
class Lease:
    """Who holds a place on the bus, as written in LEASE.

    Attributes:
        pid: The process.
        start_time_ticks: When it started, in clock ticks since the boot: a pid is given again,
            a pid with its start time is not.
        epoch: Counted by the holder, one more a life; for people and policies.
        timestamp_ns: Wall clock when the lease was written.
        host: Name of the host, or "".
        boot_id: The kernel's id of the boot, or "".
    """

    pid: int
    start_time_ticks: int
    epoch: int
    timestamp_ns: int
    host: str = ""
    boot_id: str = ""

    @property
    def alive(self) -> bool:
        """Whether the very process that wrote this lease still runs.

        A recycled pid, another boot and another host are not alive. A process in another pid
        namespace (a container) cannot be seen from here: watch it by `LeaseWatch`.
        """
        if (self.host and self.host != platform.node()) or (
            self.boot_id and self.boot_id != boot_id()
        ):
            return False
        return process_start_ticks(self.pid) == self.start_time_ticks

    @property
    def is_stale(self) -> bool:
        """Whether the process that wrote this lease is gone."""
        return not self.alive


def write_lease(path: str | os.PathLike[str], epoch: int = 1) -> Lease:
    """Write LEASE into the folder `path`, in the name of the calling process; what was written.

    Call it again every second or so, and those who watch from another container know too.

    Example:
        >>> from tapewire import bus
        >>> lease = bus.write_lease(tmp, epoch=3)
        >>> bus.read_lease(tmp) == lease, lease.alive
        (True, True)
    """
    check_whole("epoch", epoch, 0)
    pid = os.getpid()
    ticks = process_start_ticks(pid)
    if ticks is None:
        raise RuntimeError("the start time of this process cannot be read: /proc is not mounted")
    lease = Lease(pid, ticks, epoch, wall_clock_ns(), platform.node(), boot_id())
    line = json.dumps({"version": LEASE_VERSION, **asdict(lease)}) + "\n"
    _publish(Path(path), LEASE, line.encode())
    return lease


def clear_lease(path: str | os.PathLike[str]) -> None:
    """Take LEASE away, as who ends well does. Not there: fine."""
    (Path(path) / LEASE).unlink(missing_ok=True)


def read_lease(path: str | os.PathLike[str]) -> Lease | None:
    """The lease in the folder `path`, or None when there is none.

    Raises:
        CorruptMetadata: LEASE is there and is no lease.
        UnsupportedVersion: A later release wrote it.
    """
    file = Path(path) / LEASE
    try:
        # Not blocking: a fifo by that name would make us wait for its writer.
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if file.is_symlink():
            raise _corrupt(file, "a link") from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _corrupt(file, "not a file")
        content = os.read(descriptor, _LEASE_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    if len(content) > _LEASE_BYTES_MAX:
        raise _corrupt(file, f"more than {_LEASE_BYTES_MAX} bytes")
    return _parse(file, content)


class LeaseWatch:
    """Tells a stopped holder from a living one by whether its lease changes.

    Ages are counted on the monotonic clock of the one who watches: a jump of the wall clock kills
    nobody. The first look counts as a change, whatever its time stamp says.

    Example:
        >>> from tapewire import bus
        >>> watch = bus.LeaseWatch(tmp, ttl=5.0)
        >>> watch.look()  # no lease yet
        False
        >>> _ = bus.write_lease(tmp)
        >>> watch.look()
        True
    """

    def __init__(self, path: str | os.PathLike[str], ttl: float = 5.0) -> None:
        check_at_least("ttl", ttl, 0)
        self.path = Path(path)
        self.ttl = ttl
        self.lease: Lease | None = None
        self._changed = time.monotonic()

    def look(self) -> bool:
        """Whether the lease has changed within `ttl` seconds; False without one."""
        lease = read_lease(self.path)
        now = time.monotonic()
        if lease != self.lease:
            self.lease, self._changed = lease, now
        return lease is not None and now - self._changed <= self.ttl

    def __repr__(self) -> str:
        return f"<LeaseWatch {os.fspath(self.path)!r} ttl={self.ttl} lease={self.lease}>"


def _publish(folder: Path, name: str, content: bytes) -> None:
    """A file with this content appears at once, never half, readable by its owner alone."""
    temporary = folder / f"{name}.tmp"
    # One at a time: the temporary name is one, and a predecessor may still be renewing its lease.
    with locked_folder(os.fspath(folder), name):
        temporary.unlink(missing_ok=True)  # of a process that was killed at this very place
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600)
        try:
            os.write(descriptor, content)  # far below a page: whole or an error
        finally:
            os.close(descriptor)
        temporary.rename(folder / name)


def boot_id() -> str:
    """Of this machine since it started; empty where it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""  # masked in some containers; the start time still tells


def _corrupt(file: Path, what: str) -> CorruptMetadata:
    return CorruptMetadata(
        f"not a lease: {what}",
        path=os.fspath(file),
        hint="remove it; its owner writes it anew",
    )


_WHOLE_FIELDS = ("pid", "start_time_ticks", "epoch", "timestamp_ns")
_TEXT_FIELDS = ("host", "boot_id")


def _parse(file: Path, content: bytes) -> Lease:
    try:
        table: Any = decode(content)
    except ValueError as error:
        raise _corrupt(file, f"no JSON: {error}") from error
    if not isinstance(table, dict):
        raise _corrupt(file, "not a JSON object")
    version = _whole(file, table, "version")
    if version < 1:
        raise _corrupt(file, f"version must be at least 1: version={version}")
    if version > LEASE_VERSION:
        raise UnsupportedVersion(
            f"the lease has a later version: version={version}, known={LEASE_VERSION}",
            path=os.fspath(file),
            hint="read it with the release of Tapewire that wrote it, or a newer one",
        )
    for name in _TEXT_FIELDS:
        if not isinstance(table.get(name, ""), str):
            raise _corrupt(file, f"{name} must be text: {name}={table[name]!r}")
    fields: dict[str, Any] = {name: _whole(file, table, name) for name in _WHOLE_FIELDS}
    return Lease(**fields, **{name: table.get(name, "") for name in _TEXT_FIELDS})


def _whole(file: Path, table: dict[str, Any], name: str) -> int:
    value = table.get(name)
    if type(value) is not int or not 0 <= value < 2**63:
        raise _corrupt(file, f"{name} must be an int from 0 to 2**63 - 1: {name}={value!r}")
    return value
