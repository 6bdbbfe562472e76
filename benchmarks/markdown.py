"""Results as Markdown: RESULTS.md, the figures of README.md, and the page of the documentation.

Everything here depends only on the content of results.json.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.compare import tables

# Rows that repeat their neighbours.
LEFT_OUT = ("1 segment", "10 segments", "100 segments, in the active")

Results = dict[str, Any]


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(lines: Iterable[tuple[str, ...]], right: Iterable[int] = ()) -> str:
    """The first line is the head; columns whose index is in `right` are right-aligned."""
    head, *rest = lines
    rule = ["--:" if i in set(right) else "---" for i in range(len(head))]
    rows = ("| " + " | ".join(line) + " |" for line in rest)
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "|".join(rule) + "|", *rows])


def where(results: Results) -> str:
    """The machine in one line."""
    return (
        f"{results['cpu']}{' (virtual)' if results['virtual'] else ''}, {results['cpus']} CPUs, "
        f"Linux {results['kernel'].split('-')[0]}, Python {results['python']}, payload "
        f"{results['payload_bytes']} B, queues on {results['filesystem']}, commit "
        f"{results['commit'][:12]}"
    )


def busy(results: Results) -> str:
    """A warning if the machine was busy: a spinning row had no two cores to itself then."""
    load, cpus = results["load_at_start"], results["cpus"]
    if load < cpus / 2:
        return ""
    return (
        f"**The machine was busy**, with a load of {load:.1f} on {cpus} CPUs before the run began. "
        "These figures show that everything runs; they are no measure of speed.\n\n"
    )


def bars(results: Results) -> str:
    """Every row with a bar, and what it was compared with."""
    lines = [("what", "measured", "against, in the same run", "ratio", "bar")]
    for row in results["rows"]:
        if row["bar"] is None or row["what"].lstrip().startswith(LEFT_OUT):
            continue
        against = ratio = ""
        if row["against"]:
            against = f"{row['against']}: {number(row['against_value'])} {row['unit']}"
            ratio = f"{number(row['ratio'])} ×"
        verdict = " **missed**" if row["verdict"] == "miss" else ""
        measured = f"{number(row['value'])} {row['unit']}"
        lines.append((_what(row), measured, against, ratio, _bar(row) + verdict))
    return table(lines)


def _what(row: dict[str, Any]) -> str:
    return f"{row['family'].replace('_', ' ')}: {row['what'].strip()}"


def _bar(row: dict[str, Any]) -> str:
    sign, limit = row["bar"]
    return f"{sign} {number(limit)} {'×' if row['against'] else row['unit']}"


def machine(results: Results) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return table(
        [
            ("", ""),
            ("processor", f"{results['cpu']}{', virtual' if results['virtual'] else ''}"),
            ("architecture", results["machine"]),
            ("CPUs", str(results["cpus"])),
            ("kernel", results["kernel"]),
            ("governor", results["governor"]),
            ("clock source", results["clocksource"]),
            ("load at the start", f"{results['load_at_start']:.2f}"),
            ("files on", results["filesystem"]),
            ("Python", results["python"]),
            ("versions", versions),
            ("checksum", results["checksum"]),
            ("commit", f"`{results['commit'][:12]}{results['commit'][40:]}`"),
            ("payload", f"{results['payload_bytes']} B"),
        ]
    )


def latency(results: Results) -> str:
    return table(tables.latency_lines(results["alternatives"]), right=range(2, 10))


def throughput(results: Results) -> str:
    return table(tables.throughput_lines(results["alternatives"]), right=(1, 2))


def kinds(results: Results) -> str:
    """What each alternative is: persisted or not, with a broker or not, settings, version."""
    lines = [("", "what it is, and its settings", "version")]
    lines += [
        (alternative["title"], alternative["what"], alternative.get("version", ""))
        for alternative in results["alternatives"]
    ]
    return table(lines)


def absent(results: Results) -> str:
    found = tables.absent(results["alternatives"])
    if not found:
        return "All alternatives were measured."
    return "\n".join(f"- **{title}**: {reason}" for title, reason in found)


def books(results: Results) -> str:
    """Every book with its rate in every market, and its memory per order."""
    found = [
        row["detail"] | {"value": row["value"]}
        for row in results["rows"]
        if "book" in row["detail"]
    ]
    if not found:
        return "Not measured in this run."
    columns = list(dict.fromkeys(row["column"] for row in found))
    cells: dict[str, dict[str, str]] = {}
    for row in found:
        cells.setdefault(row["book"], {})[row["column"]] = number(row["value"])
    lines = [("", *columns)]
    lines += [(name, *(own.get(column, "") for column in columns)) for name, own in cells.items()]
    return table(lines, right=range(1, len(columns) + 1))


def pictured_books(results: Results) -> str:
    picture = "![Events per second, one bar per book](assets/books.png)\n\n"
    measured = any("book" in row["detail"] for row in results["rows"])
    return (picture if measured else "") + books(results)


def losses(results: Results) -> str:
    """The figures in which an alternative was better, and the bars that were missed."""
    beaten = [lines for lines in (tables.slower(results), tables.fewer(results)) if len(lines) > 1]
    missed = tables.missed(results)
    parts = [table(lines) for lines in beaten]
    if not beaten:
        parts.append("In this run, no alternative was better in any figure of these tables.")
    if missed:
        lines = (
            f"- {_what(row)}: {number(row['ratio'] if row['against'] else row['value'])}"
            f"{' ×' if row['against'] else ' ' + row['unit']}, the bar is {_bar(row)}"
            for row in missed
        )
        parts.append("Bars missed:\n\n" + "\n".join(lines))
    else:
        parts.append("No bar was missed.")
    return "\n\n".join(parts)


def results_page(results: Results) -> str:
    """RESULTS.md: one run, without explanations."""
    sections = {
        "Machine": machine(results),
        "One way between two processes": latency(results),
        "Throughput": throughput(results),
        "Order books": books(results),
        "Who is who": kinds(results),
        "Not measured": absent(results),
        "Where Tapewire loses": losses(results),
        "Bars": bars(results),
    }
    head = (
        "# Results of one run\n\nWritten by `make bench`; explanations are in "
        "[README.md](README.md), plots in `plots/`, all numbers in `results.json`.\n"
    )
    head += f"\n{busy(results)}".rstrip("\n") + "\n"
    return head + "".join(f"\n## {title}\n\n{text}\n" for title, text in sections.items())


def documentation(results: Results, words: str) -> str:
    """The page of the documentation: `words` with its {names} replaced by the parts of the run."""
    parts = {
        "where": where(results),
        "busy": busy(results),
        "machine": machine(results),
        "latency": latency(results),
        "throughput": throughput(results),
        "kinds": kinds(results),
        "absent": absent(results),
        "losses": losses(results),
        "bars": bars(results),
        "books": pictured_books(results),
    }
    return words.format_map(parts)


def published(results: Results) -> Results:
    """The results that are published with the page: without the single repetitions."""
    kept = ("percentiles", "percentiles_from_schedule", "ratio_of_medians", "book", "column")
    rows = [
        row | {"detail": {name: row["detail"][name] for name in kept if name in row["detail"]}}
        for row in results["rows"]
    ]
    return results | {"rows": rows}
