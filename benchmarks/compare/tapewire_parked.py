"""Tapewire with a sleeping reader, for comparison with alternatives whose receiver blocks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import tapewire as tw
from benchmarks.compare import tapewire_queue
from benchmarks.compare.tapewire_queue import missing, version
from benchmarks.latency import pair

__all__ = ["TITLE", "WHAT", "missing", "one_way", "throughput", "version"]

TITLE = "Tapewire, parked"
WHAT = "the same queue; follow() with SpinThenPark, the default: the reader sleeps on a futex"

throughput = None  # a reader with a backlog never sleeps: see "Tapewire"


def _receive(directory: Path, shared: pair.Shared) -> None:
    now, unpack, count = time.perf_counter_ns, pair.STAMP.unpack_from, shared.count
    stamp, got = shared.stamp, shared.got
    with tapewire_queue.open_reader(directory, tw.SpinThenPark()) as reader:
        pair.begin_receiving(shared)
        for i, record in enumerate(reader.follow(timeout=30)):
            stamp[i] = unpack(record.payload)[0]
            got[i] = now()
            if i + 1 == count:
                break
        pair.end_receiving(shared)


def one_way(messages: int, size: int, gap_ns: int, directory: Path) -> np.ndarray[Any, Any]:
    return pair.run_pair(
        messages,
        size,
        gap_ns,
        lambda: tapewire_queue.sender(directory, require_prealloc=True),
        lambda shared: _receive(directory, shared),
    ).from_due()
