from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from typing_extensions import Buffer

from tapewire._native import Batch, Record

class _Instrument(Protocol):
    @property
    def venue_id(self) -> int: ...
    @property
    def market_id(self) -> int: ...
    @property
    def price_scale(self) -> int: ...
    @property
    def size_scale(self) -> int: ...

_Levels = np.ndarray[Any, Any] | Iterable[tuple[int, int]] | Sequence[Sequence[int]]
_Array = np.ndarray[Any, Any]

BOOK_EVENT: int
BOOK_TICKER: int
TRADE: int
QUOTE: int
TRADE_TICK: int
VENUE_RAW: int
VERSION: int
OLDEST_VERSION: int
LOSS_VERSION: int
MAX_SCALE: int

def struct_layouts() -> dict[str, tuple[int, dict[str, tuple[int, str]]]]: ...
def struct_dtype(name: str) -> np.dtype[Any]: ...

class L3Order(NamedTuple):
    event_type: int
    side: int
    ord_type: int
    exec_type: int
    price_scale: int
    size_scale: int
    flags: int
    order_id: int
    bid_order_id: int
    ask_order_id: int
    price: int
    qty: int
    amt: int

class LossRange(NamedTuple):
    cause: int
    first: int
    last: int

class BookEvent:
    @staticmethod
    def decode(source: Record | Buffer | BookEvent) -> BookEvent: ...
    @property
    def schema_version(self) -> int: ...
    @property
    def venue_id(self) -> int: ...
    @property
    def market_id(self) -> int: ...
    @property
    def stream_id(self) -> int: ...
    @property
    def ingest_ts_ns(self) -> int: ...
    @property
    def exchange_ts_ns(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def native_seq(self) -> int: ...
    @property
    def event_type(self) -> int: ...
    @property
    def book_mode(self) -> int: ...
    @property
    def flags(self) -> int: ...
    @property
    def price_scale(self) -> int: ...
    @property
    def size_scale(self) -> int: ...
    @property
    def delta(self) -> bool: ...
    @property
    def update_first(self) -> int: ...
    @property
    def update_last(self) -> int: ...
    @property
    def update_prev(self) -> int: ...
    @property
    def bids(self) -> _Array: ...
    @property
    def asks(self) -> _Array: ...
    @property
    def order(self) -> L3Order | None: ...
    @property
    def loss(self) -> LossRange | None: ...
    def __bytes__(self) -> bytes: ...

def headers_of(batch: Batch) -> _Array: ...
def levels_of(batch: Batch) -> _Array: ...
def l2_diff(
    instrument: _Instrument,
    timestamp_ns: int,
    *,
    bids: _Levels = ...,
    asks: _Levels = ...,
    first: int = 0,
    last: int = 0,
    prev: int = 0,
    exchange_ns: int = 0,
    native_seq: int | None = None,
    delta: bool = False,
    stream_id: int = 0,
) -> bytes: ...
def l2_snapshot(
    instrument: _Instrument,
    timestamp_ns: int,
    *,
    bids: _Levels = ...,
    asks: _Levels = ...,
    native_seq: int = 0,
    exchange_ns: int = 0,
    stream_id: int = 0,
) -> bytes: ...
def l3_event(
    instrument: _Instrument,
    timestamp_ns: int,
    *,
    type: int,
    side: int = 0,
    order_id: int = 0,
    bid_order_id: int = 0,
    ask_order_id: int = 0,
    price: int = 0,
    qty: int = 0,
    amt: int = 0,
    ord_type: int = 0,
    exec_type: int = 0,
    flags: int = 0,
    native_seq: int = 0,
    exchange_ns: int = 0,
    stream_id: int = 0,
) -> bytes: ...
def reset(
    instrument: _Instrument,
    timestamp_ns: int,
    *,
    book_mode: int = 0,
    native_seq: int = 0,
    exchange_ns: int = 0,
    stream_id: int = 0,
) -> bytes: ...
def heartbeat(
    instrument: _Instrument,
    timestamp_ns: int,
    *,
    book_mode: int = 0,
    native_seq: int = 0,
    exchange_ns: int = 0,
    stream_id: int = 0,
) -> bytes: ...
def loss(
    instrument: _Instrument,
    timestamp_ns: int,
    cause: int | str,
    *,
    first: int = 0,
    last: int = 0,
    book_mode: int | None = None,
    native_seq: int = 0,
    exchange_ns: int = 0,
    stream_id: int = 0,
) -> bytes: ...
def l3_header(instrument: _Instrument) -> bytes: ...
def scaled(text: str | bytes | int, scale: int) -> int: ...
def scaled_many(texts: Iterable[str | bytes | int], scale: int) -> _Array: ...
def scaled_levels(
    levels: Iterable[Sequence[str | bytes | int]], price_scale: int, size_scale: int
) -> _Array: ...
def unscaled(value: int, scale: int) -> str: ...
def xxh64(data: Buffer) -> int: ...
def xxh3_128(*pieces: Buffer) -> str: ...
def symbol_hash(venue: str, symbol: str) -> int: ...
