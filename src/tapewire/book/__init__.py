"""Order books from market data events: price levels (`L2Book`) or single orders (`L3Book`).

A book is untrusted after a gap in the venue's update ids, after records missing from the log, and
after an invalid event. See `trusted`, `distrust_reason` and `gaps`.
"""

from tapewire.book._native import Book, BookGap, L2Book, L3Book, Level, Order, QueuePosition

__all__ = [
    "Book",
    "BookGap",
    "L2Book",
    "L3Book",
    "Level",
    "Order",
    "QueuePosition",
]
