"""Records of DBN as columns, and their prices at an instrument's scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tapewire.ingest.report import Report
    from tapewire.ingest.source import SourceFile

__all__ = ["PRICE_DECIMALS", "UNDEFINED_PRICE", "DbnRows", "at_scale"]

_Array = np.ndarray[Any, Any]
PRICE_DECIMALS = 9
UNDEFINED_PRICE = (1 << 63) - 1
_NEVER = np.uint64(1 << 63)  # times from here on do not fit; the last of them is "undefined"


class DbnRows:
    """Records of one type, and their positions in the file."""

    def __init__(self, source: SourceFile, data: _Array, numbers: _Array) -> None:
        self.source = source
        self.data = data
        self.numbers = numbers

    @classmethod
    def concatenated(cls, parts: Sequence[DbnRows]) -> DbnRows:
        """The rows of several parts, one after the other."""
        return cls(
            parts[0].source,
            np.concatenate([part.data for part in parts]),
            np.concatenate([part.numbers for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, name: str) -> _Array:
        column: _Array = self.data[name]
        return column

    def where(self, chosen: _Array) -> DbnRows:
        """The rows of a mask or of indexes."""
        return DbnRows(self.source, self.data[chosen], self.numbers[chosen])

    def without(
        self,
        mask: _Array,
        report: Report,
        why: str,
        detail: str = "",
        *,
        symbol: str | None = None,
        of_book: bool = True,
    ) -> DbnRows:
        """The rows that are not in the mask; those in the mask are reported as bad."""
        if not mask.any():
            return self
        for number, row in zip(self.numbers[mask].tolist(), self.data[mask], strict=True):
            report.bad(
                self.source, number, row.tobytes(), why, detail, symbol=symbol, of_book=of_book
            )
        return self.where(~mask)

    def with_times(self, report: Report) -> DbnRows:
        """The rows with a time of receipt."""
        return self.without(self["ts_recv"] >= _NEVER, report, "no time of receipt")

    @property
    def times_ns(self) -> _Array:
        """When each record was received."""
        return self["ts_recv"].astype(np.int64)

    @property
    def exchange_ns(self) -> _Array:
        """The exchange's time of each record; the time of receipt if it has none."""
        times = np.where(self["ts_event"] < _NEVER, self["ts_event"], self["ts_recv"])
        return times.astype(np.int64)


def at_scale(prices: _Array, scale: int) -> tuple[_Array, _Array]:
    """Prices with nine decimals at a scale, and which of them fit exactly.

    Example:
        >>> import numpy as np
        >>> at_scale(np.array([1_500_000_000, 1_234_567_891]), 2)
        (array([150, 123]), array([ True, False]))
    """
    if scale <= PRICE_DECIMALS:
        factor = 10 ** (PRICE_DECIMALS - scale)
        values = prices // factor
        return values, values * factor == prices
    factor = 10 ** (scale - PRICE_DECIMALS)
    limit = UNDEFINED_PRICE // factor
    fits = (prices <= limit) & (prices >= -limit)
    return np.where(fits, prices, 0) * factor, fits
