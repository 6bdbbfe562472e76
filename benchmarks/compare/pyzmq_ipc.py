"""pyzmq over ipc://, PUSH to PULL, a blocking receiver; shared with the spinning form."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import two_ends

TITLE = "pyzmq ipc://"
WHAT = "unix socket, PUSH to PULL, blocking recv; in memory, no broker; high-water marks 100,000"
HIGH_WATER = 100_000  # the default of 1,000 would stall the sender all the time


def missing() -> str | None:
    return None if importlib.util.find_spec("zmq") else "the package pyzmq is not installed"


def version() -> str:
    import zmq

    return f"{importlib.metadata.version('pyzmq')} (libzmq {zmq.zmq_version()})"


@contextlib.contextmanager
def _socket(kind: str) -> Iterator[Any]:
    import zmq

    with zmq.Context() as context, context.socket(getattr(zmq, kind)) as socket:
        socket.set_hwm(HIGH_WATER)
        yield socket


@contextlib.contextmanager
def sender(directory: Path) -> Iterator[Callable[[bytes], object]]:
    with _socket("PUSH") as socket:
        socket.bind(f"ipc://{directory}/zmq")
        yield socket.send


@contextlib.contextmanager
def _blocking(directory: Path) -> Iterator[Callable[[], bytes]]:
    with _socket("PULL") as socket:
        socket.connect(f"ipc://{directory}/zmq")
        yield socket.recv


@contextlib.contextmanager
def spinning(directory: Path) -> Iterator[Callable[[], bytes | None]]:
    import zmq

    with _socket("PULL") as socket:
        socket.connect(f"ipc://{directory}/zmq")

        def poll() -> bytes | None:
            try:
                return socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return None

        yield poll


def one_way(messages: int, size: int, gap_ns: int, directory: Path) -> np.ndarray[Any, Any]:
    return two_ends.one_way(
        messages, size, gap_ns, lambda: sender(directory), lambda: _blocking(directory)
    )


def throughput(messages: int, size: int, directory: Path) -> float:
    """One message per call; libzmq batches them internally."""
    return two_ends.throughput(
        messages, size, lambda: sender(directory), lambda: _blocking(directory)
    )
