"""pyzmq over ipc://, the receiver spinning: the favourable setting for latency."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import pyzmq_ipc, two_ends
from benchmarks.compare.pyzmq_ipc import missing, version

__all__ = ["TITLE", "WHAT", "missing", "one_way", "throughput", "version"]

TITLE = "pyzmq ipc://, spinning"
WHAT = "the same sockets; recv(NOBLOCK) in a loop"


def one_way(messages: int, size: int, gap_ns: int, directory: Path) -> np.ndarray[Any, Any]:
    return two_ends.one_way(
        messages,
        size,
        gap_ns,
        lambda: pyzmq_ipc.sender(directory),
        lambda: pyzmq_ipc.spinning(directory),
        patient=True,  # the receiver uses one core; the threads of libzmq need the other
    )


throughput = None  # a receiver with a backlog never blocks: see "pyzmq ipc://"
