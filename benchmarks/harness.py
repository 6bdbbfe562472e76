"""Shared by all benchmarks: rows, bars, repetition, timing, pinning, a scratch directory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram

from tapewire.bench.timing import (
    ALL_CPUS,
    PAYLOAD,
    PAYLOAD_BYTES,
    RECORD_BYTES,
    TYPE_ID,
    die_with_parent,
    loop_ns,
    pin,
    quiet,
    rows_of,
    scratch,
    unpin,
    until,
)

__all__ = [
    "ALL_CPUS",
    "PAYLOAD",
    "PAYLOAD_BYTES",
    "RECORD_BYTES",
    "TYPE_ID",
    "Row",
    "Scale",
    "Series",
    "against",
    "die_with_parent",
    "loop_ns",
    "percentiles",
    "pin",
    "quiet",
    "repeat",
    "rows_of",
    "scratch",
    "timer_cost",
    "unpin",
    "until",
]

PERCENTILES = (50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)


@dataclass(frozen=True)
class Scale:
    """How much to measure: the full size, or just enough to show that it runs."""

    smoke: bool = False

    def pick(self, full: Any, smoke: Any) -> Any:
        return smoke if self.smoke else full

    @property
    def rounds(self) -> int:
        """Many short rounds rather than a few long ones: on a busy machine some are undisturbed."""
        return self.pick(50, 2)


@dataclass
class Row:
    """One line of the table: a number, what it is compared with, and the bar on their ratio.

    Without `against`, the bar is on the number itself; without `bar`, the row is informative.
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
    """One measurement repeated: the best is the least disturbed, the median the usual one."""

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
    """A row from two series of the same rounds, with the ratios of the bests and of the medians."""
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


def timer_cost(n: int = 100_000) -> dict[str, float]:
    """The cost of two clock readings around nothing: part of every timing of a single call."""
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
