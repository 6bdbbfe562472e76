"""Rows of LOBSTER's order book as events of levels: snapshots, and the changes from row to row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire.ingest._parsers import L2Grouper

if TYPE_CHECKING:
    from tapewire.protocol.instruments import Instrument

__all__ = ["LevelEvents"]

_Array = np.ndarray[Any, Any]
_ASK, _BID = 0, 1  # the order of the sides in a row
_WHOLE, _CHANGE = 2, 3  # l2_groups.hpp, Belongs
_SIDE_OF = np.array([1, 0])  # the side of a LevelRow


class LevelEvents:
    """Makes the events of one instrument.

    Args:
        price_factor: What a price of the file is multiplied by.
        size_factor: The same for a size.
    """

    def __init__(self, instrument: Instrument, price_factor: int, size_factor: int) -> None:
        self._factors = np.array([price_factor, size_factor])
        self._grouper = L2Grouper(
            instrument.venue_id,
            instrument.market_id,
            instrument.price_scale,
            instrument.size_scale,
        )

    def add(
        self, before: _Array, after: _Array, whole: _Array, times_ns: _Array, lines: _Array
    ) -> tuple[_Array, list[bytes], _Array]:
        """The events that make a book equal to each row of `after`, with their times and lines.

        Args:
            before: The rows before: an array of rows, levels, and price and size of the ask, then
                of the bid.
            after: The rows. A row that does not differ has no event.
            whole: Which rows are written as snapshots. Of the others, each side is the one before
                with one level changed, inserted or removed.
            times_ns: The time of each row.
            lines: The line of each row.
        """
        steps, full = np.flatnonzero(~whole), np.flatnonzero(whole)
        places = []
        tables = []
        for at, (levels, present), kind in (
            (steps, _changes(_sides(before[steps]), _sides(after[steps])), _CHANGE),
            (full, _all_levels(_sides(after[full])), _WHOLE),
        ):
            row, side, _ = np.nonzero(present)
            table = np.zeros((len(row), 8), np.int64)  # l2_groups.hpp, LevelRow
            table[:, 3] = kind
            table[:, 4] = _SIDE_OF[side]
            table[:, 5:7] = levels[present] * self._factors
            places.append(at[row])
            tables.append(table)
        # A snapshot without levels is an event too.
        places.append(full)
        tables.append(np.tile(np.array([0, 0, 0, _WHOLE, -1, 0, 0, 0]), (len(full), 1)))
        place = np.concatenate(places)
        order = np.argsort(place, kind="stable")
        place, table = place[order], np.concatenate(tables)[order]
        table[:, 0] = table[:, 1] = times_ns[place]
        table[:, 2] = table[:, 7] = lines[place]
        self._grouper.add(table)
        self._grouper.finish()
        times_ns, payloads, lines, _ = self._grouper.take()  # an event is of one line
        return times_ns, payloads, lines


def _sides(rows: _Array) -> _Array:
    """Rows with the levels of each side together: rows, sides, levels, price and size."""
    sides: _Array = rows.reshape(*rows.shape[:2], 2, 2).swapaxes(1, 2)
    return sides


def _all_levels(sides: _Array) -> tuple[_Array, _Array]:
    return sides, sides[..., 1] > 0


def _changes(old: _Array, new: _Array) -> tuple[_Array, _Array]:
    """The levels to set on each side, at most two, and which of them there are.

    The second one is removed, after the first is set: a side that has levels is never empty.
    """
    differ = (old != new).any(axis=3)
    at = differ.argmax(axis=2)[..., None, None]
    was = np.take_along_axis(old, at, axis=2)[:, :, 0]
    now = np.take_along_axis(new, at, axis=2)[:, :, 0]
    sign = np.array([1, -1])  # of an ask, the lower price is better
    better = (was[..., 0] - now[..., 0]) * sign
    # Inserted: the last level is pushed out. Removed: the last level of `new` becomes visible.
    put = np.where((better < 0)[..., None], new[:, :, -1], now)
    gone = np.where((better < 0)[..., None], was, old[:, :, -1])
    changed = differ.any(axis=2)
    present = np.stack([put[..., 1] > 0, (better != 0) & (gone[..., 1] > 0)], axis=2)
    levels = np.stack([put, gone], axis=2)
    levels[:, :, 1, 1] = 0
    return levels, present & changed[..., None]
