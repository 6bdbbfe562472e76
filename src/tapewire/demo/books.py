"""Books: the one of the engine, and those that others rebuild from its market data."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import NamedTuple

from tapewire.book import L2Book
from tapewire.demo.matching import Engine
from tapewire.demo.outputs import snapshot_of
from tapewire.demo.places import INSTRUMENT
from tapewire.log import Reader, open_log
from tapewire.replay import snapshots
from tapewire.replay.snapshots import SnapshotFile

__all__ = [
    "Caught",
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
    """A book of the demo's instrument; a gap in the market data makes it raise."""
    return L2Book(INSTRUMENT.price_scale, INSTRUMENT.size_scale, on_gap="raise")


def book_of(engine: Engine) -> L2Book:
    """The engine's own levels, in a book whose hash can be compared."""
    book = empty_book()
    book.apply(snapshot_of(engine))
    return book


# ---- warm starts --------------------------------------------------------------------------------


class Joined(NamedTuple):
    """A book to go on with, and the number of the record it is of; None: of no record yet."""

    book: L2Book
    snapshot: int | None


def join(reader: Reader, path: str | os.PathLike[str]) -> Joined:
    """The book of the latest snapshot beside a queue; `reader` then stands right behind it.

    Where there is no snapshot yet, it begins with the first record, which opens the market.
    """
    found = snapshots.latest_before(path, *_IDS, instrument=INSTRUMENT, on_gap="raise")
    if found is None:
        reader.seek_start()
        return Joined(empty_book(), None)
    seq: int = found.header["seq"]
    reader.seek_seq(seq)
    reader.next()  # behind it, so that it says when what follows is missing
    book = found.book
    assert isinstance(book, L2Book)  # the instrument's
    return Joined(book, seq)


def snapshots_of(path: str | os.PathLike[str]) -> list[SnapshotFile]:
    """Every snapshot of the instrument beside a queue, the oldest first."""
    return snapshots.files(path, *_IDS)


# ---- the long way, to compare with --------------------------------------------------------------


class Caught(NamedTuple):
    """What it takes to catch up."""

    records: int
    seconds: float


def from_start(path: str | os.PathLike[str], seq: int) -> Caught:
    """Replay a queue from its first record up to this one: what a snapshot saves."""
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
    return Caught(records, time.perf_counter() - began)


def hashes_at(path: str | os.PathLike[str], seqs: Iterable[int]) -> dict[int, str]:
    """The hash of the book behind each of these records, by one replay from the first."""
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
