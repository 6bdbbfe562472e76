"""Checks LOBSTER's order book against its messages: each row must follow from the previous one."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["valid_steps"]

_Array = np.ndarray[Any, Any]
_NO_LEVEL = 1 << 62  # higher than every price: an empty level


def valid_steps(before: _Array, after: _Array, buys: _Array, price: _Array, by: _Array) -> _Array:
    """Which rows of `after` equal those of `before` with `by` shares added at a price of a side.

    Args:
        before: Rows with price and size of the ask, then of the bid, for each level: an array of
            rows, levels, and these four.
        after: The rows that follow them.
        buys: Whether the side is the bids, for each row.
        price: The price, for each row.
        by: The shares added; 0 if nothing changes.
    """
    rows, levels = before.shape[:2]
    of_side, at = buys.astype(int)[:, None], np.arange(levels)
    sides_before, sides_after = (array.reshape(rows, levels, 2, 2) for array in (before, after))
    row = np.arange(rows)[:, None]
    other_same = (
        (sides_before[row, at, 1 - of_side] == sides_after[row, at, 1 - of_side])
        .reshape(rows, -1)
        .all(axis=1)
    )
    sign = np.where(buys, -1, 1)
    old, new = (
        _better_first(sides[row, at, of_side], sign) for sides in (sides_before, sides_after)
    )
    key = price * sign
    place = (old[..., 0] < key[:, None]).sum(axis=1)
    # One more level after those shown: it is empty if fewer levels are shown than fit.
    full = old[:, -1, 1] > 0
    padded = np.concatenate([old, np.full((rows, 1, 2), (_NO_LEVEL, 0))], axis=1)
    exists = padded[row[:, 0], place, 0] == key
    size = np.where(exists, padded[row[:, 0], place, 1], 0) + by
    shown = place < levels
    inserted = shown & ~exists & (by > 0)
    removed = shown & exists & (size == 0)
    source = at[None, :] + removed[:, None] * (at >= place[:, None])
    source = source - inserted[:, None] * (at > place[:, None])
    expected = padded[row, source]
    changed = (shown & (size > 0))[:, None] & (at == place[:, None])
    expected[..., 0] = np.where(changed, key[:, None], expected[..., 0])
    expected[..., 1] = np.where(changed, size[:, None], expected[..., 1])
    same = (expected == new).all(axis=2)
    same |= (removed & full)[:, None] & (at == levels - 1)  # was not shown before: may be anything
    impossible = shown & (size < 0)
    valid: _Array = same.all(axis=1) & other_same & ~impossible
    return valid


def _better_first(levels: _Array, sign: _Array) -> _Array:
    """Prices of one side, negated so that better ones are smaller; empty levels come last."""
    keyed = levels.copy()
    empty = levels[..., 1] == 0
    keyed[..., 0] = np.where(empty, _NO_LEVEL, levels[..., 0] * sign[:, None])
    return keyed
