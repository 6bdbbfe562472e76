"""The append that rolls, the next segment being prepared: what the writer's thread pays for it."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import tapewire as tw
from benchmarks.harness import (
    PAYLOAD,
    RECORD_BYTES,
    TYPE_ID,
    Row,
    Scale,
    percentiles,
    pin,
    quiet,
    rows_of,
    scratch,
    unpin,
    until,
)
from benchmarks.machine import ROOT
from benchmarks.micro.append import each_append_ns

FAMILY = "roll"
SEGMENT_BYTES = 1 << 20
PER_SEGMENT = (SEGMENT_BYTES - 64) // RECORD_BYTES
WARM = 1_000


def _prepared(path: Path, segment: int) -> bool:
    """The next segment has its name, and the worker is done with faulting its pages in."""
    if not (path / f"{segment:09d}.q").exists():
        return False
    mapped = Path("/proc/self/smaps").read_text()
    found = re.search(rf"{segment:09d}\.q\n(?:.*\n)*?Rss:\s+(\d+) kB", mapped)
    return found is not None and int(found[1]) * 1024 >= SEGMENT_BYTES


def rolls(path: Path, count: int) -> tuple[list[int], list[int], int]:
    """Nanoseconds and page faults of each append that rolled; how many found nothing prepared."""
    rows = rows_of(PER_SEGMENT)
    me = resource.RUSAGE_THREAD
    took, faults = [], []
    ready = 0
    with tw.open_publisher(path, segment_bytes=SEGMENT_BYTES, prealloc_wait=10.0) as writer:
        pin(0)  # this thread alone: the workers keep the other core
        with quiet():
            writer.append_batch(TYPE_ID, rows[WARM:])
            for segment in range(count):
                until(lambda s=segment: _prepared(path, s + 1), "a prepared segment")
                each_append_ns(writer.append, WARM)  # a writer that rolls is busy, not just awake
                faults_before = resource.getrusage(me).ru_minflt
                start = time.perf_counter_ns()
                writer.append(TYPE_ID, PAYLOAD)
                ns = time.perf_counter_ns() - start
                faulted = resource.getrusage(me).ru_minflt - faults_before
                # Prepared means handed over; a worker held up before that makes another row.
                if (now_ready := writer.metrics()["prealloc_ready"]) > ready:
                    ready = now_ready
                    took.append(ns)
                    faults.append(faulted)
                writer.append_batch(TYPE_ID, rows[WARM + 1 :])
    unpin()
    return took, faults, count - len(took)


def _plain(path: Path, n: int) -> dict[str, float]:
    with tw.open_publisher(path, require_prealloc=True, segment_bytes=n * 256) as writer, quiet():
        each_append_ns(writer.append, n // 10)
        return percentiles(each_append_ns(writer.append, n))


SYNCS = "fsync,fdatasync,msync,sync_file_range,syncfs,sync"


def _syncs_of_the_appending_thread(folder: Path, count: int) -> int | None:
    """By strace, over another run; None where there is no strace."""
    if shutil.which("strace") is None:
        return None
    trace = folder / "trace"
    code = f"from benchmarks.micro import roll; roll.traced({str(folder / 'traced')!r}, {count})"
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
    main = (folder / "traced.pid").read_text()
    calls = Path(f"{trace}.{main}").read_text().splitlines()
    begin = next(i for i, call in enumerate(calls) if call.startswith("getppid"))
    return len(calls) - begin - 1


def traced(path: str, count: int) -> None:
    """Many rolls, then gone without close(). Opening and closing do sync, and are meant to."""
    Path(f"{path}.pid").write_text(str(os.getpid()))
    with tw.open_publisher(path, segment_bytes=8192) as writer:
        os.getppid()  # a mark in the trace
        while writer.metrics()["rolls"] < count:
            writer.append(TYPE_ID, PAYLOAD)
        os._exit(0)


def run(scale: Scale) -> list[Row]:
    count = scale.pick(400, 5)
    with scratch() as folder:
        took, faults, unprepared = rolls(folder / "rolls", count)
        if not took:  # so busy a machine that no worker was ever in time
            return [Row(FAMILY, f"of {count} rolls, not prepared in time", unprepared, "rolls")]
        plain = _plain(folder / "plain", scale.pick(200_000, 2_000))
        syncs = _syncs_of_the_appending_thread(folder, scale.pick(200, 20))
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
            {"percentiles": rolling, "plain": plain, "segment_bytes": SEGMENT_BYTES},
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
