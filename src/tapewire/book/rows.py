"""The structured arrays of books: dtypes and conversion."""

from __future__ import annotations

from typing import Any

import numpy as np

Rows = np.ndarray[Any, np.dtype[Any]]

LEVEL_DTYPE = np.dtype([("price", "<i8"), ("size", "<i8")])
L3_LEVEL_DTYPE = np.dtype([("price", "<i8"), ("size", "<i8"), ("orders", "<u4")])
ORDER_DTYPE = np.dtype([("order_id", "<u8"), ("remaining", "<i8")])
TOP_DTYPE = np.dtype(
    [
        ("timestamp_ns", "<i8"),
        ("bid_price", "<i8"),
        ("bid_size", "<i8"),
        ("ask_price", "<i8"),
        ("ask_size", "<i8"),
    ]
)

_NATIVE = np.dtype(  # tapewire::book::LevelRow
    {
        "names": ["price", "size", "orders"],
        "formats": ["<i8", "<i8", "<u4"],
        "offsets": [0, 8, 16],
        "itemsize": 24,
    }
)


def levels_array(native: Any, with_orders: bool) -> Rows:
    """Copy the core's rows to an array with the columns that the book has."""
    rows = np.frombuffer(native, _NATIVE)
    made = np.empty(len(rows), L3_LEVEL_DTYPE if with_orders else LEVEL_DTYPE)
    for name in made.dtype.names or ():
        made[name] = rows[name]
    return made
