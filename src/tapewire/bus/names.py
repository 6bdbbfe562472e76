"""Names that become folders, and paths that stay below their root."""

from __future__ import annotations

import os
import re
import stat
from functools import cached_property
from pathlib import Path

from tapewire._native import NAME_RULE, is_name
from tapewire.errors import InvalidName

__all__ = ["PathsBelow", "check_name", "folders_below", "make_folders", "path_below", "sync"]

_SHOWN = 64  # of a name in a message; what is longer is wrong for that alone


def check_name(what: str, name: str) -> str:
    """The name, when it may become a folder: the rule is the engine's, for readers too.

    Example:
        >>> check_name("venue", "binance_spot")
        'binance_spot'
        >>> check_name("symbol", "BTC/USDT")
        Traceback (most recent call last):
        tapewire.errors.InvalidName: not a valid symbol: symbol='BTC/USDT'; use 1 to 128 letters, \
digits, '.', '_' or '-', not starting with '.': for example 'BTCUSDT' or 'BTC-USDT'
    """
    if not isinstance(name, str):
        raise InvalidName(f"a {what} must be text: {what}={name!r}", hint=NAME_RULE)
    if is_name(name):
        return name
    shown = repr(name) if len(name) <= _SHOWN else f"{name[:_SHOWN]!r}… ({len(name)} characters)"
    raise InvalidName(f"not a valid {what}: {what}={shown}", hint=NAME_RULE + _for_example(name))


def _for_example(name: str) -> str:
    without = [re.sub(r"[^A-Za-z0-9._-]+", glue, name).strip(".-") for glue in ("", "-")]
    near = [repr(candidate) for candidate in dict.fromkeys(without) if is_name(candidate)]
    return f": for example {' or '.join(near)}" if near else ""


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


def make_folders(folder: Path) -> None:
    """The folder and those above it that are not there, for their owner alone; on disk after it.

    Example:
        >>> make_folders(tmp / "archive" / "v1")
        >>> (tmp / "archive").stat().st_mode & 0o777 == 0o700
        True
    """
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
        sync(each.parent)  # else a loss of power takes everything in it along


def sync(path: str | os.PathLike[str]) -> None:
    """Make a file durable, or the names in a folder."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def folders_below(folder: Path) -> list[str]:
    """Names of the folders in `folder`, sorted; links and what has no valid name are passed over.

    A folder that is not there has none.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name
                for entry in entries
                if is_name(entry.name) and entry.is_dir(follow_symlinks=False)
            )
    except (FileNotFoundError, NotADirectoryError):
        return []
