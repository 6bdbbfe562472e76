"""The work of one checkout: write the events as a queue, and time five features over it.

Runs with the Python of that checkout, which may be an older one: nothing but its public interface
is used, and it writes the queue itself, in its own version of the format.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tapewire as tw
from benchmarks.books import events as made
from benchmarks.books import tape
from tapewire import book as books
from tapewire import replay

NAMES = ("mid", "spread_bps", "microprice", "imbalance5", "ofi")
BATCH = 256  # records per call for the book alone


def _features(reader: Any, sample: str) -> None:
    with replay.FeatureStream({"log": reader}, NAMES, sample) as stream:
        for _ in stream:
            pass


def _book_alone(reader: Any) -> None:
    book = books.L2Book(price_scale=made.PRICE_SCALE, size_scale=made.SIZE_SCALE)
    while len(records := reader.read_batch(BATCH)):
        book.tops(records, per="event")


WORKS: dict[str, Callable[[Any], None]] = {
    "event": lambda reader: _features(reader, "event"),
    "100ms": lambda reader: _features(reader, "100ms"),
    "book": _book_alone,
}


def main(events: str, queue: str, rounds: str) -> None:
    """Print the CPU seconds of each round by kind of work, after one warm-up, and the records."""
    tape.write_l2(Path(queue), np.load(events), made.PRICE_SCALE, made.SIZE_SCALE)
    seconds: dict[str, list[float]] = {what: [] for what in WORKS}
    gc.disable()
    with tw.open_log(queue) as reader:
        for i in range(int(rounds) + 1):
            for what, work in WORKS.items():
                reader.seek_start()
                start = time.thread_time()
                work(reader)
                took = time.thread_time() - start
                if i:
                    seconds[what].append(took)
        records = reader.last_seq + 1
    json.dump({"records": records, "seconds": seconds}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
