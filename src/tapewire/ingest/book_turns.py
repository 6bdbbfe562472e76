"""Messages of several books that wait until those before them have come, with times and places."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from tapewire.ingest.diff_order import DiffOrder

if TYPE_CHECKING:
    from tapewire.protocol.instruments import Instrument

__all__ = ["BookTurns", "Turn"]

_T = TypeVar("_T")
Place = tuple[int, int]  # line and index of the file


class _Arrived(NamedTuple, Generic[_T]):
    timestamp_ns: int
    place: Place
    what: _T


class Turn(NamedTuple, Generic[_T]):
    """A message whose turn it is.

    Attributes:
        instrument: Its book.
        timestamp_ns: When it arrived; for one that waited, not before the record before it.
        place: Where it is in the source.
        what: The message.
    """

    instrument: Instrument
    timestamp_ns: int
    place: Place
    what: _T


class BookTurns(Generic[_T]):
    """Puts the messages of each book into the order of its update ids.

    A log's times do not go back because a message waited: it could not be applied before the one
    it waited for.
    """

    def __init__(self) -> None:
        self._orders: dict[Instrument, DiffOrder[_Arrived[_T]]] = {}
        self._to_check: collections.deque[Instrument] = collections.deque()
        self._latest_ns: dict[Instrument, int] = {}

    def add(
        self,
        instrument: Instrument,
        timestamp_ns: int,
        place: Place,
        ids: tuple[int, int],
        what: _T,
        *,
        snapshot: bool = False,
    ) -> None:
        """Add a message; `ids`: the last id of the one before it, and its own last id."""
        order = self._orders.get(instrument)
        if order is None:
            order = self._orders[instrument] = DiffOrder()
        arrived = _Arrived(timestamp_ns, place, what)
        if snapshot:
            order.add_snapshot(ids[1], arrived)
        else:
            order.add(*ids, arrived)
        self._to_check.append(instrument)

    def end(self) -> None:
        """No more messages come: all that wait have their turn."""
        for instrument, order in self._orders.items():
            order.end()
            self._to_check.append(instrument)

    def take(self, place: Place) -> Turn[_T] | None:
        """The next message whose turn it is at this place of the source, or None."""
        while self._to_check:
            instrument = self._to_check[0]
            arrived = self._orders[instrument].take()
            if arrived is None:
                self._to_check.popleft()
                continue
            timestamp_ns = arrived.timestamp_ns
            if arrived.place != place:  # it waited
                timestamp_ns = max(timestamp_ns, self._latest_ns.get(instrument, 0))
                same_file = arrived.place[1] == place[1]
                place = arrived.place if same_file else place
            self._latest_ns[instrument] = timestamp_ns
            return Turn(instrument, timestamp_ns, place, arrived.what)
        return None
