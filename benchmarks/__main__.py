"""`python -m benchmarks [--smoke] [--only NAME]`: every row of the performance table."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import machine, markdown, report
from benchmarks.compare import ALTERNATIVES, tables
from benchmarks.compare.measure import bars, better, identity, measured_or_failed
from benchmarks.harness import Row, Scale

HERE = Path(__file__).parent

# Name for --only, and the module whose run(scale) returns its rows. Each runs in its own process,
# so that its heap, mappings and threads do not affect the next.
FAMILIES = {
    "append": "benchmarks.micro.append",
    "batch": "benchmarks.micro.batch",
    "read": "benchmarks.micro.read",
    "fresh": "benchmarks.micro.fresh",
    "idle": "benchmarks.micro.idle",
    "roll": "benchmarks.micro.roll",
    "seek": "benchmarks.micro.seek",
    "open": "benchmarks.micro.recovery",
    "fan-in": "benchmarks.micro.fan_in",
    "one-way": "benchmarks.latency.one_way",
    "hops": "benchmarks.latency.hops",
    "books": "benchmarks.books.compare",
    "features": "benchmarks.books.features",
    "spark": "benchmarks.spark.rows",
}
EVERY_ALTERNATIVE = "compare"


def _arguments() -> argparse.Namespace:
    names = [*FAMILIES, *ALTERNATIVES]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny: shows only that every row runs")
    parser.add_argument(
        "--only",
        action="append",
        choices=[*names, EVERY_ALTERNATIVE],
        help=f"only this family or alternative (repeatable); {EVERY_ALTERNATIVE}: all alternatives",
    )
    parser.add_argument("--child", choices=names, help=argparse.SUPPRESS)
    return parser.parse_args()


def _child(name: str, scale: Scale) -> None:
    if name in ALTERNATIVES:
        json.dump(measured_or_failed(name, scale), sys.stdout)
    else:
        rows = importlib.import_module(FAMILIES[name]).run(scale)
        json.dump([asdict(row) for row in rows], sys.stdout)


def _in_child(name: str, scale: Scale) -> Any:
    """The child's result, or None if it failed; the child has printed the reason."""
    command = [sys.executable, "-m", "benchmarks", "--child", name]
    command += ["--smoke"] if scale.smoke else []
    started = time.monotonic()
    print(f"{name} …", end=" ", flush=True)
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=machine.ROOT)
    try:
        output, _ = child.communicate()
    except KeyboardInterrupt:
        child.wait(30)  # Ctrl-C reaches it too: it stops its servers and removes its files
        raise
    print(f"{time.monotonic() - started:.1f} s", end="", flush=True)
    return json.loads(output) if child.returncode == 0 else None


def _rows(name: str, scale: Scale) -> list[Row]:
    found = _in_child(name, scale)
    print()
    if not found:
        raise SystemExit(f"benchmark {name!r} {'failed' if found is None else 'returned no row'}")
    return [Row(**fields) for fields in found]


def _alternative(name: str, scale: Scale) -> dict[str, Any]:
    """The result of one alternative; a failure is a result too, so that the others are measured."""
    if scale.smoke and not ALTERNATIVES[name].smoke:
        left_out = "only in the full run: it takes longer to start than all others together"
        return identity(name) | {"missing": left_out}
    result = _in_child(name, scale) or identity(name) | {"failed": "its process was killed"}
    reason = result["missing"] or result.get("failed")
    print(f" (not measured: {reason})" if reason else "", flush=True)
    return result


def _alternatives(names: list[str], scale: Scale) -> list[dict[str, Any]]:
    """Measure all, then the quick ones again: a busy minute affects only one round."""
    results = {name: _alternative(name, scale) for name in names}
    for name in names:
        if not scale.smoke and ALTERNATIVES[name].rounds > 1 and "version" in results[name]:
            results[name] = better(results[name], _alternative(name, scale))
    return list(results.values())


def main() -> None:
    arguments = _arguments()
    scale = Scale(arguments.smoke)
    if arguments.child:
        _child(arguments.child, scale)
        return
    chosen = arguments.only or [*FAMILIES, *ALTERNATIVES]
    facts = machine.facts() | {"smoke": scale.smoke}
    print(report.header(facts))
    rows = [row for name in FAMILIES if name in chosen for row in _rows(name, scale)]
    alternatives = _alternatives(
        [n for n in ALTERNATIVES if n in chosen or EVERY_ALTERNATIVE in chosen], scale
    )
    rows += bars(alternatives)
    if "books" in chosen:
        alternatives += importlib.import_module(FAMILIES["books"]).who_is_who(scale)
    results = report.document(facts, rows, alternatives)
    _show(rows, alternatives)
    if scale.smoke:
        with tempfile.TemporaryDirectory() as directory:
            _write(Path(directory), results, rows)
        print("smoke: every row runs; the numbers mean nothing at this size")
    else:
        print(report.summary(rows))
        # A part of the table is stored elsewhere, so that it is not taken for a complete run.
        _write(HERE if not arguments.only else HERE / "plots" / "partial", results, rows)
    failed = [alternative["title"] for alternative in alternatives if "failed" in alternative]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _show(rows: list[Row], alternatives: list[dict[str, Any]]) -> None:
    if rows:
        print("", report.table(rows), sep="\n")
    if any("percentiles" in row.detail for row in rows):
        print("", report.percentile_table(rows), sep="\n")
    if tables.with_latency(alternatives):
        lines = tables.latency_lines(alternatives)
        print("", report.aligned(lines, right=range(2, len(lines[0]))), sep="\n")
    if tables.with_throughput(alternatives):
        print("", report.aligned(tables.throughput_lines(alternatives), right=(1, 2)), sep="\n")
    for title, reason in tables.absent(alternatives):
        print(f"not measured: {title}: {reason}")
    print()


def _write(directory: Path, results: dict[str, Any], rows: list[Row]) -> None:
    from benchmarks import (
        alternative_plots,
        plots,
    )  # not in every child: Matplotlib is slow to import

    directory.mkdir(parents=True, exist_ok=True)
    report.save(directory / "results.json", results)
    (directory / "RESULTS.md").write_text(markdown.results_page(results))
    drawn = plots.draw(directory / "plots", rows)
    drawn += alternative_plots.draw(directory / "plots", results["alternatives"])
    names = ", ".join(path.name for path in drawn)
    print(f"wrote results.json, RESULTS.md and {names} in {directory}")


if __name__ == "__main__":
    main()
