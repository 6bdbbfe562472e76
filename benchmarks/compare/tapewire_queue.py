"""Tapewire, one record per call, the reader spinning."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tapewire as tw
from benchmarks.compare import two_ends
from benchmarks.harness import TYPE_ID
from benchmarks.latency import pair

TITLE = "Tapewire"
WHAT = "persisted, mapped files; append and next, the reader spins; checksums made and verified"


def missing() -> str | None:
    return None


def version() -> str:
    return importlib.metadata.version("tapewire")


def open_writer(directory: Path, **options: object) -> tw.queue.Writer:
    return tw.open_publisher(directory / "queue", **options)


def open_reader(directory: Path, wait: object) -> tw.Reader:
    return tw.open_subscriber(directory / "queue", "bench", wait=wait)


@contextlib.contextmanager
def sender(directory: Path, **options: object) -> Iterator[Callable[[bytes], object]]:
    with open_writer(directory, **options) as writer:
        yield functools.partial(writer.append, TYPE_ID)


def _receive(directory: Path, shared: pair.Shared) -> None:
    """As in two_ends.py, with the payload taken from the record."""
    now, unpack, count = time.perf_counter_ns, pair.STAMP.unpack_from, shared.count
    stamp, got = shared.stamp, shared.got
    with open_reader(directory, tw.BusySpin()) as reader:
        next_ = reader.next
        pair.begin_receiving(shared)
        i = 0
        while i < count:
            record = next_()
            if record is None:
                continue
            stamp[i] = unpack(record.payload)[0]
            got[i] = now()
            i += 1
        pair.end_receiving(shared)


@contextlib.contextmanager
def _receiver(directory: Path) -> Iterator[Callable[[], object]]:
    with open_reader(directory, tw.BusySpin()) as reader:
        yield reader.next


def one_way(messages: int, size: int, gap_ns: int, directory: Path) -> np.ndarray[Any, Any]:
    """One segment that holds all messages; its pages are mapped before the first."""
    return pair.run_pair(
        messages,
        size,
        gap_ns,
        lambda: sender(directory, require_prealloc=True),
        lambda shared: _receive(directory, shared),
    ).from_due()


def throughput(messages: int, size: int, directory: Path) -> float:
    """`append` and `next`, one record per call, with default options."""
    return two_ends.throughput(
        messages, size, lambda: sender(directory), lambda: _receiver(directory)
    )
