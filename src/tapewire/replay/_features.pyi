from collections.abc import Iterable, Mapping
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from tapewire.book import L2Book, L3Book
from tapewire.replay._native import Engine

TRADE_FIELDS: list[tuple[str, str]]

class FeatureInfo(NamedTuple):
    name: str
    meaning: str
    formula: str
    unit: str
    look_back: str
    missing: str

def describe_features() -> list[FeatureInfo]: ...
def parse_span(text: str) -> int: ...
def positions_in(state: bytes) -> dict[str, int | None]: ...

class Plan:
    def __init__(
        self,
        names: Iterable[str],
        sample: str,
        kept_trades_ns: Iterable[int] = ...,
        levels: int = ...,
        orders: bool = ...,
    ) -> None: ...
    @property
    def look_back_ns(self) -> int: ...

class Rows:
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object = ...) -> tuple[object, object]: ...

@final
class Row:
    @property
    def timestamp_ns(self) -> int: ...
    @property
    def venue(self) -> str: ...
    @property
    def symbol(self) -> str: ...
    @property
    def book(self) -> L2Book | L3Book | None: ...
    @property
    def price_scale(self) -> int: ...
    @property
    def size_scale(self) -> int: ...
    @property
    def trades(self) -> NDArray[np.void]: ...
    def __getitem__(self, name: str) -> float | None: ...

class Loop:
    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        *,
        start_ns: int | None = ...,
        from_ns: int | None = ...,
        to_ns: int | None = ...,
        from_seq: int = ...,
        first_ns: int = ...,
        for_all_added: bool = ...,
    ) -> None: ...
    def rows(self) -> Rows: ...
    def run(self, rows: Rows, max_rows: int, follow: bool = ...) -> str: ...
    def finish(self, rows: Rows, venues: bool = ...) -> None: ...
    def row(self, rows: Rows, kept: int) -> Row: ...
    def save(self, positions: Mapping[str, int | None]) -> bytes: ...
    def load(self, state: bytes, sources: Iterable[str]) -> None: ...
