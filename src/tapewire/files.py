"""Durable directories, atomic exchange, locks between processes, paths below a root."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from functools import cached_property
from pathlib import Path

from tapewire._native import is_name
from tapewire.errors import InvalidName, StorageError

__all__ = [
    "PathsBelow",
    "directories_below",
    "exchange",
    "is_queue",
    "make_directories",
    "path_below",
    "sync",
    "take_lock",
]

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_LOCK_STEP_SECONDS = 0.001


def is_queue(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a queue, valid or damaged: control.meta is created last, by a rename."""
    return os.path.lexists(os.path.join(path, "control.meta"))


def take_lock(fd: int, seconds: float = 0.0) -> bool:
    """Take the exclusive `flock` of an open file; return False if it is still held after `seconds`.

    Closing the file releases the lock, and so does the end of the process for any reason. The wait
    is limited because a signal handler that interrupts the holder would otherwise deadlock.

    Example:
        >>> _ = (tmp / "file").touch()
        >>> with open(tmp / "file") as one, open(tmp / "file") as other:
        ...     take_lock(one.fileno()), take_lock(other.fileno(), seconds=0.01)
        (True, False)
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOCK_STEP_SECONDS)
        else:
            return True


def path_below(root: Path, *parts: str) -> Path:
    """Join `root` and `parts`; raise `InvalidName` if a link on the way leads out of `root`.

    The path need not exist. `root` itself may be a link, since the user chose it.
    """
    path = root.joinpath(*parts)
    real_root = os.path.realpath(root)
    real = os.path.realpath(path)
    if os.path.commonpath([real_root, real]) != real_root:
        raise InvalidName(
            f"a link leads out of the root: {os.fspath(path)!r} is {real!r}",
            path=os.fspath(root),
            hint="replace the link by a directory, or use its target as a separate root",
        )
    return path


class PathsBelow:
    """`path_below` for many paths in one directory, which is resolved once.

    `path_below` checks every component of a path and of its root; this class checks only the
    components below the directory. Make a new one for each load: it does not notice links that
    appear above the directory later.

    Example:
        >>> raw = PathsBelow(tmp, "streams", "raw")
        >>> raw.path("binance", "queue") == path_below(tmp, "streams", "raw", "binance", "queue")
        True
    """

    def __init__(self, root: Path, *directory: str) -> None:
        self._root = root
        self._directory = directory

    @cached_property
    def _resolved(self) -> tuple[Path, str]:
        """The directory as named, and its real path."""
        path = path_below(self._root, *self._directory)
        return path, os.path.realpath(path)

    def path(self, *parts: str) -> Path:
        """Join the directory and `parts`.

        Raises:
            InvalidName: A link leads out of the root.
        """
        directory, real = self._resolved
        if _may_have_link(real, parts):
            return path_below(self._root, *self._directory, *parts)
        return directory.joinpath(*parts)


def _may_have_link(directory: str, parts: tuple[str, ...]) -> bool:
    """Whether one of `parts` is a link; True also if that cannot be determined."""
    at = directory
    for part in parts:
        at = f"{at}/{part}"
        try:
            if stat.S_ISLNK(os.lstat(at).st_mode):
                return True
        except (FileNotFoundError, NotADirectoryError):
            return False  # nothing below it can be a link
        except OSError:
            return True
    return False


def make_directories(directory: Path) -> None:
    """Create a directory and its missing parents with mode 0700, and sync their entries.

    Example:
        >>> make_directories(tmp / "archive" / "v1")
        >>> (tmp / "archive").stat().st_mode & 0o777 == 0o700
        True
    """
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
        sync(each.parent)  # else a power failure may lose the directory and its contents


def sync(path: str | os.PathLike[str]) -> None:
    """Sync a file, or the entries of a directory, to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def directories_below(directory: Path) -> list[str]:
    """Return the sorted names of the directories in `directory`, without links and invalid names.

    The result is empty if `directory` does not exist.
    """
    try:
        with os.scandir(directory) as entries:
            return sorted(
                entry.name
                for entry in entries
                if is_name(entry.name) and entry.is_dir(follow_symlinks=False)
            )
    except (FileNotFoundError, NotADirectoryError):
        return []


def exchange(one: Path, other: Path) -> bool:
    """Exchange two directories atomically; return False, unchanged, if unsupported (NFS).

    A new log or table replaces the old one in this way.

    Raises:
        StorageError: The system call failed.

    Example:
        >>> for name in ("old", "new"):
        ...     (tmp / name).mkdir()
        ...     _ = (tmp / name / "content").write_text(name)
        >>> exchange(tmp / "new", tmp / "old"), (tmp / "old/content").read_text()
        (True, 'new')
    """
    import ctypes  # not at start-up, as every reader and writer loads this module

    libc = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(one), os.fsencode(other)
    if libc.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS):
        return False
    raise StorageError(
        f"cannot replace the directory: {os.strerror(code)}", path=os.fspath(other), errno=code
    )
