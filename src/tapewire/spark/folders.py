"""Folders of what is written by Spark: private, durable, and where jobs and the sink keep notes."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["CONTROL", "make_folders", "sync"]

# Below a target: marks, manifests, what is not published yet. Spark takes nothing in it for data.
CONTROL = "_tapewire"


def make_folders(folder: Path) -> None:
    """The folder and those above it that are not there, for their owner alone.

    `Path.mkdir` gives its mode to the last one only.

    Example:
        >>> make_folders(tmp / "a" / "b")
        >>> oct((tmp / "a").stat().st_mode & 0o777)
        '0o700'
    """
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)


def sync(path: str | os.PathLike[str]) -> None:
    """Make a file durable, or the names in a folder."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
