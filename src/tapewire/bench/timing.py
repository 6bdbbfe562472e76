"""Shared by all measurements: payloads, timed loops, pinning, a scratch directory.

Used by `tapewire bench` and by the project's own benchmarks.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import shutil
import signal
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "ALL_CPUS",
    "PAYLOAD",
    "PAYLOAD_BYTES",
    "RECORD_BYTES",
    "TYPE_ID",
    "die_with_parent",
    "loop_ns",
    "pin",
    "quiet",
    "rows_of",
    "scratch",
    "unpin",
    "until",
]

PAYLOAD_BYTES = 64
RECORD_BYTES = 128  # the 64-byte header and the payload
PAYLOAD = bytes(range(PAYLOAD_BYTES))
TYPE_ID = 0x1001


def loop_ns(statement: str, n: int, **names: Any) -> float:
    """Mean nanoseconds of a statement in a plain Python loop, including the loop."""
    setup = "; ".join(f"{name} = _{name}" for name in names) or "pass"
    timer = timeit.Timer(statement, setup, globals={f"_{k}": v for k, v in names.items()})
    return timer.timeit(n) * 1e9 / n


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Disable garbage collection in the block."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


ALL_CPUS = sorted(os.sched_getaffinity(0))


def pin(which: int) -> int:
    """Bind the calling thread to the first (0) or second (1) available CPU; return its number.

    Open queues before: their service threads inherit the binding and would share that core.
    """
    cpu = ALL_CPUS[which % len(ALL_CPUS)]
    os.sched_setaffinity(0, {cpu})
    return cpu


def unpin() -> None:
    """Bind the calling thread to all available CPUs again."""
    os.sched_setaffinity(0, ALL_CPUS)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def scratch(root: Path | None = None) -> Iterator[Path]:
    """A temporary directory below `root`; by default in memory, so as not to measure a disk."""
    if root is None:
        shm = Path("/dev/shm")
        root = shm if shm.is_dir() and os.access(shm, os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="tapewire-bench-", dir=root))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def rows_of(n: int) -> np.ndarray[Any, Any]:
    """`n` different payloads as numpy rows."""
    rows = np.arange(n * PAYLOAD_BYTES // 8, dtype=np.uint64).reshape(n, PAYLOAD_BYTES // 8)
    return rows.view(np.uint8)


def until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Wait for a condition that another thread or process makes true.

    Raises:
        TimeoutError: It did not become true in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.0005)
