"""The delay of records, receive time minus exchange time, as a histogram.

A part may have any number of records, so delays are counted in buckets: exact below 256 ns, less
than one percent wide above. Least and greatest are exact.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from tapewire.quality.limits import QualityLimits

__all__ = ["BIN_NS", "ClockMeasure", "bucket_of", "value_of"]

Array = np.ndarray[Any, Any]
BIN_NS = 300 * 10**9  # five minutes, a row of the table over time
_HOUR_BINS = 3600 * 10**9 // BIN_NS
_BITS = 7
_STEPS = 1 << _BITS  # buckets for each power of two


def bucket_of(values: Array) -> Array:
    """The bucket of each value; negative values have negative buckets."""
    fraction, power = np.frexp(np.abs(values).astype(np.float64))
    bucket = np.where(
        np.abs(values) < 2 * _STEPS,
        np.abs(values),
        (power - _BITS) * _STEPS + ((fraction - 0.5) * 2 * _STEPS).astype(np.int64),
    )
    mirrored: Array = np.where(values < 0, -bucket, bucket).astype(np.int64)
    return mirrored


def value_of(bucket: int) -> int:
    """The middle of a bucket.

    Example:
        >>> [value_of(int(b)) for b in bucket_of(np.array([0, 255, 1_000_000, -1_000_000]))]
        [0, 255, 1001472, -1001472]
    """
    size = abs(bucket)
    if size >= 2 * _STEPS:
        power, step = divmod(size + _BITS * _STEPS, _STEPS)
        shift = power - _BITS - 1
        size = ((_STEPS + step) << shift) + (1 << shift >> 1)
    return -size if bucket < 0 else size


class ClockMeasure:
    """Measures the clocks of one stream's day."""

    def __init__(self, limits: QualityLimits) -> None:
        self._limits = limits
        self.records = 0
        self.timed = 0  # with an exchange time
        self.early = 0  # received before their exchange time
        self.late = 0
        self.behind = 0  # with a time before that of an earlier record in the log
        self.worst_behind_ns = 0
        self.least_ns: int | None = None
        self.greatest_ns: int | None = None
        self.first_flaw_ns: dict[str, int] = {}
        self._counts: dict[int, Counter[int]] = {}  # of each five minutes, by bucket
        self._least: dict[int, int] = {}
        self._clock_ns = -(2**63)

    def add(self, received_ns: Array, exchange_ns: Array) -> None:
        """Add records in the order of the log; an exchange time of 0 means none."""
        if not len(received_ns):
            return
        received_ns = received_ns.astype(np.int64)
        self.records += len(received_ns)
        clock = np.maximum.accumulate(np.maximum(received_ns, self._clock_ns))
        behind = clock - received_ns
        self._clock_ns = int(clock[-1])
        self.behind += self._flaw("behind", behind > self._limits.behind_ns, received_ns)
        self.worst_behind_ns = max(self.worst_behind_ns, int(behind.max()))
        exchange_ns = exchange_ns.astype(np.int64)
        timed = exchange_ns > 0
        received_ns, exchange_ns = received_ns[timed], exchange_ns[timed]
        if not len(received_ns):
            return
        skew = received_ns - exchange_ns
        self.timed += len(skew)
        self.early += self._flaw("early", skew < -self._limits.early_ns, received_ns)
        self.late += self._flaw("late", skew > self._limits.late_ns, received_ns)
        least, greatest = int(skew.min()), int(skew.max())
        self.least_ns = least if self.least_ns is None else min(self.least_ns, least)
        self.greatest_ns = greatest if self.greatest_ns is None else max(self.greatest_ns, greatest)
        bins = received_ns // BIN_NS
        pairs = np.column_stack((bins, bucket_of(skew)))
        for (place, bucket), count in zip(
            *np.unique(pairs, axis=0, return_counts=True), strict=True
        ):
            self._counts.setdefault(int(place), Counter())[int(bucket)] += int(count)
        for place in np.unique(bins).tolist():
            low = int(skew[bins == place].min())
            self._least[place] = min(low, self._least.get(place, low))

    def _flaw(self, name: str, where: Array, times_ns: Array) -> int:
        count = int(where.sum())
        if count:
            self.first_flaw_ns.setdefault(name, int(times_ns[where.argmax()]))
        return count

    def percentile(self, percent: float, place: int | None = None) -> int | None:
        """A percentile of the delays, accurate to one percent; None without records."""
        if self.least_ns is None or self.greatest_ns is None:
            return None
        counts: Counter[int] = Counter()
        if place is not None:
            counts = self._counts.get(place, counts)
        else:
            for each in self._counts.values():
                counts.update(each)
        wanted = percent / 100 * counts.total()
        reached = 0
        for bucket in sorted(counts):
            reached += counts[bucket]
            if reached >= wanted:
                return min(max(value_of(bucket), self.least_ns), self.greatest_ns)
        return None

    @property
    def drift_ns(self) -> int:
        """The largest difference between the shortest delays of two hours: the drift of a clock.

        The shortest delay of an hour hardly depends on load. With one hour, it is 0.
        """
        hours: dict[int, int] = {}
        for place, low in self._least.items():
            hour = place // _HOUR_BINS
            hours[hour] = min(low, hours.get(hour, low))
        return max(hours.values()) - min(hours.values()) if hours else 0

    def by_time(self) -> list[dict[str, Any]]:
        """One row for each five minutes that have records."""
        return [
            {
                "timestamp_ns": place * BIN_NS,
                "records": self._counts[place].total(),
                "least_ns": self._least[place],
                "p50_ns": self.percentile(50, place),
                "p99_ns": self.percentile(99, place),
            }
            for place in sorted(self._counts)
        ]
