"""Alternatives with one call that sends a message and one call that receives a message."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from benchmarks.latency.pair import (
    STAMP,
    OpenSender,
    Shared,
    begin_receiving,
    end_receiving,
    run_flow,
    run_pair,
)

# The context yields a function: the next message (bytes or a view), or None if there is none.
OpenReceiver = Callable[[], AbstractContextManager[Callable[[], Any]]]


def one_way(
    messages: int,
    size: int,
    gap_ns: int,
    open_sender: OpenSender,
    open_receiver: OpenReceiver,
    patient: bool = False,
) -> np.ndarray[Any, Any]:
    def receive(shared: Shared) -> None:
        with open_receiver() as poll:
            _note_each(shared, poll)

    return run_pair(messages, size, gap_ns, open_sender, receive, patient).from_due()


def _note_each(shared: Shared, poll: Callable[[], Any]) -> None:
    """The clock is read after the stamp: the message has been received, not only announced."""
    now, unpack, count = time.perf_counter_ns, STAMP.unpack_from, shared.count
    stamp, got = shared.stamp, shared.got
    begin_receiving(shared)
    i = 0
    while i < count:
        message = poll()
        if message is None:
            continue
        stamp[i] = unpack(message)[0]
        got[i] = now()
        i += 1
    end_receiving(shared)


def throughput(
    messages: int, size: int, open_sender: OpenSender, open_receiver: OpenReceiver
) -> float:
    """One message per call on both sides."""

    @contextlib.contextmanager
    def flow() -> Iterator[Callable[[], object]]:
        def send_all() -> None:
            for _ in range(messages):
                send(message)

        message = bytes(size)
        with open_sender() as send:
            yield send_all

    def receive(shared: Shared) -> None:
        with open_receiver() as poll:
            begin_receiving(shared)
            left = messages
            while left:
                if poll() is not None:
                    left -= 1
            end_receiving(shared)

    return run_flow(messages, flow, receive)
