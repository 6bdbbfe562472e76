"""Two processes on two cores, a sender and a receiver: one-way trips and throughput."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import signal
import struct
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapewire.bench.timing import die_with_parent, pin, quiet, unpin, until

__all__ = [
    "STAMP",
    "OpenFlow",
    "OpenSender",
    "Shared",
    "Trips",
    "begin_receiving",
    "end_receiving",
    "run_flow",
    "run_pair",
    "sleep_nearly_until",
]

STAMP = struct.Struct("<q")  # the start of every message: when it was due, CLOCK_MONOTONIC in ns
SECONDS = 60.0  # timeout for what should happen at once
AWAKE_NS = 120_000  # a sender that sleeps wakes this long before a message is due

_READY, _GO, _START, _END, _HEADER = 0, 1, 2, 3, 16

# A context manager whose value sends one message, or all of them.
OpenSender = Callable[[], AbstractContextManager[Callable[[bytes], object]]]
OpenFlow = Callable[[], AbstractContextManager[Callable[[], object]]]


class Shared:
    """Memory shared by both processes: flags, start and end, and the times of each message."""

    def __init__(self, count: int, noted: bool = True) -> None:
        self.count = count
        places = count if noted else 0
        self.words = memoryview(mmap.mmap(-1, 8 * (_HEADER + 3 * places))).cast("q")
        self.sent, self.stamp, self.got = (
            self.words[_HEADER + i * places : _HEADER + (i + 1) * places] for i in range(3)
        )
        np.asarray(self.words)[:] = 0  # faults every page in before the measurement

    def say(self, flag: int) -> None:
        """Set a flag."""
        self.words[flag] = 1

    def hear(self, flag: int, alive: Callable[[], object] = bool) -> None:
        """Wait until a flag is set; `alive` raises if the other process has failed."""

        def heard() -> bool:
            alive()
            return self.words[flag] != 0

        until(heard, "the other process", SECONDS)


@dataclass(frozen=True)
class Trips:
    """Times of each message, in nanoseconds: when it was due, sent, and received."""

    due: np.ndarray[Any, Any]
    sent: np.ndarray[Any, Any]
    got: np.ndarray[Any, Any]
    stamp: np.ndarray[Any, Any]  # the stamp in the message; zeros if the receiver did not read it

    def from_due(self) -> np.ndarray[Any, Any]:
        """Trips from when messages were due, so that a delay of the sender counts."""
        if not np.array_equal(self.stamp, self.due):
            raise RuntimeError("a message was lost, duplicated or reordered")
        trips: np.ndarray[Any, Any] = self.got - self.due
        return trips


def run_pair(
    count: int,
    size: int,
    gap_ns: int,
    open_sender: OpenSender,
    receive: Callable[[Shared], None],
    patient: bool = False,
) -> Trips:
    """Fork, pin, and send `count` messages of `size` bytes `gap_ns` apart; return their times.

    `receive` runs in the other process, calls `begin_receiving` when it is about to read, and fills
    `shared.got`. Between messages the sender spins. A `patient` one sleeps for most of the time,
    for transports with threads or a server that need its core or its GIL.
    """
    shared = Shared(count)
    with _receiving(shared, receive) as alive, open_sender() as send:
        _await_receiver(shared, alive)
        with quiet():
            begin = _send_all(send, shared, size, gap_ns, patient)
        shared.hear(_END, alive)
    due = begin + np.arange(count) * gap_ns
    return Trips(due, *(np.array(times) for times in (shared.sent, shared.got, shared.stamp)))


def run_flow(messages: int, open_flow: OpenFlow, receive: Callable[[Shared], None]) -> float:
    """Records per second, from before the first is sent until the other process has the last."""
    shared = Shared(messages, noted=False)
    with _receiving(shared, receive) as alive, open_flow() as send_all:
        _await_receiver(shared, alive)
        with quiet():
            shared.words[_START] = time.perf_counter_ns()
            send_all()
        shared.hear(_END, alive)
    return messages * 1e9 / (shared.words[_END] - shared.words[_START])


def _send_all(
    send: Callable[[bytes], object], shared: Shared, size: int, gap_ns: int, patient: bool
) -> int:
    """Send all messages; return when the first one was due."""
    now, pack = time.perf_counter_ns, STAMP.pack
    sent, rest = shared.sent, bytes(size - STAMP.size)
    begin = due = now() + 1_000_000
    for i in range(shared.count):
        message = pack(due) + rest  # before it is due
        if patient:
            sleep_nearly_until(due)
        while now() < due:
            pass
        start = now()
        send(message)
        sent[i] = start
        due += gap_ns
    return begin


def sleep_nearly_until(due: int) -> None:
    """Sleep, but wake before a message is due."""
    if (left := due - AWAKE_NS - time.perf_counter_ns()) > 0:
        time.sleep(left * 1e-9)


def begin_receiving(shared: Shared) -> None:
    """Called by the receiving process when its log is open and it is about to read."""
    gc.collect()
    gc.disable()
    pin(1)
    shared.say(_READY)


def end_receiving(shared: Shared) -> None:
    """Called when the last message has been received, before anything is closed."""
    shared.words[_END] = time.perf_counter_ns()


def _await_receiver(shared: Shared, alive: Callable[[], object]) -> None:
    pin(0)  # only now, so that the threads of what was opened keep all cores
    shared.say(_GO)
    shared.hear(_READY, alive)


@contextlib.contextmanager
def _receiving(shared: Shared, receive: Callable[[Shared], None]) -> Iterator[Callable[[], object]]:
    """Run `receive` in another process, which ends with the block and with this process.

    The function that is yielded raises if that process has failed.
    """
    unpin()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            die_with_parent()
            # Ctrl-C reaches both processes; the parent ends this one.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            shared.hear(_GO)
            receive(shared)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def ended() -> bool:
        state = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if state is not None and (state.si_code != os.CLD_EXITED or state.si_status != 0):
            raise RuntimeError(f"the receiving process failed: status={state.si_status}")
        return state is not None

    try:
        yield ended
        until(ended, "the end of the receiving process", SECONDS)
    finally:
        os.kill(child, signal.SIGKILL)  # no effect if it has ended
        os.waitpid(child, 0)
        unpin()
