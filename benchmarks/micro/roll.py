"""The append that rolls to a prepared segment: its cost in the writer's thread."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tapewire as tw
from benchmarks.harness import (
    PAYLOAD,
    TYPE_ID,
    Row,
    Scale,
    percentiles,
    quiet,
    scratch,
)
from benchmarks.machine import ROOT
from tapewire.bench.timed_calls import ROLL_SEGMENT_BYTES, each_append_ns, rolls

FAMILY = "roll"


def _plain(path: Path, n: int) -> dict[str, float]:
    with tw.open_publisher(path, require_prealloc=True, segment_bytes=n * 256) as writer, quiet():
        each_append_ns(writer.append, n // 10)
        return percentiles(each_append_ns(writer.append, n))


SYNCS = "fsync,fdatasync,msync,sync_file_range,syncfs,sync"


def _syncs_of_the_appending_thread(directory: Path, count: int) -> int | None:
    """Counted by strace in a separate run; None if strace is not installed."""
    if shutil.which("strace") is None:
        return None
    trace = directory / "trace"
    code = f"from benchmarks.micro import roll; roll.traced({str(directory / 'traced')!r}, {count})"
    subprocess.run(
        [
            "strace",
            "-ff",
            "-qq",
            "-e",
            f"trace={SYNCS},getppid",
            "-o",
            trace,
            sys.executable,
            "-c",
            code,
        ],
        check=True,
        cwd=ROOT,
    )
    main = (directory / "traced.pid").read_text()
    calls = Path(f"{trace}.{main}").read_text().splitlines()
    begin = next(i for i, call in enumerate(calls) if call.startswith("getppid"))
    return len(calls) - begin - 1


def traced(path: str, count: int) -> None:
    """Roll many times, then exit without close(): opening and closing sync, as they should."""
    Path(f"{path}.pid").write_text(str(os.getpid()))
    with tw.open_publisher(path, segment_bytes=8192) as writer:
        os.getppid()  # a mark in the trace
        while writer.metrics()["rolls"] < count:
            writer.append(TYPE_ID, PAYLOAD)
        os._exit(0)


def run(scale: Scale) -> list[Row]:
    count = scale.pick(400, 5)
    with scratch() as directory:
        took, faults, unprepared = rolls(directory / "rolls", count)
        if not took:  # the machine was so busy that no segment was prepared in time
            return [Row(FAMILY, f"of {count} rolls, not prepared in time", unprepared, "rolls")]
        plain = _plain(directory / "plain", scale.pick(200_000, 2_000))
        syncs = _syncs_of_the_appending_thread(directory, scale.pick(200, 20))
    rolling = percentiles(took)
    rows = [
        Row(
            FAMILY,
            "append that rolls, p99",
            rolling["p99"] / 1e3,
            "µs",
            "plain append, timed",
            plain["p50"] / 1e3,
            ("≤", 50.0),
            {"percentiles": rolling, "plain": plain, "segment_bytes": ROLL_SEGMENT_BYTES},
        ),
        Row(
            FAMILY,
            "  the same, p50",
            rolling["p50"] / 1e3,
            "µs",
            "plain append, timed",
            plain["p50"] / 1e3,
        ),
        Row(FAMILY, "  page faults in those appends", sum(faults), "faults", bar=("≤", 0.0)),
        Row(FAMILY, f"  of {count}, not prepared in time", unprepared, "rolls"),
    ]
    if syncs is not None:
        rows.append(Row(FAMILY, "  syncs by the thread (strace)", syncs, "calls", bar=("≤", 0.0)))
    return rows
