"""`multiprocessing.Queue`: the standard library's queue of objects."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import two_ends
from benchmarks.compare.mp_pipe import missing, version

__all__ = ["TITLE", "WHAT", "missing", "one_way", "throughput", "version"]

TITLE = "multiprocessing.Queue"
WHAT = "a pipe behind a feeding thread, pickled bytes, put and blocking get; in memory, no broker"


def _ends() -> tuple[two_ends.OpenSender, two_ends.OpenReceiver]:
    """A queue, created before the fork so that both processes have it."""
    queue = multiprocessing.get_context("fork").Queue()

    @contextlib.contextmanager
    def sender() -> Iterator[Callable[[bytes], object]]:
        try:
            yield queue.put
        except BaseException:
            queue.cancel_join_thread()  # unread messages must not keep this process from ending
            raise
        finally:
            queue.close()
            queue.join_thread()

    @contextlib.contextmanager
    def receiver() -> Iterator[Callable[[], bytes]]:
        yield queue.get

    return sender, receiver


def one_way(messages: int, size: int, gap_ns: int, directory: Path) -> np.ndarray[Any, Any]:
    # A spinning sender would keep the GIL from the feeder thread.
    return two_ends.one_way(messages, size, gap_ns, *_ends(), patient=True)


def throughput(messages: int, size: int, directory: Path) -> float:
    """One message per call."""
    return two_ends.throughput(messages, size, *_ends())
