"""The kernel's file notifications, non-blocking, over libc: Python has no module for them.

Only what discovery needs: which of the watched folders changed, and that events were lost.
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

# Names that come and go in a folder. Never IN_MODIFY: a queue is written through a mapping.
NAMES = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO
# That the file or folder itself goes; always told.
ITSELF = IN_DELETE_SELF | IN_MOVE_SELF

_HEADER = struct.Struct("=iIII")  # wd, mask, cookie, length of the name behind it
_READ_BYTES = 64 << 10
_READS_MAX = 16  # a call: whoever makes files faster than we read keeps nobody here

# What the kernel says when the user's instances, watches or the process's descriptors are used up,
# or when inotify is not there at all.
_LIMITS = {errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM, errno.ENOSYS, errno.EPERM}


class OutOfWatches(OSError):
    """The kernel gives no more inotify instances or watches."""


@dataclass(frozen=True)
class Event:
    """One change: in the folder of watch `wd`, to `name` ("" for the folder itself)."""

    wd: int
    mask: int
    name: str


class Inotify:
    """An inotify instance; `read` never blocks.

    A forked child does not keep it: the two would take each other's events.
    """

    _fd = -1  # until the kernel has given one

    def __init__(self) -> None:
        self._fd = _call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
        _instances.add(self)

    def watch(self, path: str | os.PathLike[str], mask: int = NAMES) -> int | None:
        """Watch a folder's names, or with ``mask=0`` only whether the file or folder itself goes.

        Returns the number of the watch, or None when there is nothing at `path`. What is watched
        already keeps its number and gets the new mask; what is made in its place has another.
        """
        mask |= ITSELF | IN_DONT_FOLLOW
        try:
            return _call("inotify_add_watch", self._fd, os.fsencode(path), mask)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in (errno.EACCES, errno.ELOOP):  # not ours to look into, or nowhere
                return None
            raise

    def unwatch(self, wd: int) -> None:
        """End a watch; one that ended with its folder is fine."""
        try:
            _call("inotify_rm_watch", self._fd, wd)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise

    def read(self) -> list[Event]:
        """What happened since the last call, or the older part of it; empty when nothing did."""
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
        """Readable while there are events."""
        return self._fd

    def close(self) -> None:
        """Give it up, with all its watches."""
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
