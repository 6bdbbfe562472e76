"""The limits of the machine, measured by a small C++ program that is compiled on first use."""

from __future__ import annotations

import statistics
import subprocess

from benchmarks import harness
from benchmarks.compiled import compiled


def _run(*args: object) -> list[float]:
    harness.unpin()
    command = [str(compiled("pingpong.cpp", "-O2")), *map(str, args)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [float(line) for line in out.split()]


def _two_cpus() -> tuple[int, int]:
    cpus = harness.ALL_CPUS
    return cpus[0], cpus[1 % len(cpus)]


def line_ns(scale: harness.Scale) -> float:
    """One way of a cache line between the two cores: the median of batches of 1,000 round trips."""
    if len(harness.ALL_CPUS) < 2:
        raise RuntimeError("needs two cores")
    return statistics.median(_run("line", *_two_cpus(), scale.pick(300, 20)))


def futex_wake_ns(scale: harness.Scale, gap_us: int) -> dict[str, float]:
    """From before FUTEX_WAKE to after FUTEX_WAIT in a sleeping process; one wake per `gap_us`."""
    values = _run("futex", *_two_cpus(), scale.pick(5_000, 100), gap_us)
    return harness.percentiles([int(value) for value in values])


def clock_ns(scale: harness.Scale) -> float:
    return _run("clock", scale.pick(5_000_000, 100_000))[0]


def memcpy_bytes_per_s(scale: harness.Scale) -> float:
    """The rate of a copy far larger than the caches, the best of several."""
    return max(_run("memcpy", scale.pick(256 << 20, 16 << 20), scale.pick(8, 2)))
