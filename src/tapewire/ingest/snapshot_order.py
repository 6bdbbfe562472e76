"""Decides whether a REST snapshot among diffs is newer than the book."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["SnapshotOrder"]

_T = TypeVar("_T")


class SnapshotOrder(Generic[_T]):
    """The update ids of one book, in the order of the capture.

    A snapshot in the middle of a capture is often older than the last diff before it. If every diff
    since an earlier snapshot is there, the book is newer, and going back to the snapshot would
    create a gap. Such a snapshot waits for the next diff: if that one follows the earlier diffs,
    the snapshot is left out; if not (the venue's ids restarted), it counts.

    Example:
        >>> order = SnapshotOrder()
        >>> order.snapshot(100, "first")
        True
        >>> order.diff(100, 110), order.diff(110, 120)
        (None, None)
        >>> order.snapshot(105, "older")
        False
        >>> order.diff(120, 130), order.left_out
        (None, 1)
    """

    def __init__(self) -> None:
        self.left_out = 0  # snapshots that the caller has not counted yet
        self.contradicted = False
        self._snapshot: int | None = None
        self._first = 0  # the id before the diffs that follow each other without a gap
        self._last: int | None = None  # the last id of those
        self._before = 0  # the id before the last one of those
        self._waiting: tuple[int, _T] | None = None

    def snapshot(self, update: int, what: _T) -> bool:
        """Whether it counts now; otherwise it waits, and is left out or returned by `diff`."""
        self._drop()
        before, last = self._snapshot, self._last
        if before is not None and last is not None and before >= self._first and update < last:
            self._waiting = (update, what)
            return False
        self._snapshot = update
        return True

    def diff(self, previous: int, last: int) -> _T | None:
        """Add a diff; returns the waiting snapshot if that counts before it.

        `contradicted` is set if it begins and ends within the last diff, so that one of the two has
        other ids than the venue gave it: it is no duplicate, although it seems to be old.
        """
        self.contradicted = False
        counts = None
        if previous != self._last:
            if self._waiting is not None and previous <= self._waiting[0] < last:
                self._snapshot, counts = self._waiting
                self._waiting = None
            elif self._last is not None and self._first <= previous and last <= self._last:
                self.contradicted = previous > self._before
                if not self.contradicted:
                    return None  # a duplicate
            self._first = previous
        self._drop()
        self._before, self._last = previous, last
        return counts

    def _drop(self) -> None:
        if self._waiting is not None:
            self._waiting = None
            self.left_out += 1
