"""The order of levels in a row that has a complete book."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["OUT_OF_ORDER", "out_of_order"]

OUT_OF_ORDER = "levels out of order"
_Array = np.ndarray[Any, Any]


def out_of_order(prices: _Array, present: _Array, *, bids: bool) -> _Array:
    """Which rows have levels of a side that are not in order, best price first, without holes.

    Args:
        prices: Of each row and level.
        present: Whether a row has the level.
        bids: Whether prices fall.

    Example:
        >>> import numpy as np
        >>> prices = np.array([[12, 11, 0], [12, 13, 0], [12, 0, 11]])
        >>> out_of_order(prices, prices > 0, bids=True)
        array([False,  True,  True])
    """
    before, after = prices[:, :-1], prices[:, 1:]
    both = present[:, :-1] & present[:, 1:]
    wrong = both & ((after >= before) if bids else (after <= before))
    wrong |= present[:, 1:] & ~present[:, :-1]
    return np.asarray(wrong.any(axis=1))
