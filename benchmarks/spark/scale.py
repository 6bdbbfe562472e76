"""The cost of Spark over a log as the log grows: time, and the memory of its processes.

    python -m benchmarks.spark.scale --gb 1 8            # measure, and write scale.json
    python -m benchmarks.spark.scale --page              # scale.json into docs/internals/
    python -m benchmarks.spark.scale --gb 1 8 --page     # both

Logs are written below --directory and removed after each run; that takes the size twice, because
`refine` writes as much again. Every run has its own Spark with two cores and a heap of 1 GiB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.harness import scratch
from benchmarks.spark import memory, sessions, tape

RESULTS = Path(__file__).with_name("scale.json")
PAGE = machine.ROOT / "docs" / "internals" / "spark-scale.md"
WORK = ("records", "features", "refine")
SHOWN_GB = (1, 10, 100)
GB = 10**9
HEAP = "1g"
FEATURES = "mid,spread_bps,microprice,imbalance5,ofi"
BEGIN, END = "<!-- scale: begin -->", "<!-- scale: end -->"


@dataclass(frozen=True)
class Run:
    """One job over one log."""

    work: str
    gigabytes: float
    records: int
    rows: int
    seconds: float
    worker_bytes: int
    worker_own_bytes: int
    jvm_bytes: int


def _read(spark: Any, path: Path, **options: str) -> int:
    frame = spark.read.format("tapewire").options(**options).load(str(path))
    return int(sessions.everything(frame)[0] or 0)


def _refine(spark: Any, path: Path) -> int:
    from tapewire import spark as tws

    target = path.with_name("clean")
    try:
        return int(tws.jobs.refine(spark, path, target).rows)
    finally:
        shutil.rmtree(target, ignore_errors=True)


def work(name: str, spark: Any, path: Path) -> int:
    """The number of rows."""
    if name == "records":
        return _read(spark, path, view="records")
    if name == "features":
        return _read(spark, path, view="features", features=FEATURES, sample="100ms")
    return _refine(spark, path)


def measure_here(name: str, path: Path) -> dict[str, Any]:
    """Run the job in this process, with a Spark that has only been started."""
    from tapewire import spark as tws

    master = f"local[{sessions.CORES}]"
    spark = tws.session("scale", master=master, conf={"spark.driver.memory": HEAP})
    spark.range(1).count()
    with memory.watched() as peaks:
        started = time.perf_counter()
        rows = work(name, spark, path)
        seconds = time.perf_counter() - started
    spark.stop()
    return {"rows": rows, "seconds": seconds, **peaks.as_dict()}


def measure(name: str, size: int, directory: Path) -> Run:
    """Write a log of so many bytes, read it once so that the disk is not timed, and run the job."""
    needed = size * (2 if name == "refine" else 1)
    free = shutil.disk_usage(directory).free
    if free < needed * 1.1:
        raise SystemExit(f"{directory} has too little space: free={free}, needed={needed}")
    with scratch(directory) as place:
        write = tape.write_raw if name == "refine" else tape.write_books
        made = write(place / "archive", size)
        measured = sessions.in_process("benchmarks.spark.scale", "--one", name, made.path)
    measured.pop("workers")
    return Run(name, made.bytes / GB, made.records, **measured)


def bounded(runs: list[Run]) -> dict[str, float]:
    """By job, how much more memory the worker took for the largest log than for the smallest."""
    growth = {}
    for name in dict.fromkeys(run.work for run in runs):
        of = sorted((run for run in runs if run.work == name), key=lambda run: run.gigabytes)
        growth[name] = of[-1].worker_bytes / of[0].worker_bytes - 1
    return growth


def page(kept: dict[str, Any]) -> str:
    """The tables between the marks of the page, from the measurements."""
    runs = [Run(**run) for run in kept["runs"]]
    lines = [
        f"Measured with {kept['cores']} cores ({kept['cpu']}), a heap of {HEAP}, commit "
        f"`{kept['commit'][:12]}`.",
        "",
        "| job | log | records | seconds | records/s | largest worker | private part | JVM |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {run.work} | {run.gigabytes:.1f} GB | {run.records / 1e6:.1f} M | "
        f"{run.seconds:.1f} | {run.records / run.seconds / 1e6:.2f} M | "
        f"{run.worker_bytes / 1e6:.0f} MB | {run.worker_own_bytes / 1e6:.0f} MB | "
        f"{run.jvm_bytes / 1e6:.0f} MB |"
        for run in runs
    ]
    growth = ", ".join(f"{name} {share:+.0%}" for name, share in bounded(runs).items())
    lines += ["", f"A worker's memory from the smallest to the largest log: {growth}.", ""]
    lines += [
        "| job | " + " | ".join(f"{size} GB" for size in SHOWN_GB) + " | arithmetic |",
        "|---|" + "---|" * (len(SHOWN_GB) + 1),
    ]
    for name in dict.fromkeys(run.work for run in runs):
        lines.append(_costs(name, [run for run in runs if run.work == name]))
    return "\n".join(lines)


def _costs(name: str, runs: list[Run]) -> str:
    """Seconds at each size, and a line through the smallest and the largest measured size."""
    runs = sorted(runs, key=lambda run: run.gigabytes)
    low, high = runs[0], runs[-1]
    if low is high:
        each, start = low.seconds / low.gigabytes, 0.0
    else:
        each = (high.seconds - low.seconds) / (high.gigabytes - low.gigabytes)
        start = low.seconds - each * low.gigabytes
    cells = []
    for size in SHOWN_GB:
        near = next((run for run in runs if abs(run.gigabytes / size - 1) < 0.1), None)
        if near is not None:
            cells.append(f"**{near.seconds:.0f} s**")
        else:
            cells.append(f"{start + each * size:.0f} s")
    arithmetic = f"{start:.1f} s + {each:.2f} s × GB"
    return f"| {name} | " + " | ".join(cells) + f" | {arithmetic} |"


def _write_page(kept: dict[str, Any]) -> None:
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n{page(kept)}\n{END}{after}")
    print(f"wrote {PAGE.relative_to(machine.ROOT)}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark.scale", description=__doc__)
    parser.add_argument(
        "--gb", nargs="+", type=float, default=[], help="sizes of the log to measure, in GB"
    )
    parser.add_argument("--work", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument(
        "--directory", type=Path, default=Path("/var/tmp"), help="directory of the logs"
    )
    parser.add_argument("--page", action="store_true", help="write the tables of the page")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, path = arguments.one
        print(json.dumps(measure_here(name, Path(path))))
        return
    runs = []
    for name in arguments.work:
        for size in sorted(arguments.gb):
            runs.append(measure(name, int(size * GB), arguments.directory))
            print(runs[-1], flush=True)
    if runs:
        facts = machine.facts()
        kept = {
            "cpu": facts["cpu"],
            "cores": sessions.CORES,
            "commit": facts["commit"],
            "versions": facts["versions"],
            "runs": [asdict(run) for run in runs],
        }
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
        for name, share in bounded(runs).items():
            print(f"{name}: a worker's memory {share:+.1%} from the smallest to the largest log")
    if arguments.page:
        if not RESULTS.exists():
            sys.exit("measure first: --gb 1 8")
        _write_page(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    main()
