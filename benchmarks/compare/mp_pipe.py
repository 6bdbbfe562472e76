"""`multiprocessing.Pipe`: the standard library's pipe for bytes between two processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import two_ends

TITLE = "multiprocessing.Pipe"
WHAT = "an operating-system pipe, send_bytes and blocking recv_bytes; in memory, no broker"


def missing() -> str | None:
    return None


def version() -> str:
    return f"Python {platform.python_version()}"


def _ends() -> tuple[two_ends.OpenSender, two_ends.OpenReceiver]:
    """A pipe, created before the fork so that both processes have it."""
    receiving, sending = multiprocessing.Pipe(duplex=False)

    @contextlib.contextmanager
    def sender() -> Iterator[Callable[[bytes], object]]:
        receiving.close()
        with sending:
            yield sending.send_bytes

    @contextlib.contextmanager
    def receiver() -> Iterator[Callable[[], bytes]]:
        sending.close()
        with receiving:
            yield receiving.recv_bytes

    return sender, receiver


def one_way(messages: int, size: int, gap_ns: int, directory: Path) -> np.ndarray[Any, Any]:
    return two_ends.one_way(messages, size, gap_ns, *_ends())


def throughput(messages: int, size: int, directory: Path) -> float:
    """One message per call."""
    return two_ends.throughput(messages, size, *_ends())
