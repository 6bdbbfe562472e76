"""Tapewire, many records per call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import tapewire as tw
from benchmarks.compare import tapewire_queue
from benchmarks.compare.tapewire_queue import missing, version
from benchmarks.harness import TYPE_ID
from benchmarks.latency import pair

__all__ = ["TITLE", "WHAT", "missing", "one_way", "throughput", "version"]

ROWS = 1_000

TITLE = "Tapewire, batched"
WHAT = f"the same queue; append_batch of {ROWS:,} numpy rows, read_batch"

one_way = None  # a record's latency: see "Tapewire"


def throughput(messages: int, size: int, directory: Path) -> float:
    """`append_batch` of 1,000 numpy rows, `read_batch` of as many or fewer; several segments."""

    @contextlib.contextmanager
    def flow() -> Iterator[Callable[[], object]]:
        rows = np.zeros((ROWS, size), np.uint8)

        def send_all() -> None:
            for _ in range(messages // ROWS):
                writer.append_batch(TYPE_ID, rows)
            writer.append_batch(TYPE_ID, rows[: messages % ROWS])

        with tapewire_queue.open_writer(directory) as writer:
            yield send_all

    def receive(shared: pair.Shared) -> None:
        with tapewire_queue.open_reader(directory, tw.BusySpin()) as reader:
            pair.begin_receiving(shared)
            left = shared.count
            while left:
                left -= len(reader.read_batch(ROWS).seq)
            pair.end_receiving(shared)

    return pair.run_flow(messages, flow, receive)
