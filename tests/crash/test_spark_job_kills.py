"""Jobs whose driver is killed anywhere, and run again, leave the output of an undisturbed run."""

import glob
import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tapewire import ingest
from tests.crash.crew import ROOT
from tests.support.captures import content_of, futures_lines
from tests.support.raw_tapes import archive_raw, clean_logs, plain_split, raw_rows

RAW = raw_rows(6_000, late_every=60)
PATIENCE = 400.0  # a driver takes seconds to start, more on a busy machine

DONE = ' holding "pending": null'
# The first file of each stage of a job: the driver is killed when it appears.
POINTS = [
    "archive/imports/*.json",
    "archive/_tapewire/done/import/*/*.json",
    "clean/_tapewire/done/refine/units/*/*.json",
    "clean/_tapewire/staging/*/*",
    "clean/v1/*/*/*/*/control.meta",
    f"clean/_tapewire/done/refine/units/*/*.json{DONE}",
    "clean/_tapewire/done/refine/*/*/*/*.json",
    "parquet/_tapewire/compact/*",
    "parquet/v1/*/*/*/*/*.parquet",
    "again/v1/*/*/*/*/control.meta",
]


@pytest.fixture
def sources(tmp_path):
    folder = tmp_path / "captures"
    folder.mkdir()
    for seed, symbols in enumerate([("AAA", "BBB"), ("CCC", "DDD")]):
        lines = futures_lines(4_000, seed=seed, symbols=symbols, gap_at=2_000)
        name = "".join(symbols).lower()
        (folder / f"{name}_20231114.gz").write_bytes(gzip.compress(b"\n".join(lines)))
    archive_raw(tmp_path / "raw", RAW)
    return tmp_path


def driver(root):
    env = dict(os.environ, PYTHONPATH=str(ROOT), OPENBLAS_NUM_THREADS="1")
    command = [sys.executable, "-m", "tests.crash.spark_jobs", str(root)]
    return subprocess.Popen(
        command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def reached(root, point):
    """Whether a file matches the point, by its name and, if given, its text."""
    pattern, _, text = point.partition(" holding ")
    found = glob.glob(str(root / pattern))
    return any(text in Path(path).read_text() for path in found) if text else bool(found)


def killed_at(root, point):
    """Run until a file matches the point, then kill; whether this run itself got so far.

    A killed driver's JVM works on for a moment: a match may exist before the next driver starts,
    which is then killed while starting.
    """
    reached_before = reached(root, point)
    with driver(root) as process:
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and not reached(root, point):
            assert time.monotonic() < deadline, f"no such file: {point}"
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        said = process.stdout.read()
    assert process.returncode == -signal.SIGKILL, said
    return not reached_before


def survives(root, points):
    """Kill at each point, run to the end, compare; the points at which work was in progress."""
    met = [point for point in points if killed_at(root, point)]
    with driver(root) as process:
        said = process.stdout.read()
    assert process.returncode == 0, said

    for capture in sorted((root / "captures").iterdir()):
        ingest.run("binance-usdm", [capture], root / "plain")
    assert content_of(root / "archive") == content_of(root / "plain")
    want = plain_split(RAW, late="separate")
    assert clean_logs(root / "clean") == want
    assert clean_logs(root / "again") == want
    for target in ("clean", "parquet", "again"):
        left = glob.glob(str(root / target / "_tapewire" / "compact" / "*"))
        left += glob.glob(str(root / target / "_tapewire" / "staging" / "*" / "task-*"))
        assert left == [], "files of killed runs are removed"
    return met


@pytest.mark.timeout(600)  # three Spark drivers, one after the other
def test_two_kills_of_the_driver_change_nothing(sources):
    points = [POINTS[1], POINTS[4]]
    assert survives(sources, points) == points


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_ten_kills_of_the_driver_change_nothing(sources):
    met = survives(sources, POINTS)
    assert len(met) >= 7, met
