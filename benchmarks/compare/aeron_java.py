"""Aeron IPC in Java: not persisted, the yardstick for messages through shared memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import jvm

TITLE = "Aeron IPC (Java)"
WHAT = (
    "not persisted, a log in shared memory; exclusive publication, tryClaim, busy-spinning poll; "
    "the driver, one sleeping thread (SHARED), in the receiver and off the path of the messages; "
    "two JVMs, each confined to one core, SerialGC, warmed up"
)

_FLAGS = ("--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",)


def missing() -> str | None:
    return jvm.missing()


def version() -> str:
    return f"{jvm.pinned('aeron-all')}, Java {jvm.java_version()}"


def one_way(
    messages: int, size: int, gap_ns: int, directory: Path
) -> np.ndarray[Any, np.dtype[np.int64]]:
    return jvm.one_way("aeron", _FLAGS, messages, size, gap_ns, directory)


def throughput(messages: int, size: int, directory: Path) -> float:
    """One message per claim, up to 16 per poll; 64 MiB terms; warmed up by two million messages."""
    return jvm.throughput("aeron", _FLAGS, messages, size, directory)
