"""Directories that appear complete: built elsewhere and moved into place in one step.

After a kill either the old directory or the new one exists, complete. What a killed job left in its
working directory is removed by the next run of the job.
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

__all__ = ["AtomicDirectories"]


class AtomicDirectories:
    """Builds directories for the target of a job, in `<target>/_tapewire/<job>`.

    Example:
        >>> directories = AtomicDirectories(tmp, "compact")
        >>> with directories.new() as made:
        ...     _ = (made / "a.txt").write_text("new")
        ...     directories.publish(made, tmp / "x" / "y")
        >>> (tmp / "x" / "y" / "a.txt").read_text()
        'new'
    """

    def __init__(self, target: str | os.PathLike[str], job: str) -> None:
        self.target = Path(target)
        self._working = path_below(self.target, CONTROL, job)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other runs of this job from this target; remove what killed runs left.

        Raises:
            ConcurrentUse: Another run is active.
        """
        make_directories(self._working)
        fd = os.open(self._working, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if not take_lock(fd):
                raise ConcurrentUse(
                    f"this job is already running with this target: job={self._working.name}",
                    path=os.fspath(self.target),
                    hint="wait until it ends",
                )
            for name in os.listdir(self._working):
                shutil.rmtree(self._working / name, ignore_errors=True)
            yield
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def new(self) -> Iterator[Path]:
        """A new directory; removed at the end unless it was published."""
        make_directories(self._working)
        made = self._working / uuid.uuid4().hex
        made.mkdir(mode=0o700)
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def publish(self, made: Path, place: Path) -> None:
        """Move a directory into place, durably; the directory it replaces is removed afterwards.

        Raises:
            InvalidName: A link leads out of the target.
            InvalidOption: The filesystem cannot exchange two directories in one step.
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
                    "this filesystem cannot exchange two directories in one step",
                    path=os.fspath(place),
                    hint="write to a new target, then replace the old one with it",
                ) from None
        sync(place.parent)
        shutil.rmtree(made, ignore_errors=True)  # the replaced directory


def _sync_tree(top: Path) -> None:
    for parent, _, names in os.walk(top):
        for name in names:
            sync(os.path.join(parent, name))
        sync(parent)
