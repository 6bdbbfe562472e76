"""Names that become folders, and paths that stay below their root."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tapewire._native import NAME_RULE, is_name
from tapewire.errors import InvalidName

__all__ = ["check_name", "folders_below", "make_folders", "path_below", "sync"]

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
