"""Two processes on two cores: one sends at a steady rate, the other notes each arrival."""

from __future__ import annotations

import mmap
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import percentiles, pin, quiet, unpin, until

_READY, _GO, _HEADER = 0, 1, 16


class Shared:
    """Memory of both processes: two flags, when each message was sent and when it was there."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.words = memoryview(mmap.mmap(-1, 8 * (_HEADER + 2 * count))).cast("q")
        self.sent = self.words[_HEADER : _HEADER + count]
        self.got = self.words[_HEADER + count :]
        np.asarray(self.words)[:] = 0  # every page in place before the clock runs

    def say(self, flag: int) -> None:
        self.words[flag] = 1

    def hear(self, flag: int) -> None:
        until(lambda: self.words[flag] != 0, "the other process")


@dataclass(frozen=True)
class OneWay:
    """Percentiles in nanoseconds from before the sending call to behind the receiving one."""

    from_send: dict[str, float]
    from_schedule: dict[str, float]  # from when it was due: a sender held up is not forgiven


@dataclass(frozen=True)
class Sender:
    """`send(first, second)` is called directly, with no frame of Python between."""

    send: Callable[[Any, Any], object]
    first: Any
    second: Any
    close: Callable[[], object]


def run_pair(
    count: int,
    gap_ns: int,
    open_sender: Callable[[], Sender],
    receive: Callable[[Shared], None],
) -> OneWay:
    """Fork, pin, send `count` messages `gap_ns` apart, and compare the two lists of times.

    `receive` runs in the other process, calls `begin_receiving` when it is about to read, and fills
    `shared.got`.
    """
    unpin()
    shared = Shared(count)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            shared.hear(_GO)
            receive(shared)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    sender = open_sender()  # before pinning: service threads keep both cores
    pin(0)
    shared.say(_GO)
    shared.hear(_READY)
    with quiet():
        due = _send_all(sender, shared, gap_ns)
    _, status = os.waitpid(child, 0)
    sender.close()
    unpin()
    if status != 0:
        raise RuntimeError(f"the receiving process failed: status={status}")
    warm = count // 10
    sent, got = np.asarray(shared.sent), np.asarray(shared.got)
    schedule = due + np.arange(count) * gap_ns
    return OneWay(percentiles((got - sent)[warm:]), percentiles((got - schedule)[warm:]))


def _send_all(sender: Sender, shared: Shared, gap_ns: int) -> int:
    now = time.perf_counter_ns
    sent = shared.sent
    send, one, two = sender.send, sender.first, sender.second
    begin = due = now() + 1_000_000
    for i in range(shared.count):
        while now() < due:
            pass
        start = now()
        send(one, two)
        sent[i] = start
        due += gap_ns
    return begin


def begin_receiving(shared: Shared) -> None:
    """In the receiving process, when it is open and about to read."""
    pin(1)
    shared.say(_READY)
