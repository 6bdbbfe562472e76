"""The measurements of `tapewire bench`: each call with a baseline of the same host and run."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tapewire as tw
from tapewire.bench.pair import Shared, Trips, begin_receiving, end_receiving, run_pair
from tapewire.bench.timed_calls import (
    BATCH,
    append_call_ns,
    append_ns,
    batch_round,
    copy_out,
    drain,
    each_append_ns,
    next_call_ns,
    next_ns,
    open_prefaulted,
    receive_by_follow,
    receive_by_next,
    rolls,
    sender,
)
from tapewire.bench.timing import (
    ALL_CPUS,
    PAYLOAD,
    PAYLOAD_BYTES,
    RECORD_BYTES,
    TYPE_ID,
    pin,
    quiet,
    rows_of,
    unpin,
)

__all__ = ["BYTES_NEEDED", "MEASURES", "Measured", "percentiles"]

PERCENTILES = (50.0, 99.0, 99.9, 99.99)
SPIN_GAP_NS = 10_000
PARK_GAP_NS = 200_000  # much longer than the 10 µs for which SpinThenPark spins
BYTES_NEEDED = 256 << 20  # in the directory, for the largest measurement


@dataclass(frozen=True)
class Measured:
    """One measurement; `values` are percentiles, or the best and the median of rounds."""

    key: str
    what: str
    unit: str
    values: dict[str, float]
    samples: int
    yardstick: str | None = None  # the baseline
    yardstick_value: float | None = None
    note: str | None = None
    more_is_better: bool = field(default=False, kw_only=True)

    @property
    def usual(self) -> float:
        """The value to compare with the baseline and with other runs."""
        return self.values.get("p50", self.values.get("best", 0.0))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "what": self.what,
            "unit": self.unit,
            "more_is_better": self.more_is_better,
            **self.values,
            "samples": self.samples,
            "yardstick": self.yardstick,
            "yardstick_value": self.yardstick_value,
            "note": self.note,
        }


def percentiles(values_ns: Any, per: float = 1.0) -> dict[str, float]:
    """p50 to p99.99 and the maximum, each a measured value, in units of `per` ns.

    A percentile is left out if no value is beyond it.

    Example:
        >>> percentiles(range(1, 101))
        {'p50': 50.0, 'p99': 99.0, 'max': 100.0}
    """
    array = np.asarray(values_ns, np.int64)
    # In hundredths of a percent, since 99.99 is not a binary fraction.
    wanted = [p for p in PERCENTILES if len(array) * round(10_000 - 100 * p) >= 10_000]
    found = np.percentile(array, wanted, method="inverted_cdf")
    result = {f"p{p:g}": _round(value / per) for p, value in zip(wanted, found, strict=True)}
    return {**result, "max": _round(int(array.max()) / per)}


def _round(value: float) -> float:
    """Round to four digits, more than a measurement has."""
    return float(f"{value:.4g}")


def _best(values: list[float], highest: bool = False) -> dict[str, float]:
    """The best of many short rounds, which is the least disturbed one, and the median."""
    best = max(values) if highest else min(values)
    return {"best": _round(best), "p50": _round(float(np.median(values)))}


def measure_append(directory: Path, scale: float) -> list[Measured]:
    """`append`, each call timed, and its mean compared with an empty native call."""
    samples, rounds, n = _many(500_000, scale), _many(20, scale), 5_000
    with open_prefaulted(directory / "append", samples + samples // 10) as writer, quiet():
        pin(0)
        each_append_ns(writer.append, samples // 10)
        each = each_append_ns(writer.append, samples)
    unpin()
    with open_prefaulted(directory / "mean", n * (rounds + 1)) as writer:
        pin(0)
        append_ns(writer, n)
        pairs = [(append_ns(writer, n), append_call_ns(n)) for _ in range(rounds)]
    unpin()
    timer = _timer_ns()
    return [
        Measured(
            "append_loop",
            "append, 64 B, in a loop",
            "ns",
            _best([ours for ours, _ in pairs]),
            rounds * n,
            "an empty native call",
            _best([call for _, call in pairs])["best"],
        ),
        Measured(
            "append",
            "append, each call timed",
            "ns",
            percentiles(each),
            samples,
            "the timer itself",
            timer,
        ),
    ]


def _timer_ns(n: int = 20_000) -> float:
    """Two successive readings of the clock, which are part of every single timing."""
    now = time.perf_counter_ns
    took = [0] * n
    for i in range(n):
        start = now()
        took[i] = now() - start
    return float(np.median(took))


def measure_batch(directory: Path, scale: float) -> list[Measured]:
    """`append_batch` of numpy rows, compared with a memcpy of as many bytes to the same pages."""
    rows = rows_of(BATCH)
    ours: list[float] = []
    copies: list[float] = []
    for i in range(_many(4, scale)):
        appended, copied = batch_round(directory / f"batch{i}", rows, 4, True)
        ours += (ns / BATCH for ns in appended)
        copies += (ns / BATCH for ns in copied)
    return [
        Measured(
            "append_batch",
            "append_batch, a record",
            "ns",
            _best(ours),
            len(ours) * BATCH,
            "memcpy of 128 B",
            _best(copies)["best"],
        )
    ]


def measure_reading(directory: Path, scale: float) -> list[Measured]:
    """`next` and `read_batch` of one log, compared with an empty call and a memcpy."""
    records, rounds, n = 4 * BATCH, _many(20, scale), 5_000
    path = directory / "read"
    with open_prefaulted(path, records) as writer:
        writer.append_batch(TYPE_ID, rows_of(records))
    pin(0)
    with tw.open_log(path) as reader, quiet():
        next_ns(reader, records)  # maps the pages
        reader.seek_start()
        pairs = [(next_ns(reader, n), next_call_ns(n)) for _ in range(min(rounds, records // n))]
        log = np.memmap(next(path.glob("*.q")), np.uint8, "r")
        into = np.zeros(BATCH * RECORD_BYTES, np.uint8)
        copy_out(log, into)
        rates: list[float] = []
        copies: list[float] = []
        for _ in range(_many(5, scale)):
            reader.seek_start()
            rates += drain(reader)
            copies += copy_out(log, into)
    unpin()
    return [
        Measured(
            "next",
            "next, in a loop",
            "ns",
            _best([ours for ours, _ in pairs]),
            len(pairs) * n,
            "an empty native call",
            _best([call for _, call in pairs])["best"],
        ),
        Measured(
            "read_batch",
            "read_batch to columns",
            "GB/s",
            _best(rates, highest=True),
            len(rates) * BATCH,
            "memcpy",
            _best(copies, highest=True)["best"],
            more_is_better=True,
        ),
    ]


def measure_roll(directory: Path, scale: float) -> list[Measured]:
    """The append that rolls to the next segment, which the pre-allocator has ready."""
    took, _, late = rolls(directory / "roll", _many(100, scale))
    if not took:
        return [
            Measured("roll", "append that rolls", "µs", {}, 0, note="no segment was ready in time")
        ]
    return [
        Measured(
            "roll",
            "append that rolls",
            "µs",
            percentiles(took, 1e3),
            len(took),
            note=f"{late} of {len(took) + late} found no segment ready" if late else None,
        )
    ]


def measure_spinning(directory: Path, scale: float) -> list[Measured]:
    """One-way trips between two processes that both spin."""
    if len(ALL_CPUS) < 2:
        return [
            Measured(
                "one_way_spinning", "one way, reader spins", "ns", {}, 0, note="needs two CPUs"
            )
        ]
    count = _many(60_000, scale)

    def one_run(path: Path) -> np.ndarray[Any, Any]:
        return _pair(
            count, SPIN_GAP_NS, lambda: sender(path, count), lambda s: receive_by_next(path, s)
        )

    trips = _least_disturbed(one_run, directory / "spin", scale)

    def one_bare_run(_: Path) -> np.ndarray[Any, Any]:
        return _pair(count // 3, SPIN_GAP_NS, *_word(_receive_by_spinning, wake=False))

    bare = _least_disturbed(one_bare_run, directory, scale)
    return [
        Measured(
            "one_way_spinning",
            "one way, reader spins",
            "ns",
            percentiles(trips),
            len(trips),
            "a bare word of memory",
            _round(float(np.median(bare))),
        )
    ]


def measure_parked(directory: Path, scale: float) -> list[Measured]:
    """One-way trips to a process that sleeps."""
    count = _many(3_000, scale)

    def one_run(path: Path) -> np.ndarray[Any, Any]:
        def receive(shared: Shared) -> None:
            receive_by_follow(path, tw.SpinThenPark(), shared)

        return _pair(count, PARK_GAP_NS, lambda: sender(path, count), receive)

    trips = _least_disturbed(one_run, directory / "park", scale)

    def one_bare_run(_: Path) -> np.ndarray[Any, Any]:
        return _pair(count // 3, PARK_GAP_NS, *_word(_receive_by_futex, wake=True))

    bare = _least_disturbed(one_bare_run, directory, scale)
    return [
        Measured(
            "one_way_sleeping",
            "one way, reader sleeps",
            "µs",
            percentiles(trips, 1e3),
            len(trips),
            "a bare futex",
            _round(float(np.median(bare)) / 1e3),
        )
    ]


def measure_flush(directory: Path, scale: float) -> list[Measured]:
    """`flush_sync` after one append, compared with fdatasync of a file in the same directory."""
    ours: list[int] = []
    bare: list[int] = []
    now = time.perf_counter_ns
    plain = os.open(directory / "plain", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with tw.open_publisher(directory / "flush", segment_bytes=1 << 20) as writer:
            deadline = time.monotonic() + 0.6 * scale
            while len(ours) < 3 or (time.monotonic() < deadline and len(ours) < 1_000):
                writer.append(TYPE_ID, PAYLOAD)
                start = now()
                writer.flush_sync()
                ours.append(now() - start)
                os.pwrite(plain, PAYLOAD, len(bare) * RECORD_BYTES)
                start = now()
                os.fdatasync(plain)
                bare.append(now() - start)
    finally:
        os.close(plain)
    return [
        Measured(
            "flush_sync",
            "flush_sync",
            "ms",
            percentiles(ours, 1e6),
            len(ours),
            "fdatasync of a file",
            _round(float(np.median(bare)) / 1e6),
        )
    ]


Measure = Callable[[Path, float], list[Measured]]
MEASURES: dict[str, Measure] = {
    "append": measure_append,
    "append_batch": measure_batch,
    "reading": measure_reading,
    "roll": measure_roll,
    "spinning": measure_spinning,
    "sleeping": measure_parked,
    "flush": measure_flush,
}


def _many(count: int, scale: float) -> int:
    """`count` at full length, fewer in a shorter run, not more in a longer one."""
    return max(min(count, 4), int(count * min(scale, 1.0)))


def _least_disturbed(
    one_run: Callable[[Path], np.ndarray[Any, Any]], path: Path, scale: float
) -> np.ndarray[Any, Any]:
    """The run with the lowest median, of three at full length: other processes may disturb some."""
    runs = [one_run(path.with_name(f"{path.name}{i}")) for i in range(max(1, round(3 * scale)))]
    return min(runs, key=lambda trips: float(np.median(trips)))


def _pair(
    count: int,
    gap_ns: int,
    open_sender: Callable[[], contextlib.AbstractContextManager[Callable[[bytes], object]]],
    receive: Callable[[Shared], None],
) -> np.ndarray[Any, Any]:
    """Trips from before the sending call to after the receiving one, without the first tenth."""
    trips: Trips = run_pair(count, PAYLOAD_BYTES, gap_ns, open_sender, receive)
    took: np.ndarray[Any, Any] = (trips.got - trips.sent)[count // 10 :]
    return took


# A word of shared memory, without a queue: the latency of the host itself.

_FUTEX_WAIT, _FUTEX_WAKE = 0, 1
_FUTEX_CALL = {"x86_64": 202, "aarch64": 98}


class _Futex:
    def __init__(self) -> None:
        self.words = memoryview(mmap.mmap(-1, 4096)).cast("I")
        self._address = ctypes.addressof(ctypes.c_uint32.from_buffer(self.words))
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._number = _FUTEX_CALL[platform.machine()]

    def wait(self, while_it_is: int) -> None:
        self._call(
            ctypes.c_long(self._number),
            ctypes.c_void_p(self._address),
            ctypes.c_int(_FUTEX_WAIT),
            ctypes.c_uint32(while_it_is),
            None,
        )

    def wake(self) -> None:
        self._call(
            ctypes.c_long(self._number),
            ctypes.c_void_p(self._address),
            ctypes.c_int(_FUTEX_WAKE),
            ctypes.c_int(1),
        )


def _word(
    receive: Callable[[_Futex, Shared], None], wake: bool
) -> tuple[
    Callable[[], contextlib.AbstractContextManager[Callable[[bytes], object]]],
    Callable[[Shared], None],
]:
    """A sender that increments a word for each message, and its receiver."""
    futex = _Futex()  # before the fork: both processes have it

    @contextlib.contextmanager
    def open_sender() -> Iterator[Callable[[bytes], object]]:
        words = futex.words

        def send(_: bytes) -> None:
            words[0] += 1
            if wake:
                futex.wake()

        yield send

    return open_sender, lambda shared: receive(futex, shared)


def _receive_by_spinning(futex: _Futex, shared: Shared) -> None:
    now, words, got = time.perf_counter_ns, futex.words, shared.got
    begin_receiving(shared)
    for i in range(shared.count):
        while words[0] <= i:
            pass
        got[i] = now()
    end_receiving(shared)


def _receive_by_futex(futex: _Futex, shared: Shared) -> None:
    now, words, got = time.perf_counter_ns, futex.words, shared.got
    begin_receiving(shared)
    for i in range(shared.count):
        while (seen := words[0]) <= i:
            futex.wait(seen)
        got[i] = now()
    end_receiving(shared)
