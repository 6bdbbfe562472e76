"""Books: that of the engine, and those rebuilt from its market data."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import NamedTuple

from tapewire.book import L2Book
from tapewire.demo.matching import Engine
from tapewire.demo.outputs import snapshot_of
from tapewire.demo.paths import INSTRUMENT
from tapewire.log import Reader, open_log
from tapewire.replay import snapshots
from tapewire.replay.snapshots import SnapshotFile

__all__ = [
    "CatchUp",
    "Joined",
    "book_of",
    "empty_book",
    "from_start",
    "hashes_at",
    "join",
    "snapshots_of",
]

_IDS = (INSTRUMENT.venue_id, INSTRUMENT.market_id)


def empty_book() -> L2Book:
    """An empty book of the demo's instrument; it raises at a gap in the market data."""
    return L2Book(INSTRUMENT.price_scale, INSTRUMENT.size_scale, on_gap="raise")


def book_of(engine: Engine) -> L2Book:
    """The engine's levels as a book, whose hash can be compared."""
    book = empty_book()
    book.apply(snapshot_of(engine))
    return book


# ---- warm starts --------------------------------------------------------------------------------


class Joined(NamedTuple):
    """A book to continue with, and the `seq` of its last record; None if it has none yet."""

    book: L2Book
    snapshot: int | None


def join(reader: Reader, path: str | os.PathLike[str]) -> Joined:
    """Load the book of the latest snapshot of a queue, and move `reader` to the record after it.

    If there is no snapshot yet, the reader starts at the first record, which opens the market.
    """
    found = snapshots.latest_before(path, *_IDS, instrument=INSTRUMENT, on_gap="raise")
    if found is None:
        reader.seek_start()
        return Joined(empty_book(), None)
    seq: int = found.header["seq"]
    reader.seek_seq(seq)
    reader.next()  # read the record itself, so that the reader reports a gap after it
    book = found.book
    assert isinstance(book, L2Book)
    return Joined(book, seq)


def snapshots_of(path: str | os.PathLike[str]) -> list[SnapshotFile]:
    """Every snapshot of the instrument's book of a queue, oldest first."""
    return snapshots.files(path, *_IDS)


# ---- replays from the first record, to compare with ---------------------------------------------


class CatchUp(NamedTuple):
    """Records and time that catching up took."""

    records: int
    seconds: float


def from_start(path: str | os.PathLike[str], seq: int) -> CatchUp:
    """Replay a queue from its first record up to this one: the cost without a snapshot."""
    began = time.perf_counter()
    book = empty_book()
    records = 0
    with open_log(path) as log:
        while len(batch := log.read_batch()):
            batch = batch[: int(batch.seq.searchsorted(seq, side="right"))]
            if not len(batch):
                break
            book.apply_batch(batch)
            records += len(batch)
    return CatchUp(records, time.perf_counter() - began)


def hashes_at(path: str | os.PathLike[str], seqs: Iterable[int]) -> dict[int, str]:
    """The hash of the book after each of these records, by one replay from the first."""
    found = {}
    book = empty_book()
    wanted = sorted(set(seqs))
    with open_log(path) as log:
        while wanted and len(batch := log.read_batch()):
            done = 0
            while wanted and wanted[0] <= batch.seq[-1]:
                upto = int(batch.seq.searchsorted(wanted[0], side="right"))
                book.apply_batch(batch[done:upto])
                done = upto
                found[wanted.pop(0)] = book.hash()
            book.apply_batch(batch[done:])
    return found
