"""Whose a record of a multiplexed log is: venue, symbol and stream out of payloads, in place.

No record is looked at one by one: fields are gathered out of the mapped segments by arrays. Nothing
in a payload is trusted beyond its length; what it is worth is for a book to find out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire._native import is_name
from tapewire.protocol._native import struct_dtype
from tapewire.protocol.market import (
    BOOK_EVENT,
    BOOK_TICKER,
    HEADER_DTYPE,
    QUOTE,
    TRADE,
    TRADE_TICK,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from tapewire.log import Batch
    from tapewire.protocol.instruments import Instrument

__all__ = ["STREAMS", "TYPES_OF", "Keys", "Owners"]

STREAMS = ("book", "quotes", "trades")
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Kind:
    """Where a message says whose it is."""

    stream: int
    dtype: np.dtype[Any]
    by_hash: bool
    native: str | None  # the field with the venue's own number
    venue_ns: str


_KINDS = {
    BOOK_EVENT: _Kind(0, HEADER_DTYPE, False, "native_seq", "exchange_ts_ns"),
    QUOTE: _Kind(1, struct_dtype("Quote"), True, None, "timestamp_ns"),
    BOOK_TICKER: _Kind(1, struct_dtype("BookTicker"), True, None, "timestamp_ns"),
    TRADE_TICK: _Kind(2, struct_dtype("TradeTick"), True, "trade_id", "timestamp_ns"),
    TRADE: _Kind(2, struct_dtype("Trade"), True, "trade_id", "timestamp_ns"),
}
TYPES_OF = {
    stream: tuple(type_id for type_id, kind in _KINDS.items() if STREAMS[kind.stream] == stream)
    for stream in STREAMS
}


@dataclass
class Owners:
    """Of each record of a batch.

    Attributes:
        market: Place among the instruments; -1 where the payload names none of them.
        stream: Place in `STREAMS`; -1 where the type is none of market data.
        native: The venue's own number, 0 where there is none.
        venue_ns: The venue's time, 0 where there is none.
        kind: Of records of other kinds the venue's numbers may be the same.
        strangers: What named no instrument, and how often.
    """

    market: _Array
    stream: _Array
    native: _Array
    venue_ns: _Array
    kind: _Array
    strangers: dict[str, int]


class Keys:
    """Instruments by the ids and hashes that payloads name them by.

    Args:
        instruments: Those that may be named; one whose names can be no folders is a stranger.

    Example:
        >>> from tapewire.protocol.instruments import Instrument
        >>> keys = Keys([Instrument.of("okx", "BTC-USDT", 2, 2), Instrument.of("okx", "A/B", 2, 2)])
        >>> keys.names
        [('okx', 'BTC-USDT')]
    """

    def __init__(self, instruments: Iterable[Instrument]) -> None:
        fit = [one for one in instruments if is_name(one.venue) and is_name(one.symbol)]
        fit.sort(key=lambda one: (one.venue, one.symbol))
        self.names = [(one.venue, one.symbol) for one in fit]
        self._ids = _Lookup([one.venue_id << 32 | one.market_id for one in fit])
        self._hashes = _Lookup([one.symbol_hash for one in fit])

    def owners(self, batch: Batch) -> Owners:
        """Whose each record of a batch is."""
        count = len(batch)
        views = _Views(batch.to_arrow().column("payload"))
        found = Owners(
            np.full(count, -1, "i4"),
            np.full(count, -1, "i1"),
            np.zeros(count, "u8"),
            np.zeros(count, "u8"),
            np.zeros(count, "i4"),
            {},
        )
        for type_id in np.unique(batch.type_id).tolist():
            kind = _KINDS.get(type_id)
            if kind is None:
                continue
            of_type = batch.type_id == type_id
            rows = np.flatnonzero(of_type & (views.lengths >= kind.dtype.itemsize))
            short = int(of_type.sum()) - len(rows)
            if short:
                found.strangers[f"too short for its type: type_id=0x{type_id:04X}"] = short
            self._fill(found, views, kind, type_id, rows)
        return found

    def _fill(self, found: Owners, views: _Views, kind: _Kind, type_id: int, rows: _Array) -> None:
        found.stream[rows] = kind.stream
        if kind.by_hash:
            named = views.field(kind.dtype, "symbol_hash", rows)
            market = self._hashes.find(named)
        else:
            venue = views.field(kind.dtype, "venue_id", rows).astype("u8")
            named = venue << np.uint64(32) | views.field(kind.dtype, "market_id", rows)
            market = self._ids.find(named)
        found.market[rows] = market
        found.kind[rows] = type_id
        if kind.native is not None:
            found.native[rows] = views.field(kind.dtype, kind.native, rows)
            found.venue_ns[rows] = views.field(kind.dtype, kind.venue_ns, rows)
        if not kind.by_hash:
            found.kind[rows] += views.field(kind.dtype, "event_type", rows).astype("i4") << 16
        strangers, counts = np.unique(named[market < 0], return_counts=True)
        for number, times in zip(strangers.tolist()[:100], counts.tolist(), strict=False):
            text = (
                f"symbol_hash=0x{number:016X}"
                if kind.by_hash
                else f"venue_id={number >> 32}, market_id={number & 0xFFFFFFFF}"
            )
            found.strangers[text] = found.strangers.get(text, 0) + times


class _Lookup:
    """From a number to the place it was given at."""

    def __init__(self, numbers: list[int]) -> None:
        values = np.array(numbers, "u8")
        self._order = np.argsort(values, kind="stable")
        self._sorted = values[self._order]

    def find(self, wanted: _Array) -> _Array:
        if not len(self._sorted):
            return np.full(len(wanted), -1, "i4")
        at = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
        return np.where(self._sorted[at] == wanted, self._order[at], -1).astype("i4")


class _Views:
    """Payloads as Arrow's binary views: a length, then where the bytes lie."""

    def __init__(self, views: pa.Array) -> None:
        _, heads, *data = views.buffers()
        words = np.frombuffer(heads, "i4").reshape(-1, 4)[views.offset : views.offset + len(views)]
        self.lengths = words[:, 0]
        self._buffer, self._at = words[:, 2], words[:, 3]
        self._data = [np.frombuffer(each, "u1") for each in data]

    def field(self, dtype: np.dtype[Any], name: str, rows: _Array) -> _Array:
        """A field of these payloads, which are long enough and so lie in a buffer."""
        fields: Any = dtype.fields
        kind, offset = fields[name][:2]
        out = np.empty((len(rows), kind.itemsize), "u1")
        reach = np.arange(offset, offset + kind.itemsize)
        for number in np.unique(self._buffer[rows]).tolist():
            here = self._buffer[rows] == number
            at = self._at[rows[here]].astype("i8")
            out[here] = self._data[number][at[:, None] + reach]
        values: _Array = out.view(kind).reshape(-1)
        return values
