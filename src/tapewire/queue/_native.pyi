import enum
import os
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from typing_extensions import Buffer

from tapewire._native import CursorReader
from tapewire.clock import TimeLike
from tapewire.config import BusySpin, Seq, Sleep, SpinThenPark, Time, WriterConfig

class Position(NamedTuple):
    segment: int
    offset: int

class WriterStatus(NamedTuple):
    alive: bool
    pid: int | None
    epoch: int
    heartbeat_age: float

class DisconnectReason(enum.Enum):
    LOCK_LOST = "lock_lost"
    HEARTBEAT_STALE = "heartbeat_stale"
    SEGMENT_MISSING = "segment_missing"

class RowBuffers:
    def __init__(self, rows: Any) -> None: ...
    def __len__(self) -> int: ...

class Reservation:
    @property
    def buffer(self) -> memoryview: ...
    def commit(self, length: int | None = None) -> int: ...
    def abort(self) -> None: ...
    def __enter__(self) -> memoryview: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class Writer:
    path: str
    config: WriterConfig
    def __init__(self, path: str | os.PathLike[str], config: WriterConfig) -> None: ...
    def append(
        self,
        type_id: int,
        payload: Buffer,
        timestamp_ns: TimeLike | None = None,
        flags: int = 0,
        seq: int | None = None,
    ) -> int: ...
    def append_batch(
        self,
        type_id: int | Sequence[int] | np.ndarray[Any, Any],
        rows: Any,
        timestamps_ns: TimeLike | Sequence[TimeLike] | np.ndarray[Any, Any] | None = None,
        flags: int | Sequence[int] | np.ndarray[Any, Any] = 0,
        seqs: Sequence[int] | np.ndarray[Any, Any] | None = None,
    ) -> range | Sequence[int] | np.ndarray[Any, Any]: ...
    @property
    def declared(self) -> set[type]: ...
    def append_message(
        self,
        message: Any,
        *,
        timestamp_ns: TimeLike | None = None,
        flags: int = 0,
        seq: int | None = None,
    ) -> int: ...
    def reserve(
        self,
        type_id: int,
        length: int,
        timestamp_ns: TimeLike | None = None,
        flags: int = 0,
        seq: int | None = None,
    ) -> Reservation: ...
    @property
    def next_seq(self) -> int: ...
    @property
    def first_seq(self) -> int: ...
    @property
    def sparse(self) -> bool: ...
    @property
    def segment_bytes(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def flush_async(self) -> None: ...
    def flush_sync(self) -> None: ...
    def metrics(self) -> dict[str, int]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...

class Reader(CursorReader):
    path: str
    name: str | None
    caps: frozenset[str]
    kind: str
    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str | None,
        start: str | Seq | Time,
        wait: BusySpin | SpinThenPark | Sleep,
        types: Iterable[int] | None,
        pinned: bool,
    ) -> None: ...
    def commit(self) -> None: ...
    @property
    def position(self) -> Position: ...
    @property
    def committed(self) -> Position | None: ...
    @property
    def last_seq(self) -> int | None: ...
    @property
    def segment_bytes(self) -> int: ...
    @property
    def sparse(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    def writer_status(self, ttl: float = 1.0) -> WriterStatus: ...
    def detect_disconnect(self, ttl: float = 1.0) -> DisconnectReason | None: ...
    def close(self, forget: bool = False) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
