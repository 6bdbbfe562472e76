"""The work of each book's process: replay the events, round by round, and report the result.

Needs only numpy: the environment of the alternatives has neither Tapewire nor the rest of the
benchmarks.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

LEVELS = 10  # of each side, compared at the end

Ladder = list[tuple[int, int]]


@dataclass
class Ending:
    """The result that must be the same for all books, at the scales of the events."""

    bids: Ladder  # price and size, best first
    asks: Ladder
    # The sum of the best prices after each event, from event `first_read`.
    bid_sum: int
    ask_sum: int


@dataclass
class Replayed:
    """Seconds of each round over all events, as wall time and as CPU time of the thread."""

    events: int
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    ending: Ending | None = None

    @property
    def best_rate(self) -> float:
        """Events per second of CPU time: a replay is one thread that waits for nothing.

        By wall time, the book with the shorter rounds would win on a busy machine: a short round
        may run without being preempted.
        """
        return self.events / min(self.cpu_s)


@dataclass
class Job:
    """One process's work, as its only argument in JSON."""

    kind: str  # "l2", "l3", or "memory" for the memory of resting orders
    events: str  # a .npy file of `events.L2_DTYPE` or `L3_DTYPE`
    rounds: int
    price_scale: int
    size_scale: int
    form: str = ""  # which book of the library
    tape: str = ""  # the same events as a queue
    library: str = ""  # native/nautilus_books.cpp, compiled


def first_read(kind: str, events: np.ndarray[Any, Any]) -> int:
    """The first event whose best prices are read: after the snapshot, or with both sides."""
    if kind == "l2":
        return int(np.count_nonzero(events["diff"] == 0))
    return int(max(np.argmax(events["side"] == 1), np.argmax(events["side"] == 2)))


def rounds(events: int, count: int, prepare: Callable[[], Any], run: Callable[[Any], Any],
           ending: Callable[[Any, Any], Ending]) -> Replayed:  # fmt: skip
    """Time `run(prepare())` `count` times, after one warm-up."""
    replayed = Replayed(events)
    gc.disable()
    for i in range(count + 1):
        book = prepare()
        wall, cpu = time.perf_counter(), time.thread_time()
        said = run(book)
        wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
        if i == 0:
            replayed.ending = ending(book, said)
        else:
            replayed.wall_s.append(wall)
            replayed.cpu_s.append(cpu)
        del book, said
    return replayed


def private_bytes() -> int:
    """Private resident memory of this process; mapped files do not count."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("RssAnon:"))
    return int(kilobytes) * 1024


def main(
    replay: Callable[[Job, np.ndarray[Any, Any]], Replayed],
    memory: Callable[[Job, np.ndarray[Any, Any]], float] | None = None,
) -> None:
    """Run the job given as the argument; the result is printed to standard output."""
    job = Job(**json.loads(sys.argv[1]))
    events = np.load(job.events)
    if job.kind == "memory" and memory is not None:
        found = {"bytes": memory(job, events)}
    else:
        found = asdict(replay(job, events))
    json.dump(found, sys.stdout)
