"""Puts the last `make bench` into README.md and docs/: the figures, the machine, and the plots."""

import json
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
# Rows whose neighbours say the same.
LEFT_OUT = ("1 segment", "10 segments", "100 segments, in the active")
PLOTS = {"latency.png": "latency.png", "bars.png": "bars.png"}


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(results: dict) -> str:
    lines = [
        "| what | measured | against, in the same run | ratio | bar |",
        "|---|---|---|---|---|",
    ]
    for row in results["rows"]:
        if row["bar"] is None or row["what"].lstrip().startswith(LEFT_OUT):
            continue
        sign, limit = row["bar"]
        against = ratio = ""
        unit = "" if row["against"] else f" {row['unit']}"
        if row["against"]:
            against = f"{row['against']}: {number(row['against_value'])} {row['unit']}"
            ratio = f"{number(row['ratio'])} ×"
            unit = " ×"
        what = f"{row['family'].replace('_', ' ')}: {row['what'].strip()}"
        bar = f"{sign} {number(limit)}{unit}" + (" **missed**" if row["verdict"] == "miss" else "")
        lines.append(
            f"| {what} | {number(row['value'])} {row['unit']} | {against} | {ratio} | {bar} |"
        )
    return "\n".join(lines)


def main() -> None:
    results = json.loads((ROOT / "benchmarks/results.json").read_text())
    if results["smoke"]:
        raise SystemExit("these are smoke figures: run `make bench`")
    where = (
        f"{results['cpu']}{' (virtual)' if results['virtual'] else ''}, {results['cpus']} CPUs, "
        f"Linux {results['kernel'].split('-')[0]}, Python {results['python']}, payload "
        f"{results['payload_bytes']} B, queues on {results['filesystem']}, commit "
        f"{results['commit'][:12]}"
    )
    plot = "![One-way latency by percentile, beside pyzmq](docs/assets/latency.png)"
    text = f"{BEGIN}\n{where}.\n\n{table(results)}\n\n{plot}\n{END}"
    readme = ROOT / "README.md"
    old = readme.read_text()
    head, rest = old.split(BEGIN)
    readme.write_text(head + text + rest.split(END)[1])
    for source, target in PLOTS.items():
        shutil.copy(ROOT / "benchmarks/plots" / source, ROOT / "docs/assets" / target)


if __name__ == "__main__":
    main()
