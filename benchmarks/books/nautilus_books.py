"""nautilus_trader's OrderBook, two ways.

- "native": its C interface in a loop of C++ (native/nautilus_books.cpp), faster than any
  Python code;
- "python": what its users write, `apply_delta`, `best_bid_price()`, `best_ask_price()` in a loop.

The deltas are created before anything is timed. A level of size 0 is a DELETE, any other an UPDATE,
as in its own Binance adapter. Its book of single orders has no trades; a trade is replaced by its
result, the order updated or deleted.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from benchmarks.books import replay
from benchmarks.books.events import ADD
from benchmarks.books.replay import Ending, Job, Ladder, Replayed

Events = np.ndarray[Any, Any]
ACTION_ADD, ACTION_UPDATE, ACTION_DELETE = 1, 2, 3
BOOK_TYPES = {"l2": 2, "l3": 3, "memory": 3}  # L2_MBP, L3_MBO
ROW = np.dtype(
    {
        "names": ["price", "size", "order", "action", "side"],
        "formats": ["i8", "i8", "u8", "u1", "u1"],
        "offsets": [0, 8, 16, 24, 25],
        "itemsize": 32,
    }
)


class Best(ctypes.Structure):
    _fields_ = (("bids", ctypes.c_int64), ("asks", ctypes.c_int64))


def deltas_of(kind: str, events: Events) -> Events:
    """The actions for these events."""
    rows = np.zeros(len(events), ROW)
    rows["price"], rows["side"] = events["price"], events["side"]
    if kind == "l2":
        rows["size"] = events["size"]
        rows["action"] = np.where(events["size"] == 0, ACTION_DELETE, ACTION_UPDATE)
    else:
        rows["size"], rows["order"] = events["left"], events["order"]
        kept = np.where(events["type"] == ADD, ACTION_ADD, ACTION_UPDATE)
        rows["action"] = np.where(events["left"] == 0, ACTION_DELETE, kept)
    return rows


def _library(job: Job, rows: Events) -> Any:
    """The compiled loop over these deltas."""
    import nautilus_trader.model.book  # noqa: F401  what the loop is linked against

    library = ctypes.CDLL(job.library)
    library.open_book.restype = ctypes.c_void_p
    library.open_book.argtypes = [ctypes.c_int]
    library.close_book.argtypes = [ctypes.c_void_p]
    library.replay.restype = Best
    library.replay.argtypes = [ctypes.c_void_p, ctypes.c_long]
    library.ladder.restype = ctypes.c_long
    library.ladder.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long,
                               ctypes.c_void_p, ctypes.c_void_p]  # fmt: skip
    library.prepare(ctypes.c_void_p(rows.ctypes.data), ctypes.c_long(len(rows)),
                    job.price_scale, job.size_scale)  # fmt: skip
    return library


def _native_ladder(library: Any, book: int, side: int, lots: int) -> Ladder:
    prices, sizes = np.zeros(replay.LEVELS, np.int64), np.zeros(replay.LEVELS)
    count = library.ladder(book, side, replay.LEVELS, prices.ctypes.data, sizes.ctypes.data)
    whole = np.rint(sizes * lots).astype(np.int64)
    return list(zip(prices[:count].tolist(), whole[:count].tolist(), strict=True))


def _native(job: Job, events: Events) -> Replayed:
    library = _library(job, deltas_of(job.kind, events))
    both = replay.first_read(job.kind, events)
    opened: list[int] = []

    def prepare() -> int:
        while opened:
            library.close_book(opened.pop())
        opened.append(library.open_book(BOOK_TYPES[job.kind]))
        return opened[0]

    def ending(book: int, said: Best) -> Ending:
        lots = 10**job.size_scale
        ladders = (_native_ladder(library, book, side, lots) for side in (1, 2))
        return Ending(*ladders, said.bids, said.asks)

    return replay.rounds(
        len(events), job.rounds, prepare, lambda book: library.replay(book, both), ending
    )


def _objects(job: Job, rows: Events) -> tuple[list[Any], Any]:
    """The deltas as Python objects of the package, and their instrument."""
    from nautilus_trader.model.data import BookOrder, OrderBookDelta
    from nautilus_trader.model.identifiers import InstrumentId
    from nautilus_trader.model.objects import Price, Quantity

    instrument = InstrumentId.from_str("BOOK.BENCH")
    return [
        OrderBookDelta(
            instrument,
            action,
            BookOrder(
                side,
                Price(price / 10**job.price_scale, job.price_scale),
                Quantity(size / 10**job.size_scale, job.size_scale),
                order,
            ),
            *(0, i, 0, 0),
        )
        for i, (price, size, order, action, side) in enumerate(rows.tolist())
    ], instrument


def _python(job: Job, events: Events) -> Replayed:
    from nautilus_trader.model.book import OrderBook

    deltas, instrument = _objects(job, deltas_of(job.kind, events))
    both = replay.first_read(job.kind, events)

    def run(book: Any) -> None:
        apply, best_bid, best_ask = book.apply_delta, book.best_bid_price, book.best_ask_price
        for delta in deltas[:both]:
            apply(delta)
        for delta in deltas[both:]:
            apply(delta)
            best_bid()
            best_ask()

    def ladder(levels: list[Any]) -> Ladder:
        tick, lot = 10**job.price_scale, 10**job.size_scale
        return [(round(float(at.price) * tick), round(at.size() * lot)) for at in levels]

    def ending(book: Any, _: None) -> Ending:
        """Sums the best prices in a separate replay that is not timed."""
        again = OrderBook(instrument, BOOK_TYPES[job.kind])
        sums = [0, 0]
        for i, delta in enumerate(deltas):
            again.apply_delta(delta)
            if i >= both:
                sums[0] += round(float(again.best_bid_price()) * 10**job.price_scale)
                sums[1] += round(float(again.best_ask_price()) * 10**job.price_scale)
        levels = replay.LEVELS
        return Ending(ladder(book.bids()[:levels]), ladder(book.asks()[:levels]), *sums)

    return replay.rounds(
        len(events),
        job.rounds,
        lambda: OrderBook(instrument, BOOK_TYPES[job.kind]),
        run,
        ending,
    )


def run(job: Job, events: Events) -> Replayed:
    return _native(job, events) if job.form == "native" else _python(job, events)


def memory(job: Job, events: Events) -> float:
    rows = deltas_of("memory", events)
    library = _library(job, rows)
    book = library.open_book(BOOK_TYPES["memory"])
    before = replay.private_bytes()
    library.replay(book, len(rows))
    return replay.private_bytes() - before


if __name__ == "__main__":
    replay.main(run, memory)
