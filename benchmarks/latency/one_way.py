"""One-way latency between two Python processes through a queue, spinning and parked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tapewire as tw
from benchmarks import bare
from benchmarks.harness import (
    PAYLOAD_BYTES,
    Row,
    Scale,
    percentiles,
    pin,
    repeat,
    scratch,
    unpin,
)
from benchmarks.latency.pair import Shared, run_pair
from tapewire.bench.timed_calls import (
    append_ns as mean_append_ns,
)
from tapewire.bench.timed_calls import (
    next_ns as mean_next_ns,
)
from tapewire.bench.timed_calls import (
    open_prefaulted,
    receive_by_follow,
    receive_by_next,
    sender,
)

SPIN_GAP_NS = 10_000
PARK_GAP_NS = 200_000  # well above the 10 µs that SpinThenPark spins


@dataclass(frozen=True)
class OneWay:
    """Percentiles in nanoseconds, from before the sending call until after the receiving call."""

    from_send: dict[str, float]
    from_schedule: dict[str, float]  # from when it was due, so that a delayed sender counts


def _run(path: Path, count: int, gap_ns: int, receive: Callable[[Path, Shared], None]) -> OneWay:
    trips = run_pair(
        count, PAYLOAD_BYTES, gap_ns, lambda: sender(path, count), lambda s: receive(path, s)
    )
    warm = count // 10
    return OneWay(
        percentiles((trips.got - trips.sent)[warm:]), percentiles((trips.got - trips.due)[warm:])
    )


def _poll_once(path: Path, count: int) -> OneWay:
    """One run: `append` on one core, a spin over `next` on the other."""
    return _run(path, count, SPIN_GAP_NS, receive_by_next)


def _follow_once(path: Path, wait: object, count: int, gap_ns: int) -> OneWay:
    return _run(path, count, gap_ns, lambda path, shared: receive_by_follow(path, wait, shared))


def _detail(best: OneWay, runs: list[OneWay]) -> dict[str, object]:
    return {
        "percentiles": best.from_send,
        "percentiles_from_schedule": best.from_schedule,
        "p50_of_each_run": [run.from_send["p50"] for run in runs],
    }


def _cost_of_the_calls(directory: Path, scale: Scale) -> tuple[float, float]:
    """Means of append and next, measured as in their own rows, in this process."""
    n, rounds = scale.pick(15_000, 1_000), scale.rounds
    with open_prefaulted(directory / "calls", n * rounds) as writer:
        pin(0)
        (appended,) = repeat(rounds, lambda: mean_append_ns(writer, n))
        with tw.open_log(directory / "calls") as reader:
            mean_next_ns(reader, n * rounds)  # maps the pages
            reader.seek_start()
            (taken,) = repeat(rounds, lambda: mean_next_ns(reader, n))
    unpin()
    return appended.best, taken.best


def _spinning(directory: Path, scale: Scale) -> list[Row]:
    count = scale.pick(200_000, 1_000)
    runs: list[tuple[OneWay, OneWay, float, float]] = []
    for i in range(scale.pick(5, 1)):
        before = bare.line_ns(scale)
        poll = _poll_once(directory / f"poll{i}", count)
        follow = _follow_once(directory / f"follow{i}", tw.BusySpin(), count, SPIN_GAP_NS)
        runs.append((poll, follow, before, bare.line_ns(scale)))

    append_ns, next_ns = _cost_of_the_calls(directory, scale)
    # The line crosses in one of two states, by where the host has put our cores: each run is judged
    # by its own line, and the least disturbed run is the one reported.
    poll, _, before, after = min(runs, key=lambda run: run[0].from_send["p50"])
    line = (before + after) / 2
    follow = min((run[1] for run in runs), key=lambda run: run.from_send["p50"])
    allowed = 2 * line + 1.5 * (append_ns + next_ns)
    sides = {
        "line_before_ns": before,
        "line_after_ns": after,
        "lines_of_each_run": [run[2:] for run in runs],
        "append_ns": append_ns,
        "next_ns": next_ns,
    }
    return [
        Row(
            "one_way",
            "busy-spin by next(), p50",
            poll.from_send["p50"],
            "ns",
            "2 line + 1.5 (append + next)",
            allowed,
            ("≤", 1.0),
            {**_detail(poll, [run[0] for run in runs]), **sides},
        ),
        Row("one_way", "  bare cache line, of that run", line, "ns"),
        Row("one_way", "  append + next, of this run", append_ns + next_ns, "ns"),
        Row(
            "one_way",
            "busy-spin by follow(), p50",
            follow.from_send["p50"],
            "ns",
            detail=_detail(follow, [run[1] for run in runs]),
        ),
    ]


def _parked(directory: Path, scale: Scale) -> list[Row]:
    count = scale.pick(10_000, 200)
    runs = []
    for i in range(scale.pick(3, 1)):
        before = bare.futex_wake_ns(scale, PARK_GAP_NS // 1000)
        run = _follow_once(directory / f"park{i}", tw.SpinThenPark(), count, PARK_GAP_NS)
        runs.append((run, before, bare.futex_wake_ns(scale, PARK_GAP_NS // 1000)))
    run, before, after = min(runs, key=lambda r: r[0].from_send["p50"])
    wake = (before["p50"] + after["p50"]) / 2
    return [
        Row(
            "one_way",
            "spin-then-park, p50",
            run.from_send["p50"] / 1e3,
            "µs",
            "bare futex wake",
            wake / 1e3,
            ("≤", 2.0),
            {**_detail(run, [r[0] for r in runs]), "wake_percentiles": before},
        )
    ]


def run(scale: Scale) -> list[Row]:
    with scratch() as directory:
        return [*_spinning(directory, scale), *_parked(directory, scale)]
