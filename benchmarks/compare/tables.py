"""The results of the alternatives as lines of cells, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterable
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


def with_latency(alternatives: Iterable[Result]) -> list[Result]:
    """Those with a latency, the lowest first."""
    found = [alternative for alternative in alternatives if "one_way" in alternative]
    return sorted(found, key=lambda alternative: alternative["one_way"]["percentiles"]["p50"])


def with_throughput(alternatives: Iterable[Result]) -> list[Result]:
    """Those with a throughput, the highest first."""
    found = [alternative for alternative in alternatives if "throughput" in alternative]
    return sorted(found, key=lambda alternative: -alternative["throughput"]["records_per_s"])


def latency_lines(alternatives: Iterable[Result]) -> Lines:
    lines: Lines = [("one way", "receiver", *SHOWN, "n", "one every")]
    for alternative in with_latency(alternatives):
        found = alternative["one_way"]["percentiles"]
        lines.append(
            (
                alternative["title"],
                alternative["waits"],
                *(duration(found[name]) for name in SHOWN),
                f"{found['count']:,}",
                duration(alternative["one_way"]["gap_ns"]),
            )
        )
    return lines


def throughput_lines(alternatives: Iterable[Result]) -> Lines:
    lines: Lines = [("throughput", "records", "n", "how")]
    for alternative in with_throughput(alternatives):
        found = alternative["throughput"]
        lines.append(
            (
                alternative["title"],
                rate(found["records_per_s"]),
                f"{found['messages']:,}",
                found["how"],
            )
        )
    return lines


def absent(alternatives: Iterable[Result]) -> list[tuple[str, str]]:
    """Title and reason of those that were not measured."""
    found = (
        (alternative["title"], alternative["missing"] or alternative.get("failed"))
        for alternative in alternatives
    )
    return [(title, reason) for title, reason in found if reason]


def slower(results: dict[str, Any]) -> Lines:
    """The latencies in which an alternative was better, one line each; only a head if none was.

    A spinning reader is compared with all, a sleeping one with those that sleep.
    """
    ours, others = _sides(results)
    lines: Lines = [("Tapewire", "better", *SHOWN)]
    for name, alternatives in (
        ("tapewire", others),
        (
            "tapewire-parked",
            [alternative for alternative in others if alternative["waits"] == "sleeps"],
        ),
    ):
        for mine in with_latency(ours.get(name, ())):
            for theirs in with_latency(alternatives):
                cells = [_behind(mine, theirs, percentile) for percentile in SHOWN]
                if any(cells):
                    lines.append((mine["title"], theirs["title"], *cells))
    return lines


def _behind(mine: Result, theirs: Result, percentile: str) -> str:
    """The alternative's figure and how many times it is better; nothing if it is not."""
    ours = mine["one_way"]["percentiles"][percentile]
    better = theirs["one_way"]["percentiles"][percentile]
    if better >= ours:
        return ""
    return f"{duration(better)} ({ours / better:.3g} ×)"


def fewer(results: dict[str, Any]) -> Lines:
    """The throughputs in which an alternative was better; only a head if none was.

    One record per call is compared with the same, and batches with batches.
    """
    ours, others = _sides(results)
    lines: Lines = [("Tapewire", "better", "throughput")]
    for name, batched in (("tapewire", False), ("tapewire-batch", True)):
        for mine in with_throughput(ours.get(name, ())):
            own = mine["throughput"]["records_per_s"]
            for theirs in with_throughput(others):
                better = theirs["throughput"]["records_per_s"]
                if theirs["batched"] == batched and better > own:
                    cell = f"{rate(better)} ({better / own:.3g} ×)"
                    lines.append((mine["title"], theirs["title"], cell))
    return lines


def _sides(results: dict[str, Any]) -> tuple[dict[str, list[Result]], list[Result]]:
    """Tapewire's results by name, and the alternatives'."""
    ours = {
        alternative["name"]: [alternative]
        for alternative in results["alternatives"]
        if alternative["name"] in OURS
    }
    return ours, [
        alternative for alternative in results["alternatives"] if alternative["name"] not in OURS
    ]


def missed(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows that missed their bar."""
    return [row for row in results["rows"] if row["verdict"] == "miss"]
