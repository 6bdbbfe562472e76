"""What the rivals' results say, as lines of cells: for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.compare import OURS
from benchmarks.report import duration, number

SHOWN = ("p50", "p90", "p99", "p99.9", "p99.99", "max")

Result = dict[str, Any]
Lines = list[tuple[str, ...]]


def rate(records_per_s: float) -> str:
    for size, unit in ((1e6, "M/s"), (1e3, "k/s")):
        if records_per_s >= size:
            return f"{number(records_per_s / size)} {unit}"
    return f"{number(records_per_s)} /s"


def with_latency(rivals: Iterable[Result]) -> list[Result]:
    """Those that have it, the quickest first."""
    found = [rival for rival in rivals if "one_way" in rival]
    return sorted(found, key=lambda rival: rival["one_way"]["percentiles"]["p50"])


def with_throughput(rivals: Iterable[Result]) -> list[Result]:
    """Those that have it, the fastest first."""
    found = [rival for rival in rivals if "throughput" in rival]
    return sorted(found, key=lambda rival: -rival["throughput"]["records_per_s"])


def latency_lines(rivals: Iterable[Result]) -> Lines:
    lines: Lines = [("one way", "receiver", *SHOWN, "n", "one every")]
    for rival in with_latency(rivals):
        found = rival["one_way"]["percentiles"]
        lines.append(
            (
                rival["title"],
                rival["waits"],
                *(duration(found[name]) for name in SHOWN),
                f"{found['count']:,}",
                duration(rival["one_way"]["gap_ns"]),
            )
        )
    return lines


def throughput_lines(rivals: Iterable[Result]) -> Lines:
    lines: Lines = [("throughput", "records", "n", "how")]
    for rival in with_throughput(rivals):
        found = rival["throughput"]
        lines.append(
            (
                rival["title"],
                rate(found["records_per_s"]),
                f"{found['messages']:,}",
                found["how"],
            )
        )
    return lines


def absent(rivals: Iterable[Result]) -> list[tuple[str, str]]:
    """Title and reason of those that were not measured."""
    found = ((rival["title"], rival["missing"] or rival.get("failed")) for rival in rivals)
    return [(title, reason) for title, reason in found if reason]


def losses(results: dict[str, Any]) -> Lines:
    """Every figure in which a rival was better than Tapewire; empty when there is none.

    A reader that spins is held against everybody, one that sleeps against those that sleep; a
    record a call against the same, batches against batches.
    """
    rivals = {rival["name"]: rival for rival in results["rivals"]}
    others = [rival for rival in results["rivals"] if rival["name"] not in OURS]
    sleepers = [rival for rival in others if rival["waits"] == "sleeps"]
    lines = [
        *_slower(rivals.get("tapewire"), others),
        *_slower(rivals.get("tapewire-parked"), sleepers),
    ]
    for name, batched in (("tapewire", False), ("tapewire-batch", True)):
        same = [rival for rival in others if rival["batched"] == batched]
        lines += _less(rivals.get(name), same)
    return lines


def _slower(ours: Result | None, others: list[Result]) -> Iterator[tuple[str, ...]]:
    if ours is None or "one_way" not in ours:
        return
    mine = ours["one_way"]["percentiles"]
    for rival in with_latency(others):
        theirs = rival["one_way"]["percentiles"]
        for name in SHOWN:
            if theirs[name] < mine[name]:
                yield (
                    f"one way, {name}",
                    f"{ours['title']}: {duration(mine[name])}",
                    f"{rival['title']}: {duration(theirs[name])}",
                    f"{mine[name] / theirs[name]:.3g} ×",
                )


def _less(ours: Result | None, others: list[Result]) -> Iterator[tuple[str, ...]]:
    if ours is None or "throughput" not in ours:
        return
    mine = ours["throughput"]["records_per_s"]
    for rival in with_throughput(others):
        theirs = rival["throughput"]["records_per_s"]
        if theirs > mine:
            yield (
                "throughput",
                f"{ours['title']}: {rate(mine)}",
                f"{rival['title']}: {rate(theirs)}",
                f"{theirs / mine:.3g} ×",
            )


def missed(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows whose bar was not held."""
    return [row for row in results["rows"] if row["verdict"] == "miss"]
