"""Synthetic logs of any size, written as fast as the disk accepts them.

A block of diffs is created once. Each time it is written, it gets new times and update ids. Levels
are set to absolute sizes at a bounded number of prices, so the book has the same size however long
the log is. Every record is complete: header, chain of update ids, checksums.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tapewire as tw
from tapewire import bus, replay
from tapewire.clock import DAY_NS, day_start_ns
from tapewire.protocol import market
from tapewire.protocol.instruments import Instrument, Instruments

VENUE = "bench"
DAY = dt.date(2026, 1, 30)
EVENT_NS = 1_000_000  # between two events: a busy market
SEGMENT_BYTES = 64 << 20
BLOCK = 8_192
LEVELS = 2  # that a diff changes on each side
DEPTH = 50  # prices of each side
MIDDLE = 1_000_000

_DIFF = np.dtype(
    [
        ("head", market.HEADER_DTYPE),
        ("first", "<u8"),
        ("last", "<u8"),
        ("prev", "<u8"),
        ("rest", f"V{8 + 2 * LEVELS * market.LEVEL_DTYPE.itemsize}"),
    ]
)
RECORD_BYTES = 64 + _DIFF.itemsize
Rows = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Tape:
    """The written log: `path` is an archive, `bytes` the size of its records."""

    path: Path
    records: int
    symbols: tuple[str, ...]

    @property
    def bytes(self) -> int:
        return self.records * RECORD_BYTES


def start_ns(day: dt.date = DAY) -> int:
    return day_start_ns(day)


def write_books(
    root: Path, size: int, symbols: int = 1, snapshot_seconds: float | None = 60.0
) -> Tape:
    """An archive with one day of book for each symbol, about `size` bytes together."""
    names = tuple(f"S{i}" for i in range(symbols))
    instruments = [Instrument.of(VENUE, name, 2, 3) for name in names]
    records = max(size // symbols // RECORD_BYTES, 1)
    _fits(records)
    root.mkdir(parents=True, exist_ok=True)
    Instruments(instruments).save(root)
    for seed, instrument in enumerate(instruments):
        path = bus.ArchiveLayout(root).log(VENUE, instrument.symbol, DAY, "book")
        with tw.open_publisher(path, segment_bytes=SEGMENT_BYTES) as writer:
            _open_books(writer, [instrument])
            for rows, times in _blocks([instrument], records, seed):
                writer.append_batch(market.BOOK_EVENT, rows, timestamps_ns=times)
        if snapshot_seconds is not None:
            every = replay.Every(seconds=snapshot_seconds)
            replay.Snapshotter(path, every=every, keep=None).run(follow=False)
    return Tape(root, records * symbols, names)


def write_raw(root: Path, size: int, symbols: int = 4) -> Tape:
    """An archive with one day of a venue in one log, with the events of its symbols in turn."""
    names = tuple(f"S{i}" for i in range(symbols))
    instruments = [Instrument.of(VENUE, name, 2, 3) for name in names]
    records = max(size // RECORD_BYTES // symbols, 1) * symbols
    _fits(records)
    root.mkdir(parents=True, exist_ok=True)
    Instruments(instruments).save(root)
    path = bus.ArchiveLayout(root).raw(VENUE, DAY)
    with tw.open_publisher(path, segment_bytes=SEGMENT_BYTES) as writer:
        _open_books(writer, instruments)
        for rows, times in _blocks(instruments, records, 0):
            writer.append_batch(market.BOOK_EVENT, rows, timestamps_ns=times)
    return Tape(root, records, names)


def write_records(path: Path, count: int, payload_bytes: int = 64) -> None:
    """A queue of plain records with different payloads."""
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 256, (65_536, payload_bytes), dtype=np.uint8)
    with tw.open_publisher(path, segment_bytes=SEGMENT_BYTES) as writer:
        for done in range(0, count, len(rows)):
            some = min(len(rows), count - done)
            rows[:, :8] = np.arange(done, done + len(rows), dtype="<u8").view("u1").reshape(-1, 8)
            times = start_ns() + np.arange(done, done + some, dtype=np.int64) * 1_000
            writer.append_batch(1, rows[:some], timestamps_ns=times)


def _fits(records: int) -> None:
    if records * EVENT_NS > DAY_NS:
        raise ValueError(f"too many events for a day: records={records}")


def _open_books(writer: Any, instruments: list[Instrument]) -> None:
    """The snapshots that the diffs continue."""
    away = np.arange(DEPTH)
    for instrument in instruments:
        payload = market.l2_snapshot(
            instrument,
            start_ns(),
            native_seq=1,
            bids=np.column_stack((MIDDLE - 1 - away, np.full(DEPTH, 500))),
            asks=np.column_stack((MIDDLE + 1 + away, np.full(DEPTH, 500))),
        )
        writer.append(market.BOOK_EVENT, payload, timestamp_ns=start_ns())


def _blocks(instruments: list[Instrument], records: int, seed: int) -> Any:
    """Rows and times, block by block; instruments take turns."""
    # a0 b0 a1 b1 …, as bytes: numpy would pack a dtype with holes.
    whole = f"V{_DIFF.itemsize}"
    each = [_block(instrument, seed + i).view(whole) for i, instrument in enumerate(instruments)]
    block = np.stack(each, axis=1).reshape(-1).view(_DIFF)
    turns = len(instruments)
    numbers = np.arange(len(block), dtype=np.int64)
    for done in range(0, records, len(block)):
        rows = block[: min(len(block), records - done)]
        ids = (done + numbers[: len(rows)]) // turns + 2  # in the chain of each instrument
        times = start_ns() + (done + numbers[: len(rows)]) * EVENT_NS
        rows["head"]["ingest_ts_ns"] = times
        rows["head"]["exchange_ts_ns"] = times
        rows["first"] = rows["last"] = rows["head"]["native_seq"] = ids
        rows["prev"] = ids - 1
        yield rows, times


def _block(instrument: Instrument, seed: int) -> Rows:
    """Diffs around one price; the touch moves, and no side becomes empty."""
    rng = np.random.default_rng(seed)
    away = rng.integers(0, DEPTH, (BLOCK, 2, LEVELS))
    size = rng.integers(0, 1_000, (BLOCK, 2, LEVELS))
    size[away >= DEPTH - 2] = 1  # the last two prices always have a size
    rows = [
        market.l2_diff(
            instrument,
            1,
            first=2,
            last=2,
            prev=1,
            exchange_ns=1,
            bids=np.column_stack((MIDDLE - 1 - away[i, 0], size[i, 0])),
            asks=np.column_stack((MIDDLE + 1 + away[i, 1], size[i, 1])),
        )
        for i in range(BLOCK)
    ]
    return np.frombuffer(b"".join(rows), _DIFF).copy()
