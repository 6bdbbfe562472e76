"""Which instrument and stream each record of a multiplexed log belongs to.

Fields are gathered from the mapped segments by numpy, without a loop over records. Of a payload
only the length is checked here; its contents are checked when a book is built from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire._native import is_name
from tapewire.clock import DAY_NS, date_of
from tapewire.protocol._native import struct_dtype
from tapewire.protocol.instruments import Instruments
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

__all__ = ["STREAMS", "TYPES_OF", "InstrumentKeys", "Owners", "clean_names", "instruments_beside"]

STREAMS = ("book", "quotes", "trades")
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Kind:
    """Where a type of message names its instrument."""

    stream: int
    dtype: np.dtype[Any]
    by_hash: bool
    native: str | None  # field with the venue's sequence number
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
    """The owner of each record of a batch.

    Attributes:
        market: Index of its instrument; -1 if the payload names none of them.
        stream: Index in `STREAMS`; -1 if the type is not market data.
        native: The venue's sequence number; 0 if there is none.
        venue_ns: The venue's time; 0 if there is none.
        kind: Venues number each kind of message apart: equal sequence numbers of two kinds are
            two events.
        unknown: What named no known instrument, and how often.
    """

    market: _Array
    stream: _Array
    native: _Array
    venue_ns: _Array
    kind: _Array
    unknown: dict[str, int]


class InstrumentKeys:
    """Instruments by the ids and hashes in payloads.

    Args:
        instruments: Known instruments. One whose name is not valid as a directory is left out.

    Example:
        >>> from tapewire.protocol.instruments import Instrument
        >>> known = [Instrument.of("okx", symbol, 2, 2) for symbol in ("BTC-USDT", "A/B")]
        >>> keys = InstrumentKeys(known)
        >>> keys.names
        [('okx', 'BTC-USDT')]
    """

    def __init__(self, instruments: Iterable[Instrument]) -> None:
        fit = [one for one in instruments if is_name(one.venue) and is_name(one.symbol)]
        fit.sort(key=lambda one: (one.venue, one.symbol))
        self.names = [(one.venue, one.symbol) for one in fit]
        self._ids = _Lookup([one.venue_id << 32 | one.market_id for one in fit])
        self._hashes = _Lookup([one.symbol_hash for one in fit])

    @classmethod
    def of_files(cls, files: Iterable[Instruments]) -> InstrumentKeys:
        """The instruments of these files; of two with one name, that of the last file."""
        found = {(one.venue, one.symbol): one for file in files for one in file}
        return cls(found.values())

    def owners(self, batch: Batch) -> Owners:
        """The owner of each record of a batch."""
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
                found.unknown[f"too short for its type: type_id=0x{type_id:04X}"] = short
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
        unknown, counts = np.unique(named[market < 0], return_counts=True)
        for number, times in zip(unknown.tolist()[:100], counts.tolist(), strict=False):
            text = (
                f"symbol_hash=0x{number:016X}"
                if kind.by_hash
                else f"venue_id={number >> 32}, market_id={number & 0xFFFFFFFF}"
            )
            found.unknown[text] = found.unknown.get(text, 0) + times


def clean_names(batch: Batch, owners: Owners, keys: InstrumentKeys) -> tuple[_Array, list[str]]:
    """For each record an index into a list of clean logs, or -1; and the list."""
    known = (owners.market >= 0) & (owners.stream >= 0) & (batch.timestamp_ns >= 0)
    days, day = np.unique(batch.timestamp_ns // DAY_NS, return_inverse=True)
    code = (owners.market.astype("i8") * len(STREAMS) + owners.stream) * len(days) + day
    codes, place = np.unique(code[known], return_inverse=True)
    places = np.full(len(batch), -1, "i4")
    places[known] = place
    names = []
    for each in codes.tolist():
        rest, at = divmod(each, len(days))
        market, stream = divmod(rest, len(STREAMS))
        venue, symbol = keys.names[market]
        names.append(f"{venue}/{symbol}/{date_of(int(days[at]))}/{STREAMS[stream]}")
    return places, names


def instruments_beside(paths: Sequence[str]) -> list[Instruments]:
    """The files `instruments.json` that are nearest to these logs, each file once."""
    known: dict[str, Instruments] = {}
    for path in paths:
        instruments = Instruments.load(path)
        if instruments.path is not None:
            known.setdefault(instruments.path, instruments)
    return list(known.values())


class _Lookup:
    """Index of a value in the list that it was built from; -1 if it is not there."""

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
    """Payloads as Arrow binary views: a length, then the place of the bytes."""

    def __init__(self, views: pa.Array) -> None:
        _, heads, *data = views.buffers()
        words = np.frombuffer(heads, "i4").reshape(-1, 4)[views.offset : views.offset + len(views)]
        self.lengths = words[:, 0]
        self._buffer, self._at = words[:, 2], words[:, 3]
        self._data = [np.frombuffer(each, "u1") for each in data]

    def field(self, dtype: np.dtype[Any], name: str, rows: _Array) -> _Array:
        """A field of these payloads; they are long enough, so their bytes are in a buffer."""
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
