"""What lies beside a queue and goes along into the archive: types.json and instruments.json."""

from __future__ import annotations

import os
from pathlib import Path

from tapewire.errors import TapewireError
from tapewire.protocol import types_file
from tapewire.protocol.instruments import Instruments, nearest_file
from tapewire.protocol.layout import MessageLayout

__all__ = ["InstrumentsOf", "Stamp", "TypesOf"]

# Which file it is, and which state of it: they are replaced as a whole. None: there is none.
Stamp = tuple[int, int, int] | None


class TypesOf:
    """The messages that a queue's writer has declared, read again when the file was replaced.

    Attributes:
        stamp: Which state of the file `layouts` are; compare it with that of an earlier look.
        layouts: What it declares.
    """

    def __init__(self, queue: Path) -> None:
        self._queue = queue
        self.stamp: Stamp = None
        self.layouts: list[MessageLayout] = []

    def look(self) -> str | None:
        """Read it if it is new: a writer declares a message before the first record of it.

        Returns:
            What is wrong with it, once; what was known before then stays.
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
    """The nearest instruments.json above each of many queues, carried to an archive when new."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._carried: dict[str, Stamp] = {}

    def carry(self, queue: Path) -> str | None:
        """Merge what the queue's instruments.json says into the archive's; what is wrong, once."""
        path = nearest_file(queue)
        if path is None:
            return None
        stamp = stamp_of(Path(path))
        if self._carried.get(path) == stamp:
            return None
        try:
            known = Instruments.load(queue)
            if known.path is not None and not _same(os.path.dirname(known.path), self._archive):
                known.save(self._archive)
        except OSError:
            raise  # no room, or no right to write: the tap's matter
        except TapewireError as error:
            self._carried[path] = stamp
            return str(error)
        self._carried[path] = stamp
        return None


def stamp_of(path: Path) -> Stamp:
    """Of the file at this path."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _same(one: str, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
