"""The output of a run: tables to read, and results.json to compare."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness import Row

SHOWN = ("p50", "p99", "p99.9", "p99.99", "max")


def number(value: float | None) -> str:
    """Three significant digits, without exponents."""
    if value is None:
        return ""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def duration(ns: float) -> str:
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= size:
            return f"{number(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def bar(row: Row) -> str:
    if row.bar is None:
        return ""
    sign, limit = row.bar
    return f"{sign} {limit:g} {'×' if row.against else row.unit}"


def aligned(lines: list[tuple[str, ...]], right: Iterable[int] = ()) -> str:
    """Columns aligned by spaces; those whose index is in `right` are right-aligned."""
    ending = set(right)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if i in ending else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def table(rows: list[Row]) -> str:
    """Every row with both numbers, the ratio, the bar and the verdict."""
    lines = [("", "measured", "", "against", "", "ratio", "bar", "")]
    family = None
    for row in rows:
        if row.family != family:
            family = row.family
            lines.append((family.upper(), "", "", "", "", "", "", ""))
        lines.append(
            (
                "  " + row.what,
                number(row.value),
                row.unit,
                row.against or "",
                number(row.against_value),
                "" if row.ratio is None else f"{row.ratio:.3g}",
                bar(row),
                {"pass": "pass", "miss": "MISS", "": ""}[row.verdict],
            )
        )
    return aligned(lines, right={1, 4, 5})


def percentile_table(rows: list[Row]) -> str:
    """The rows that have percentiles."""
    lines = [("single calls and trips", *SHOWN, "samples")]
    for row in rows:
        for key, suffix in (
            ("percentiles", ""),
            ("percentiles_from_schedule", ", from when it was due"),
        ):
            if (found := row.detail.get(key)) is not None:
                name = row.what.strip().removesuffix(", p50").removesuffix(", p99")
                cells = (duration(found[p]) for p in SHOWN)
                lines.append((f"{row.family}: {name}{suffix}", *cells, f"{found['count']:,}"))
    return aligned(lines, right=range(1, len(SHOWN) + 2))


def header(facts: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"{facts['cpu']}{' (virtual)' if facts['virtual'] else ''}, {facts['cpus']} CPUs, "
        f"governor {facts['governor']}, Linux {facts['kernel']}, "
        f"load {facts['load_at_start']:.2f}\n"
        f"Python {facts['python']}, {versions}, checksum {facts['checksum']}\n"
        f"commit {facts['commit'][:12]}{facts['commit'][40:]}, payload {facts['payload_bytes']} B, "
        f"queues on {facts['filesystem']}"
    )


def summary(rows: list[Row]) -> str:
    judged = [row for row in rows if row.verdict]
    missed = [row for row in judged if row.verdict == "miss"]
    text = f"{len(judged) - len(missed)} of {len(judged)} bars met"
    return text + "".join(f"\n  missed: {row.family}: {row.what.strip()}" for row in missed)


def document(
    facts: dict[str, Any], rows: list[Row], alternatives: list[dict[str, Any]]
) -> dict[str, Any]:
    """The content of results.json."""
    return {
        **facts,
        "rows": [asdict(row) | {"ratio": row.ratio, "verdict": row.verdict} for row in rows],
        "alternatives": alternatives,
    }


def save(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
