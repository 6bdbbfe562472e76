"""Durable directories, replacement in one step, locks between processes, paths below a root."""

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
    """Whether a queue is at `path`, valid or damaged: control.meta is made last, by one rename."""
    return os.path.lexists(os.path.join(path, "control.meta"))


def take_lock(fd: int, seconds: float = 0.0) -> bool:
    """Take the exclusive `flock` of an open file; False when it is still held after `seconds`.

    Closing the file gives it back, and so does the end of the process, by whatever cause. The wait
    ends because a signal handler that interrupts the holder would otherwise wait for itself.

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
    """`root` and `parts` joined; refused when a link on the way leads out of `root`.

    Nothing need exist. `root` itself may be a link: it is what the user named.
    """
    path = root.joinpath(*parts)
    real_root = os.path.realpath(root)
    real = os.path.realpath(path)
    if os.path.commonpath([real_root, real]) != real_root:
        raise InvalidName(
            f"a link leads out of the root: {os.fspath(path)!r} is {real!r}",
            path=os.fspath(root),
            hint="replace the link by a folder, or give the place it leads to as a root of its own",
        )
    return path


class PathsBelow:
    """`path_below` for many paths of one directory: the way to that directory is resolved once.

    `path_below` looks at every component of a path and of its root; this looks, for each path, only
    at the components past the directory. Make a new one for each load: it sees no link that appears
    above the directory later.

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
        """The directory as it is named, and without links."""
        path = path_below(self._root, *self._directory)
        return path, os.path.realpath(path)

    def path(self, *parts: str) -> Path:
        """The directory and `parts` joined; refused when a link on the way leads out of the root.

        Raises:
            InvalidName: A link leads out of the root.
        """
        directory, real = self._resolved
        if _may_have_link(real, parts):
            return path_below(self._root, *self._directory, *parts)
        return directory.joinpath(*parts)


def _may_have_link(directory: str, parts: tuple[str, ...]) -> bool:
    """Whether one of `parts` is a link; also True where that cannot be seen."""
    at = directory
    for part in parts:
        at = f"{at}/{part}"
        try:
            if stat.S_ISLNK(os.lstat(at).st_mode):
                return True
        except (FileNotFoundError, NotADirectoryError):
            return False  # and what does not exist contains no link
        except OSError:
            return True
    return False


def make_directories(directory: Path) -> None:
    """Make a directory and its missing parents, for their owner alone, and sync their names.

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
        sync(each.parent)  # else a loss of power takes everything in it along


def sync(path: str | os.PathLike[str]) -> None:
    """Make a file durable, or the names in a directory."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def directories_below(directory: Path) -> list[str]:
    """Return the names of the directories in `directory`, sorted; without links and invalid names.

    A directory that does not exist has none.
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
    """Let two directories change places; False where the filesystem cannot (NFS): nothing changed.

    This is how a new log or table takes over from the old one in one step.

    Raises:
        StorageError: The operating system refused.

    Example:
        >>> for name in ("old", "new"):
        ...     (tmp / name).mkdir()
        ...     _ = (tmp / name / "content").write_text(name)
        >>> exchange(tmp / "new", tmp / "old"), (tmp / "old/content").read_text()
        (True, 'new')
    """
    import ctypes  # not at start-up: every reader and writer loads this module

    libc = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(one), os.fsencode(other)
    if libc.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS):
        return False
    raise StorageError(
        f"a directory cannot be replaced: {os.strerror(code)}", path=os.fspath(other), errno=code
    )
