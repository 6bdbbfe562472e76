"""Folders that appear whole: made aside, and put in their place in one step.

A kill leaves the old folder or the new one, never a part of one; what it leaves aside is swept by
the next run of the same job.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from tapewire.bus.layout import CONTROL
from tapewire.errors import ConcurrentUse, InvalidOption
from tapewire.files import exchange, make_directories, path_below, sync, take_lock

__all__ = ["Workshop"]


class Workshop:
    """Where a job makes folders for its target: `<target>/_tapewire/<job>`.

    Example:
        >>> shop = Workshop(tmp, "compact")
        >>> with shop.folder() as made:
        ...     _ = (made / "a.txt").write_text("new")
        ...     shop.publish(made, tmp / "x" / "y")
        >>> (tmp / "x" / "y" / "a.txt").read_text()
        'new'
    """

    def __init__(self, target: str | os.PathLike[str], job: str) -> None:
        self.target = Path(target)
        self._shop = path_below(self.target, CONTROL, job)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else runs this job at this target; what killed runs left is swept.

        Raises:
            ConcurrentUse: Somebody does.
        """
        make_directories(self._shop)
        fd = os.open(self._shop, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if not take_lock(fd):
                raise ConcurrentUse(
                    f"this job is running at this target already: job={self._shop.name}",
                    path=os.fspath(self.target),
                    hint="wait for it",
                )
            for name in os.listdir(self._shop):
                shutil.rmtree(self._shop / name, ignore_errors=True)
            yield
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """A new folder; gone at the end, unless it was published."""
        make_directories(self._shop)
        made = self._shop / uuid.uuid4().hex
        made.mkdir(mode=0o700)
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def publish(self, made: Path, place: Path) -> None:
        """Put a folder into its place, durably; what was there is removed afterwards.

        Raises:
            InvalidName: A link leads the place out of the target.
            InvalidOption: The filesystem cannot exchange two folders in one step.
        """
        path_below(self.target, os.path.relpath(place, self.target))
        _sync_tree(made)
        make_directories(place.parent)
        try:
            os.rename(made, place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            if not exchange(made, place):
                raise InvalidOption(
                    "this filesystem cannot exchange two folders in one step",
                    path=os.fspath(place),
                    hint="write to a new target, and move it yourself",
                ) from None
        sync(place.parent)
        shutil.rmtree(made, ignore_errors=True)  # what was there before


def _sync_tree(folder: Path) -> None:
    for parent, _, names in os.walk(folder):
        for name in names:
            sync(os.path.join(parent, name))
        sync(parent)
