"""The way of a price: feed → strategy → router → strategy; three processes, one queue per hop."""

from __future__ import annotations

import mmap
import multiprocessing
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tapewire as tw
from benchmarks.harness import (
    ALL_CPUS,
    TYPE_ID,
    Row,
    Scale,
    die_with_parent,
    percentiles,
    quiet,
    scratch,
    until,
)
from benchmarks.latency.pair import sleep_nearly_until
from tapewire import bus

GAP_NS = 250_000
NUMBER = struct.Struct("<q56x")  # 64 bytes, as everywhere else
# When the message with this number was sent and received, and by which process.
FED, AT_STRATEGY, ORDERED, AT_ROUTER, FILLED, BACK = range(6)
READY, HEADER = 0, 8
HOPS = {
    "feed → strategy": (FED, AT_STRATEGY),
    "strategy → router": (ORDERED, AT_ROUTER),
    "router → strategy": (FILLED, BACK),
    "price to fill": (FED, BACK),
}
# A spinning process needs a core of its own.
WAIT: Any = tw.BusySpin() if len(ALL_CPUS) > 3 else tw.SpinThenPark()


class Times:
    """Memory of all processes: a row of times per stage, and the number of ready processes."""

    def __init__(self, count: int) -> None:
        words = np.frombuffer(mmap.mmap(-1, 8 * (HEADER + 6 * count)), np.int64)
        words[:] = 0
        self.words, self.rows = words, words[HEADER:].reshape(6, count)


def _strategy(directory: Path, times: Times, count: int) -> None:
    """Answers each price with an order and records each fill; reads both through one fan-in."""
    prices = tw.open_subscriber(directory / "prices", "strategy", create_timeout=30)
    fills = tw.open_subscriber(directory / "orders_in", "strategy", create_timeout=30)
    now, rows = time.perf_counter_ns, times.rows
    with (
        tw.open_publisher(directory / "orders_out") as orders,
        bus.FanInReader({"fills": fills, "prices": prices}, max_skew=0, wait=WAIT) as inputs,
    ):
        times.words[READY] += 1
        done = 0
        for record in inputs.follow(timeout=60):
            moment = now()
            (number,) = NUMBER.unpack(record)
            if record.source == "fills":
                rows[BACK, number] = moment
                done += 1
                if done == count:
                    return
            else:
                rows[AT_STRATEGY, number] = moment
                rows[ORDERED, number] = now()
                orders.append(TYPE_ID, record)


def _router(directory: Path, times: Times, count: int) -> None:
    """Returns orders as fills; reads through a fan-in, as a router of many strategies does."""
    now, rows = time.perf_counter_ns, times.rows
    with tw.open_publisher(directory / "orders_in") as fills:
        orders = tw.open_subscriber(directory / "orders_out", "router", create_timeout=30)
        with bus.FanInReader({"strategy": orders}, max_skew=0, wait=WAIT) as inputs:
            times.words[READY + 1] += 1
            for seen, record in enumerate(inputs.follow(timeout=60), 1):
                moment = now()
                (number,) = NUMBER.unpack(record)
                rows[AT_ROUTER, number] = moment
                rows[FILLED, number] = now()
                fills.append(TYPE_ID, record)
                if seen == count:
                    return


def _process(work: Callable[..., None], *arguments: Any) -> None:
    die_with_parent()
    with quiet():
        work(*arguments)


def _trip(directory: Path, count: int) -> np.ndarray[Any, Any]:
    """The times of `count` prices, sent GAP_NS apart."""
    times = Times(count)
    fork = multiprocessing.get_context("fork")
    processes = [
        fork.Process(target=_process, args=(work, directory, times, count), daemon=True)
        for work in (_strategy, _router)
    ]
    for process in processes:
        process.start()
    with tw.open_publisher(directory / "prices") as prices:
        until(lambda: bool(times.words[READY : READY + 2].all()), "strategy and router")
        now, fed = time.perf_counter_ns, times.rows[FED]
        due = now()
        for number in range(count):
            sleep_nearly_until(due)  # the others need the core
            while now() < due:
                pass
            fed[number] = now()
            prices.append(TYPE_ID, NUMBER.pack(number))
            due += GAP_NS
        for process in processes:
            process.join(60)
            if process.exitcode != 0:
                raise RuntimeError(f"{process.name} ended with {process.exitcode}")
    return times.rows


def run(scale: Scale) -> list[Row]:
    count = scale.pick(20_000, 200)
    with scratch() as directory:
        rows = _trip(directory, count)[:, count // 10 :]
    how = "spinning" if isinstance(WAIT, tw.BusySpin) else "spin-then-park"
    table = []
    for name, (sent, had) in HOPS.items():
        found = percentiles(rows[had] - rows[sent])
        what = f"{name}, {how}, p50"
        table.append(Row("hops", what, found["p50"] / 1e3, "µs", detail={"percentiles": found}))
    return table
