"""Tapewire: from the queue, through `read_batch` with its checksums, to the top of the book."""

from __future__ import annotations

from typing import Any

import numpy as np

import tapewire as tw
from benchmarks.books import replay
from benchmarks.books.replay import Ending, Job, Ladder, Replayed
from tapewire import book as books

Events = np.ndarray[Any, Any]
BATCH = {
    "l2": 256,
    "l3": 4_096,
    "memory": 4_096,
}  # records per call: the rows of tops stay in the cache


def _book(job: Job) -> Any:
    scales = {"price_scale": job.price_scale, "size_scale": job.size_scale}
    return books.L2Book(**scales) if job.kind == "l2" else books.L3Book(**scales)


def _ladder(levels: Events) -> Ladder:
    return list(zip(levels["price"].tolist(), levels["size"].tolist(), strict=True))


def _replay(reader: Any, book: Any, batch: int) -> None:
    while len(records := reader.read_batch(batch)):
        book.tops(records, per="level")


def _sums(job: Job, reader: Any, first: int) -> tuple[int, int]:
    """The sum of the best prices after each event, from a separate replay that is not timed."""
    reader.seek_start()
    book, rows = _book(job), []
    while len(records := reader.read_batch(BATCH[job.kind])):
        rows.append(book.tops(records, per="level").copy())
    tops = np.concatenate(rows)
    # The snapshot is one event here, but `first` level changes for the alternatives.
    tops = tops[1:] if job.kind == "l2" else tops[first:]
    return int(tops["bid_price"].sum()), int(tops["ask_price"].sum())


def run(job: Job, events: Events) -> Replayed:
    first = replay.first_read(job.kind, events)
    with tw.open_log(job.tape) as reader:

        def prepare() -> Any:
            reader.seek_start()
            return _book(job)

        def ending(book: Any, _: None) -> Ending:
            levels = replay.LEVELS
            ladders = _ladder(book.bids(levels)), _ladder(book.asks(levels))
            return Ending(*ladders, *_sums(job, reader, first))

        return replay.rounds(
            len(events),
            job.rounds,
            prepare,
            lambda book: _replay(reader, book, BATCH[job.kind]),
            ending,
        )


def memory(job: Job, events: Events) -> float:
    with tw.open_log(job.tape) as reader:
        reader.read_batch(BATCH["memory"])  # the memory of a reader does not count for the book
        reader.seek_start()
        book = _book(job)
        before = replay.private_bytes()
        while len(records := reader.read_batch(BATCH["memory"])):
            book.apply_batch(records)
        return replay.private_bytes() - before


if __name__ == "__main__":
    replay.main(run, memory)
