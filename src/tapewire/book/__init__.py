"""Order books from market data events: levels (`L2Book`) or single orders (`L3Book`).

A book knows whether it is to be believed: a venue's ids that do not follow each other, records that
a tape lacks, numbers that cannot be. See `trusted`, `distrust_reason` and `gaps`.
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
