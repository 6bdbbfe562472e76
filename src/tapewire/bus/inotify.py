"""Non-blocking inotify through libc, as Python has no module for it.

Only what discovery needs: which of the watched directories changed, and whether events were lost.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct
import weakref
from dataclasses import dataclass

__all__ = ["Event", "Inotify", "OutOfWatches"]

# <sys/inotify.h>, the same on every architecture.
IN_MOVED_FROM = 0x040
IN_MOVED_TO = 0x080
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_DELETE_SELF = 0x400
IN_MOVE_SELF = 0x800
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000
IN_DONT_FOLLOW = 0x0200_0000

# Entries added to or removed from a directory. Not IN_MODIFY: a queue is written by a mapping.
NAMES = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO
# The file or directory itself is removed or renamed; always reported.
ITSELF = IN_DELETE_SELF | IN_MOVE_SELF

_HEADER = struct.Struct("=iIII")  # wd, mask, cookie, length of the following name
_READ_BYTES = 64 << 10
_READS_MAX = 16  # per call, so that a call ends while files are created faster than it reads

# Errors when the user's instances, watches or the process's descriptors are used up, or when
# inotify is not available.
_LIMITS = {errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM, errno.ENOSYS, errno.EPERM}


class OutOfWatches(OSError):
    """No more inotify instances or watches are available."""


@dataclass(frozen=True)
class Event:
    """One change: in the directory of watch `wd`, of `name` ("" for the directory itself)."""

    wd: int
    mask: int
    name: str


class Inotify:
    """An inotify instance; `read` never blocks.

    It is closed in a forked child, which would otherwise take events of the parent.
    """

    _fd = -1  # not open

    def __init__(self) -> None:
        self._fd = _call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
        _instances.add(self)

    def watch(self, path: str | os.PathLike[str], mask: int = NAMES) -> int | None:
        """Watch the entries of a directory, or with ``mask=0`` only the removal of `path` itself.

        Returns the number of the watch, or None if `path` does not exist. A path that is already
        watched keeps its number and gets the new mask; a file created in its place gets another.
        """
        mask |= ITSELF | IN_DONT_FOLLOW
        try:
            return _call("inotify_add_watch", self._fd, os.fsencode(path), mask)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in (errno.EACCES, errno.ELOOP):  # no permission, or a cycle of links
                return None
            raise

    def unwatch(self, wd: int) -> None:
        """End a watch, if it has not ended with its directory."""
        try:
            _call("inotify_rm_watch", self._fd, wd)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise

    def read(self) -> list[Event]:
        """Return the events since the last call, oldest first; if there are many, a part."""
        events: list[Event] = []
        for _ in range(_READS_MAX):
            try:
                chunk = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                break
            at = 0
            while at < len(chunk):
                wd, mask, _, length = _HEADER.unpack_from(chunk, at)
                name = chunk[at + _HEADER.size : at + _HEADER.size + length].rstrip(b"\0")
                events.append(Event(wd, mask, os.fsdecode(name)))
                at += _HEADER.size + length
        return events

    def fileno(self) -> int:
        """Return the descriptor, which is readable while there are events."""
        return self._fd

    def close(self) -> None:
        """Close the instance with all its watches."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __repr__(self) -> str:
        return f"<Inotify fd={self._fd}>" if self._fd >= 0 else "<Inotify closed>"

    def __del__(self) -> None:
        self.close()


_instances: weakref.WeakSet[Inotify] = weakref.WeakSet()


def _close_all() -> None:
    for instance in list(_instances):
        instance.close()


os.register_at_fork(after_in_child=_close_all)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: int | bytes) -> int:
    result: int = getattr(_libc(), name)(*arguments)
    if result >= 0:
        return result
    number = ctypes.get_errno()
    message = f"{name}: {os.strerror(number)}"
    raise (OutOfWatches if number in _LIMITS else OSError)(number, message)
