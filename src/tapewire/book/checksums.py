"""Books that keep the text of the levels, for the checksums that OKX and Bitget send.

The checksum is a CRC-32 over the best 25 levels of both sides as the venue wrote them: "3366.10"
and "3366.1" differ. A book of integers does not have this text, so an import uses both.
"""

from __future__ import annotations

import bisect
import zlib
from collections.abc import Sequence

__all__ = ["CHECKED_LEVELS", "TextBook"]

CHECKED_LEVELS = 25


class TextBook:
    """The levels of one instrument as text, sorted by price.

    Example:
        >>> book = TextBook()
        >>> book.apply("bid", [("3366.1", "7")], prices=[33661], sizes=[7])
        >>> book.apply("ask", [("3366.8", "9"), ("3368", "8")], prices=[33668, 33680], sizes=[9, 8])
        >>> book.text()
        '3366.1:7:3366.8:9:3368:8'
        >>> book.checksum() == zlib.crc32(b"3366.1:7:3366.8:9:3368:8")
        True
    """

    def __init__(self) -> None:
        self._bids = _Side()
        self._asks = _Side()

    def __repr__(self) -> str:
        return f"TextBook({len(self._bids.prices)} bids, {len(self._asks.prices)} asks)"

    def clear(self) -> None:
        """Remove all levels, before a snapshot."""
        self._bids, self._asks = _Side(), _Side()

    def apply(
        self,
        side: str,
        levels: Sequence[Sequence[str]],
        *,
        prices: Sequence[int],
        sizes: Sequence[int],
    ) -> None:
        """Set levels; a size of 0 removes a level.

        Args:
            side: "bid" or "ask".
            levels: Price and size as the venue wrote them; further items are ignored.
            prices: The same prices as integers, which identify the levels.
            sizes: The same sizes as integers.
        """
        (self._bids if side == "bid" else self._asks).apply(levels, prices, sizes)

    def text(self) -> str:
        """Return the text of the checksum: alternating bids and asks, each ``price:size``."""
        bids = self._bids.best(from_top=True)
        asks = self._asks.best(from_top=False)
        both = min(len(bids), len(asks))
        parts = [text for pair in zip(bids, asks, strict=False) for text in pair]
        return ":".join(parts + bids[both:] + asks[both:])

    def checksum(self) -> int:
        """Return the CRC-32 (IEEE) of `text`, unsigned."""
        return zlib.crc32(self.text().encode())

    def matches(self, checksum: int) -> bool:
        """Whether the venue's checksum, a signed number, is that of this book."""
        return checksum & 0xFFFFFFFF == self.checksum()


class _Side:
    __slots__ = ("prices", "texts")

    def __init__(self) -> None:
        self.prices: list[int] = []  # sorted
        self.texts: dict[int, str] = {}

    def apply(
        self, levels: Sequence[Sequence[str]], prices: Sequence[int], sizes: Sequence[int]
    ) -> None:
        texts = self.texts
        for level, price, size in zip(levels, prices, sizes, strict=True):
            known = price in texts
            if size == 0:
                if known:
                    del texts[price]
                    del self.prices[bisect.bisect_left(self.prices, price)]
                continue
            if not known:
                bisect.insort(self.prices, price)
            texts[price] = f"{level[0]}:{level[1]}"

    def best(self, from_top: bool) -> list[str]:
        prices = self.prices[-CHECKED_LEVELS:][::-1] if from_top else self.prices[:CHECKED_LEVELS]
        return [self.texts[price] for price in prices]
