"""What every measurement shares: what is sent, loops, pinning, quiet, a scratch folder.

`tapewire bench` and the project's own benchmarks measure by the same code.
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
    """Mean nanoseconds of a statement in a plain Python loop, the loop included."""
    setup = "; ".join(f"{name} = _{name}" for name in names) or "pass"
    timer = timeit.Timer(statement, setup, globals={f"_{k}": v for k, v in names.items()})
    return timer.timeit(n) * 1e9 / n


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No garbage collection inside."""
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
    """Bind the calling thread to the first (0) or second (1) CPU we may use; returns its number.

    Open queues before: their service threads inherit the binding and would then share that core.
    """
    cpu = ALL_CPUS[which % len(ALL_CPUS)]
    os.sched_setaffinity(0, {cpu})
    return cpu


def unpin() -> None:
    """All CPUs again."""
    os.sched_setaffinity(0, ALL_CPUS)


def die_with_parent() -> None:
    """For a new process: whatever becomes of the one that started it, this one ends as well."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def scratch(root: Path | None = None) -> Iterator[Path]:
    """A folder below `root`; by default in memory, since a disk would be the thing measured."""
    if root is None:
        shm = Path("/dev/shm")
        root = shm if shm.is_dir() and os.access(shm, os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="tapewire-bench-", dir=root))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def rows_of(n: int) -> np.ndarray[Any, Any]:
    """`n` payloads as numpy rows, no two alike."""
    rows = np.arange(n * PAYLOAD_BYTES // 8, dtype=np.uint64).reshape(n, PAYLOAD_BYTES // 8)
    return rows.view(np.uint8)


def until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Poll for something that another thread or process does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.0005)
