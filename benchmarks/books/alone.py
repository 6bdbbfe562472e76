"""Tapewire's book of orders alone: the events are in memory, as those of the alternatives are."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from benchmarks.books import replay, tape
from benchmarks.books.replay import Ending, Job, Ladder, Replayed

Events = np.ndarray[Any, Any]
LEVEL = np.dtype({"names": ["price", "size", "orders"], "formats": ["i8", "i8", "u4"],
                  "offsets": [0, 8, 16], "itemsize": 24})  # fmt: skip


class Best(ctypes.Structure):
    _fields_ = (("bids", ctypes.c_int64), ("asks", ctypes.c_int64))


def _library(job: Job, events: Events) -> Any:
    """The compiled loop over these events."""
    rows = tape.l3_rows(events, job.price_scale, job.size_scale)["order"].copy()
    library = ctypes.CDLL(job.library)
    library.open_book.restype = ctypes.c_void_p
    library.close_book.argtypes = [ctypes.c_void_p]
    library.replay.restype = Best
    library.replay.argtypes = [ctypes.c_void_p, ctypes.c_long]
    library.ladder.restype = ctypes.c_long
    library.ladder.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
    library.prepare(ctypes.c_void_p(rows.ctypes.data), ctypes.c_long(len(rows)),
                    job.price_scale, job.size_scale)  # fmt: skip
    return library


def _ladder(library: Any, book: int, side: int) -> Ladder:
    levels = np.zeros(replay.LEVELS, LEVEL)
    levels = levels[: library.ladder(book, side, replay.LEVELS, levels.ctypes.data)]
    return list(zip(levels["price"].tolist(), levels["size"].tolist(), strict=True))


def run(job: Job, events: Events) -> Replayed:
    library = _library(job, events)
    both = replay.first_read(job.kind, events)
    opened: list[int] = []

    def prepare() -> int:
        while opened:
            library.close_book(opened.pop())
        opened.append(library.open_book())
        return opened[0]

    def ending(book: int, said: Best) -> Ending:
        return Ending(_ladder(library, book, 1), _ladder(library, book, 2), said.bids, said.asks)

    return replay.rounds(
        len(events), job.rounds, prepare, lambda book: library.replay(book, both), ending
    )


if __name__ == "__main__":
    replay.main(run)
