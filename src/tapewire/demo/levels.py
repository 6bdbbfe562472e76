"""A book of levels, rebuilt from the exchange's market data."""

from __future__ import annotations

import os

from tapewire.demo.events import Side
from tapewire.demo.matching import book_hash
from tapewire.demo.messages import SNAPSHOT, LevelChanged, unpack_snapshot
from tapewire.demo.tape import last_record
from tapewire.log import Reader, Record

__all__ = ["LevelBook", "join"]


class LevelBook:
    """Quantities by price. `apply` every record of the market data, from a snapshot on."""

    def __init__(self) -> None:
        self._sides: dict[int, dict[int, int]] = {Side.BUY: {}, Side.SELL: {}}

    def apply(self, record: Record) -> None:
        """Take a level or a snapshot; other records change nothing."""
        if record.type_id == LevelChanged.type_id:
            level = LevelChanged.decode(record)
            if level.qty:
                self._sides[level.side][level.price] = level.qty
            else:
                self._sides[level.side].pop(level.price, None)
        elif record.type_id == SNAPSHOT:
            self._sides = {Side.BUY: {}, Side.SELL: {}}
            for side, price, qty in unpack_snapshot(record)[1]:
                self._sides[side][price] = qty

    @property
    def bid(self) -> int | None:
        """The best bid."""
        return max(self._sides[Side.BUY], default=None)

    @property
    def ask(self) -> int | None:
        """The best ask."""
        return min(self._sides[Side.SELL], default=None)

    def hash(self) -> str:
        """The same as `Engine.hash` of the book this one follows."""
        sides = self._sides.items()
        return book_hash((side, price, q) for side, levels in sides for price, q in levels.items())


def join(reader: Reader, path: str | os.PathLike[str]) -> tuple[LevelBook, int | None]:
    """Put `reader` behind the queue's last snapshot; the book as it was there, and its number.

    Where there is no snapshot yet, the reader begins with the first record and the book is empty.
    """
    book = LevelBook()
    snapshot = last_record(path, {SNAPSHOT})
    if snapshot is None:
        reader.seek_start()
        return book, None
    book.apply(snapshot)
    reader.seek_seq(snapshot.seq + 1)
    return book, snapshot.seq
