"""What every benchmark shares: rows, bars, repetition, timing, pinning, a scratch folder."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import shutil
import signal
import statistics
import tempfile
import time
import timeit
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram

PAYLOAD_BYTES = 64
RECORD_BYTES = 128  # the 64-byte header and the payload
PAYLOAD = bytes(range(PAYLOAD_BYTES))
TYPE_ID = 0x1001
PERCENTILES = (50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)


@dataclass(frozen=True)
class Scale:
    """How much to do: all of it, or just enough to show that it runs."""

    smoke: bool = False

    def pick(self, full: Any, smoke: Any) -> Any:
        return smoke if self.smoke else full

    @property
    def rounds(self) -> int:
        """Many short rounds rather than a few long ones: on a busy machine some are undisturbed."""
        return self.pick(50, 2)


@dataclass
class Row:
    """One line of the table: a number, what it is held against, and the bar on their ratio.

    Without `against` the bar is on the number itself; without `bar` the row is there to be read.
    """

    family: str
    what: str
    value: float
    unit: str
    against: str | None = None
    against_value: float | None = None
    bar: tuple[str, float] | None = None
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        return None if not self.against_value else self.value / self.against_value

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        sign, limit = self.bar
        judged = self.value if self.against is None else self.ratio
        if judged is None:
            return "miss"
        return "pass" if (judged <= limit if sign == "≤" else judged >= limit) else "miss"


@dataclass(frozen=True)
class Series:
    """One measurement several times: the best is the least disturbed, the median the usual."""

    values: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.values)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def as_dict(self) -> dict[str, Any]:
        return {"best": self.best, "median": self.median, "all": list(self.values)}


def repeat(times: int, *measures: Callable[[], float]) -> list[Series]:
    """Each measure once per round, so that both sides of a ratio see the same disturbances."""
    rounds = [[measure() for measure in measures] for _ in range(times)]
    return [Series(tuple(column)) for column in zip(*rounds, strict=True)]


def against(
    family: str,
    what: str,
    unit: str,
    ours: Series,
    name: str,
    theirs: Series,
    bar: tuple[str, float],
    **detail: Any,
) -> Row:
    """A row from two series of the same rounds: the ratio of the bests, and of the medians."""
    return Row(
        family,
        what,
        ours.best,
        unit,
        name,
        theirs.best,
        bar,
        {
            "series": ours.as_dict(),
            "against_series": theirs.as_dict(),
            "ratio_of_medians": ours.median / theirs.median,
            **detail,
        },
    )


def loop_ns(statement: str, n: int, **names: Any) -> float:
    """Mean nanoseconds of a statement in a plain Python loop, the loop included."""
    setup = "; ".join(f"{name} = _{name}" for name in names) or "pass"
    timer = timeit.Timer(statement, setup, globals={f"_{k}": v for k, v in names.items()})
    return timer.timeit(n) * 1e9 / n


def timer_cost(n: int = 100_000) -> dict[str, float]:
    """What two readings of the clock around nothing cost: part of every single-call timing."""
    now = time.perf_counter_ns
    took = [0] * n
    for i in range(n):
        start = now()
        took[i] = now() - start
    return percentiles(took)


def percentiles(values_ns: Iterable[int]) -> dict[str, float]:
    """HdrHistogram's percentiles (three significant digits), with mean, max and count."""
    array = np.maximum(np.asarray(values_ns, np.int64), 1)
    histogram = HdrHistogram(1, 60_000_000_000, 3)
    for value, count in zip(*np.unique(array, return_counts=True), strict=True):
        histogram.record_value(int(value), int(count))
    result: dict[str, float] = {
        f"p{p:g}": histogram.get_value_at_percentile(p) for p in PERCENTILES
    }
    result |= {"mean": float(array.mean()), "max": int(array.max()), "count": int(array.size)}
    return result


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
    os.sched_setaffinity(0, ALL_CPUS)


def die_with_parent() -> None:
    """For a new process: whatever becomes of the one that started it, this one ends as well."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one: a disk would be the thing measured."""
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
