"""A lock-free queue that passes objects from one thread to another."""

from __future__ import annotations

from typing import Generic, TypeVar

from tapewire.config import check_whole

__all__ = ["Handover"]

T = TypeVar("T")


class Handover(Generic[T]):
    """Passes objects from one thread to one other; neither ever waits.

    For example, one thread opens readers and offers them, and the hot thread takes them between two
    records. It is a ring of slots with two counters, each written by one side only: `_tail` by the
    producer, after the slot is filled; `_head` by the consumer, after the slot is emptied. Each of
    these stores is one bytecode under the GIL, so the other side sees them complete and in this
    order.

    One thread offers and one thread takes; use a second one for the opposite direction.

    Example:
        >>> from tapewire import bus
        >>> ready = bus.Handover(2)
        >>> ready.take()  # empty: no allocation, no system call
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
        self._head = 0  # objects taken
        self._tail = 0  # objects offered

    def offer(self, item: T) -> bool:
        """Add an object; return False if `capacity` objects are waiting. For one thread."""
        if item is None:
            raise TypeError("None cannot be offered: take() returns it when the ring is empty")
        tail = self._tail
        if tail - self._head == self._capacity:
            return False
        self._slots[tail % self._capacity] = item
        self._tail = tail + 1  # SYNC handover: pairs with the load in take
        return True

    def take(self) -> T | None:
        """Remove and return the oldest object, or None if there is none. For one other thread."""
        head = self._head
        if head == self._tail:  # SYNC handover
            return None
        slot = head % self._capacity
        item = self._slots[slot]
        self._slots[slot] = None  # drop the reference
        self._head = head + 1  # SYNC handover back: pairs with the load in offer
        return item

    def __len__(self) -> int:
        """Return the number of waiting objects."""
        return self._tail - self._head

    def __repr__(self) -> str:
        return f"<Handover {len(self)} of {self._capacity} waiting>"
