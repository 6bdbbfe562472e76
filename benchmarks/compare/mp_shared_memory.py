"""A ring by hand over `multiprocessing.shared_memory`: what a careful Python user would build.

Each slot has a sequence word in front of its payload. The writer stores the payload, then the word;
the reader waits for the word, then copies the payload. Python does not order the two stores for the
other core: this relies on x86, which keeps them in order, and would be incorrect on ARM.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import two_ends
from benchmarks.compare.mp_pipe import version

__all__ = ["TITLE", "WHAT", "missing", "one_way", "throughput", "version"]

TITLE = "shared_memory ring"
WHAT = (
    "a ring written by hand in Python over multiprocessing.shared_memory, the reader spins; "
    "in memory, no broker; ordering leans on x86"
)
SLOTS = 4096
TAKEN = 0  # the number of messages that the reader has finished
FIRST = 64  # bytes before the first slot: the reader's word has a cache line of its own


def missing() -> str | None:
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"stores are not kept in order on {platform.machine()}"
    return None


@contextlib.contextmanager
def _ring(size: int) -> Iterator[tuple[two_ends.OpenSender, two_ends.OpenReceiver]]:
    """Both ends of a ring, whose memory is created before the fork and removed at the end."""
    slot = (8 + size + 63) // 64 * 64
    memory = SharedMemory(create=True, size=FIRST + SLOTS * slot)
    data = memory.buf
    words = data.cast("Q")
    at = [FIRST + i * slot for i in range(SLOTS)]

    @contextlib.contextmanager
    def sender() -> Iterator[Callable[[bytes], object]]:
        sent = 0

        def send(message: bytes) -> None:
            nonlocal sent
            while sent - words[TAKEN] >= SLOTS:
                pass
            begin = at[sent % SLOTS]
            sent += 1
            data[begin + 8 : begin + 8 + size] = message
            words[begin >> 3] = sent

        yield send

    @contextlib.contextmanager
    def receiver() -> Iterator[Callable[[], bytes | None]]:
        taken = 0

        def poll() -> bytes | None:
            nonlocal taken
            begin = at[taken % SLOTS]
            if words[begin >> 3] != taken + 1:
                return None
            message = bytes(data[begin + 8 : begin + 8 + size])
            taken += 1
            words[TAKEN] = taken
            return message

        yield poll

    try:
        yield sender, receiver
    finally:
        words.release()
        data.release()
        memory.close()
        memory.unlink()


def one_way(messages: int, size: int, gap_ns: int, directory: Path) -> np.ndarray[Any, Any]:
    with _ring(size) as ends:
        return two_ends.one_way(messages, size, gap_ns, *ends)


def throughput(messages: int, size: int, directory: Path) -> float:
    """One message per call."""
    with _ring(size) as ends:
        return two_ends.throughput(messages, size, *ends)
