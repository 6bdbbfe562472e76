"""Puts diffs of levels back into the order of the venue's update ids."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

__all__ = ["DiffOrder"]

_T = TypeVar("_T")

WINDOW = 16  # messages held at most: with two connections, or a busy client, neighbours are swapped


class _Waiting(NamedTuple, Generic[_T]):
    previous: int
    last: int
    what: _T


class DiffOrder(Generic[_T]):
    """The diffs of one book, each with the last id of the diff before it and its own last id.

    A diff that does not follow the ones before it waits for the missing one, until more than
    `WINDOW` messages wait. If that one does not come it is lost: the others continue in the order
    of their ids.

    Example:
        >>> order = DiffOrder()
        >>> order.add_snapshot(1, "snapshot")
        >>> for previous, last, what in [(1, 2, "a"), (3, 4, "c"), (2, 3, "b")]:
        ...     order.add(previous, last, what)
        >>> list(iter(order.take, None))
        ['snapshot', 'a', 'b', 'c']
    """

    def __init__(self) -> None:
        self._last = 0  # the highest id of those whose turn has come
        self._waiting: list[_Waiting[_T]] = []
        self._ended = False

    def add(self, previous: int, last: int, what: _T) -> None:
        """Add a diff; without ids they are 0, and it waits for nothing."""
        self._waiting.append(_Waiting(previous, last, what))

    def add_snapshot(self, last: int, what: _T) -> None:
        """Add a snapshot; it stays after the messages that came before it."""
        previous = max((diff.previous for diff in self._waiting), default=0)
        self._waiting.append(_Waiting(previous, last, what))

    def end(self) -> None:
        """What is missing now is lost: every message that waits has its turn."""
        self._ended = True

    def take(self) -> _T | None:
        """The next message whose turn it is, or None."""
        waiting = self._waiting
        if not waiting:
            return None
        first = min(range(len(waiting)), key=lambda i: waiting[i].previous)
        # What begins at or before the last id is next, overlaps, or is a duplicate.
        follows = waiting[first].previous <= self._last
        if not follows and not self._ended and len(waiting) <= WINDOW:
            return None
        turn = waiting.pop(first)
        self._last = max(self._last, turn.last)
        return turn.what
