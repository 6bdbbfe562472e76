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

from benchmarks import machine, plots, report
from benchmarks.harness import Row, Scale

HERE = Path(__file__).parent

# Name for --only, and the module whose run(scale) gives its rows. Each runs in a process of its
# own: what one leaves behind (heap, mappings, threads) must not speed up or slow down the next.
FAMILIES = {
    "append": "benchmarks.micro.append",
    "batch": "benchmarks.micro.batch",
    "read": "benchmarks.micro.read",
    "roll": "benchmarks.micro.roll",
    "seek": "benchmarks.micro.seek",
    "open": "benchmarks.micro.recovery",
    "one-way": "benchmarks.latency.one_way",
    "zmq": "benchmarks.latency.zmq_ipc",
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny: shows only that every row runs")
    parser.add_argument(
        "--only", action="append", choices=FAMILIES, help="this family (repeatable)"
    )
    parser.add_argument("--child", choices=FAMILIES, help=argparse.SUPPRESS)
    return parser.parse_args()


def _child(name: str, scale: Scale) -> None:
    rows = importlib.import_module(FAMILIES[name]).run(scale)
    json.dump([asdict(row) for row in rows], sys.stdout)


def _measure(name: str, scale: Scale) -> list[Row]:
    command = [sys.executable, "-m", "benchmarks", "--child", name]
    command += ["--smoke"] if scale.smoke else []
    started = time.monotonic()
    print(f"{name} …", end=" ", flush=True)
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=machine.ROOT)
    if run.returncode != 0:
        print()
        raise SystemExit(f"benchmark {name!r} failed")
    print(f"{time.monotonic() - started:.1f} s", flush=True)
    rows = [Row(**fields) for fields in json.loads(run.stdout)]
    if not rows:
        raise SystemExit(f"benchmark {name!r} gave no row")
    return rows


def main() -> None:
    arguments = _arguments()
    scale = Scale(arguments.smoke)
    if arguments.child:
        _child(arguments.child, scale)
        return
    facts = machine.facts() | {"smoke": scale.smoke}
    print(report.header(facts))
    rows = [row for name in arguments.only or FAMILIES for row in _measure(name, scale)]
    print("", report.table(rows), "", report.percentile_table(rows), "", sep="\n")
    if scale.smoke:
        with tempfile.TemporaryDirectory() as folder:
            _write(Path(folder), facts, rows)
        print("smoke: every row runs; numbers this small mean nothing")
    else:
        print(report.summary(rows))
        # A part of the table must not pass for the whole.
        _write(HERE if not arguments.only else HERE / "plots" / "partial", facts, rows)


def _write(folder: Path, facts: dict[str, object], rows: list[Row]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    report.save(folder / "results.json", facts, rows)
    drawn = plots.draw(folder / "plots", rows)
    print(f"wrote {folder / 'results.json'} and {', '.join(path.name for path in drawn)}")


if __name__ == "__main__":
    main()
