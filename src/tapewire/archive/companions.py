"""Files beside a queue that are copied into the archive: types.json and instruments.json."""

from __future__ import annotations

import os
from pathlib import Path

from tapewire.errors import TapewireError
from tapewire.protocol import types_file
from tapewire.protocol.instruments import Instruments, nearest_file
from tapewire.protocol.layout import MessageLayout

__all__ = ["InstrumentsOf", "Stamp", "TypesOf"]

# Inode, size and mtime: the files are replaced atomically. None: there is no file.
Stamp = tuple[int, int, int] | None


class TypesOf:
    """The messages that a queue's writer has declared, read again when the file was replaced.

    Attributes:
        stamp: The state of the file that `layouts` were read from.
        layouts: The layouts in it.
    """

    def __init__(self, queue: Path) -> None:
        self._queue = queue
        self.stamp: Stamp = None
        self.layouts: list[MessageLayout] = []

    def reload(self) -> str | None:
        """Read the file if it changed: a writer declares a message before its first record.

        Returns:
            Why it cannot be read, once for each change; `layouts` then stay as they were.
        """
        stamp = stamp_of(self._queue / types_file.FILE_NAME)
        if stamp == self.stamp:
            return None
        self.stamp = stamp
        try:
            self.layouts = types_file.read(self._queue)
        except (TapewireError, OSError) as error:
            return str(error)
        return None


class InstrumentsOf:
    """The nearest instruments.json above each of many queues, merged into that of an archive."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._merged: dict[str, Stamp] = {}

    def merge(self, queue: Path) -> str | None:
        """Merge the queue's instruments.json into the archive's if it changed.

        Returns:
            Why that failed, once for each change.
        """
        path = nearest_file(queue)
        if path is None:
            return None
        stamp = stamp_of(Path(path))
        if self._merged.get(path) == stamp:
            return None
        try:
            known = Instruments.load(queue)
            if known.path is not None and not _same(os.path.dirname(known.path), self._archive):
                known.save(self._archive)
        except OSError:
            raise  # no space or no permission: handled by the tap
        except TapewireError as error:
            self._merged[path] = stamp
            return str(error)
        self._merged[path] = stamp
        return None


def stamp_of(path: Path) -> Stamp:
    """The state of the file at this path."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _same(one: str, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
