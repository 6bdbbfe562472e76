"""READY and LEASE: small files in a queue's directory by which processes announce themselves.

READY means that the setup is complete; LEASE identifies the process. Both appear by an atomic
rename and are not synced to disk, because they describe running processes. docs/formats/bus.md
describes the bytes.
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
from tapewire.protocol.json_file import decode, locked_directory

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
    """Announce that the writer of the queue at `path` is ready: `RouterDiscovery` now finds it.

    Create the queue first. Before a restart call `clear_ready`, as a killed process may have left
    READY. Nothing happens if READY exists.

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
    """Whether `path` contains READY as a regular file."""
    try:
        return stat.S_ISREG(os.lstat(Path(path) / READY).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def clear_ready(path: str | os.PathLike[str]) -> None:
    """Remove READY if it exists; `RouterDiscovery` reports the strategy as removed."""
    (Path(path) / READY).unlink(missing_ok=True)


@dataclass(frozen=True)
class Lease:
    """The process that owns a queue, as stored in LEASE.

    Attributes:
        pid: Process id.
        start_time_ticks: Start time of the process in clock ticks since the boot. A pid is reused,
            a pid with its start time is not.
        epoch: Count of starts, chosen by the owner; for people and policies.
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
        """Whether the process that wrote this lease is running.

        False for a reused pid, another boot and another host. A process in another pid namespace
        (a container) is not visible: use `LeaseWatch`.
        """
        if (self.host and self.host != platform.node()) or (
            self.boot_id and self.boot_id != boot_id()
        ):
            return False
        return process_start_ticks(self.pid) == self.start_time_ticks

    @property
    def is_stale(self) -> bool:
        """Whether the process that wrote this lease is no longer running."""
        return not self.alive


def write_lease(path: str | os.PathLike[str], epoch: int = 1) -> Lease:
    """Write LEASE for the calling process into the directory `path`; return the lease.

    Renew it about once a second for processes that watch it from another container.

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
        raise RuntimeError("cannot read the start time of this process: /proc is not mounted")
    lease = Lease(pid, ticks, epoch, wall_clock_ns(), platform.node(), boot_id())
    line = json.dumps({"version": LEASE_VERSION, **asdict(lease)}) + "\n"
    _publish(Path(path), LEASE, line.encode())
    return lease


def clear_lease(path: str | os.PathLike[str]) -> None:
    """Remove LEASE if it exists, as at a regular exit."""
    (Path(path) / LEASE).unlink(missing_ok=True)


def read_lease(path: str | os.PathLike[str]) -> Lease | None:
    """Read the lease in the directory `path`, or None if there is none.

    Raises:
        CorruptMetadata: LEASE is damaged or not a regular file.
        UnsupportedVersion: A later release wrote it.
    """
    file = Path(path) / LEASE
    try:
        # Non-blocking, so that opening a FIFO does not hang.
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if file.is_symlink():
            raise _corrupt(file, "it is a link") from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _corrupt(file, "not a regular file")
        content = os.read(descriptor, _LEASE_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    if len(content) > _LEASE_BYTES_MAX:
        raise _corrupt(file, f"more than {_LEASE_BYTES_MAX} bytes")
    return _parse(file, content)


class LeaseWatch:
    """Detects whether the owner of a lease is alive by whether the lease changes.

    Ages are measured on the monotonic clock of this process, so a jump of the wall clock has no
    effect. The first `look` counts as a change, whatever the timestamp.

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
        """Read the lease; return whether it has changed within `ttl` seconds. False if missing."""
        lease = read_lease(self.path)
        now = time.monotonic()
        if lease != self.lease:
            self.lease, self._changed = lease, now
        return lease is not None and now - self._changed <= self.ttl

    def __repr__(self) -> str:
        return f"<LeaseWatch {os.fspath(self.path)!r} ttl={self.ttl} lease={self.lease}>"


def _publish(directory: Path, name: str, content: bytes) -> None:
    """Create or replace a file atomically, readable only by its owner."""
    temporary = directory / f"{name}.tmp"
    # Locked, as the temporary name is shared and a previous process may still renew its lease.
    with locked_directory(os.fspath(directory), name):
        temporary.unlink(missing_ok=True)  # left by a killed process
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600)
        try:
            os.write(descriptor, content)  # less than a page: complete or an error
        finally:
            os.close(descriptor)
        temporary.rename(directory / name)


def boot_id() -> str:
    """Return the kernel's id of the current boot; empty if it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""  # masked in some containers; the start time identifies the process


def _corrupt(file: Path, what: str) -> CorruptMetadata:
    return CorruptMetadata(
        f"invalid lease: {what}",
        path=os.fspath(file),
        hint="remove it; its owner writes it again",
    )


_INTEGER_FIELDS = ("pid", "start_time_ticks", "epoch", "timestamp_ns")
_TEXT_FIELDS = ("host", "boot_id")


def _parse(file: Path, content: bytes) -> Lease:
    try:
        table: Any = decode(content)
    except ValueError as error:
        raise _corrupt(file, f"not valid JSON: {error}") from error
    if not isinstance(table, dict):
        raise _corrupt(file, "not a JSON object")
    version = _integer(file, table, "version")
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
            raise _corrupt(file, f"{name} must be a str: {name}={table[name]!r}")
    fields: dict[str, Any] = {name: _integer(file, table, name) for name in _INTEGER_FIELDS}
    return Lease(**fields, **{name: table.get(name, "") for name in _TEXT_FIELDS})


def _integer(file: Path, table: dict[str, Any], name: str) -> int:
    value = table.get(name)
    if type(value) is not int or not 0 <= value < 2**63:
        raise _corrupt(file, f"{name} must be an int from 0 to 2**63 - 1: {name}={value!r}")
    return value
