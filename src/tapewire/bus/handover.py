"""From the thread that may wait to the thread that may not: a queue of objects without a lock."""

from __future__ import annotations

from typing import Generic, TypeVar

from tapewire.config import check_whole

__all__ = ["Handover"]

T = TypeVar("T")


class Handover(Generic[T]):
    """Hands objects from one thread to one other; neither ever waits.

    A sidecar opens readers and offers them; the hot thread takes them between two records. It is a
    ring of slots and two counters, each written by one side alone: `_tail` by who offers, after
    the slot is filled; `_head` by who takes, after the slot is emptied. Each of these stores is
    one bytecode under the GIL, so the other side sees them in that order and never half of one.

    One thread offers and one thread takes; for the way back use a second one.

    Example:
        >>> from tapewire import bus
        >>> ready = bus.Handover(2)
        >>> ready.take()  # nothing there: no allocation, no system call
        >>> [ready.offer(reader) for reader in ("first", "second", "third")]
        [True, True, False]
        >>> ready.take(), ready.take(), ready.take()
        ('first', 'second', None)
    """

    __slots__ = ("_capacity", "_head", "_slots", "_tail")

    def __init__(self, capacity: int = 64) -> None:
        check_whole("capacity", capacity, 1, 1 << 20)
        self._capacity = capacity
        self._slots: list[T | None] = [None] * capacity
        self._head = 0  # how many were taken
        self._tail = 0  # how many were offered

    def offer(self, item: T) -> bool:
        """Hand over an object; False when `capacity` of them are waiting. For one thread."""
        if item is None:
            raise TypeError("None cannot be handed over: take() returns it when nothing is there")
        tail = self._tail
        if tail - self._head == self._capacity:
            return False
        self._slots[tail % self._capacity] = item
        self._tail = tail + 1  # SYNC handover: pairs with the load in take
        return True

    def take(self) -> T | None:
        """The object offered first, or None when there is none. For one other thread."""
        head = self._head
        if head == self._tail:  # SYNC handover
            return None
        slot = head % self._capacity
        item = self._slots[slot]
        self._slots[slot] = None  # the ring keeps nothing alive
        self._head = head + 1  # SYNC handover back: pairs with the load in offer
        return item

    def __len__(self) -> int:
        """How many wait to be taken."""
        return self._tail - self._head

    def __repr__(self) -> str:
        return f"<Handover {len(self)} of {self._capacity} waiting>"
