"""From the archive to tables, with comparisons.

The tap has archived the market data during the session. Here the archive is compared with the live
queue, record by record. Then Spark refines it into clean logs and computes features from these,
which must equal those of a replay of the live queue, bit for bit.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire import archive, replay
from tapewire.archive import ArchivedLog
from tapewire.demo.audit import Audit, Disagreement
from tapewire.demo.paths import SYMBOL, VENUE, DemoPaths
from tapewire.demo.process import Settings
from tapewire.demo.process_group import DemoFailed, ProcessEvent, ProcessGroup
from tapewire.demo.queue_records import records
from tapewire.demo.spark_jobs import FEATURES, MASTER, SAMPLE

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Archived", "Computed", "archived", "compute", "finish", "why_no_spark"]

_TIMEOUT_SECONDS = 300.0  # it takes about twenty
_JAVA = "Spark needs Java: install a JDK, 17 or later, or set JAVA_HOME"


@dataclass(frozen=True)
class Archived:
    """What the tap has archived.

    Attributes:
        logs: The logs of the archive.
        records: Number of records in them: those of the live queue, each once.
        checks: What was compared.
    """

    logs: list[ArchivedLog]
    records: int
    checks: list[str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "records": self.records,
            "bytes": sum(log.bytes for log in self.logs),
            "days": sorted({log.date.isoformat() for log in self.logs}),
            "logs": [log.to_dict() for log in self.logs],
        }


@dataclass
class Computed:
    """What Spark has computed from the archive.

    Attributes:
        start_seconds: How long Spark took to start.
        jobs: What each job reported: name, rows, seconds, findings.
        rows: Number of rows of features.
        times: Times of the rows, in seconds from the first.
        columns: The features, by name; NaN where there is no value.
        pages: Title → file name of the reports, next to the demo's page.
        checks: What was compared.
    """

    start_seconds: float = 0.0
    jobs: list[dict[str, Any]] = field(default_factory=list)
    rows: int = 0
    times: np.ndarray[Any, Any] = field(default_factory=lambda: np.empty(0))
    columns: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "start_seconds": round(self.start_seconds, 3),
            "jobs": self.jobs,
            "features": {"rows": self.rows, "names": list(FEATURES), "sample": SAMPLE},
            "pages": self.pages,
        }


def archived(paths: DemoPaths) -> Archived:
    """Compare the archive with the live queue.

    Raises:
        Disagreement: A record is missing, duplicated or different.
    """
    verdict = archive.verify(paths.archive)
    if not verdict.intact:
        raise Disagreement("the archive is damaged", path=os.fspath(paths.archive))
    logs = archive.ls(paths.archive)
    audit = Audit(paths)
    audit.equal(
        "the archive has every record of the market data, once, unchanged",
        (key for log in logs for key in _keys(paths.archive / log.log)),
        _keys(paths.raw),
    )
    return Archived(logs, verdict.records, audit.checks)


def _keys(log: Path) -> Iterator[tuple[int, int, int, int, bytes]]:
    for record in records(log):
        flags = record.flags & 0xFF00  # the lower bits belong to the writer
        yield record.seq, record.timestamp_ns, record.type_id, flags, bytes(record.payload)


def why_no_spark() -> str | None:
    """What Spark lacks to run, in words; None if it can run."""
    try:
        import tapewire.spark  # noqa: F401
    except ImportError as error:
        return str(error)
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        return _JAVA
    return None


def compute(paths: DemoPaths, out: Path, say: Callable[[str], None]) -> Computed:
    """Run Spark to refine the archive and compute features; compare them, copy reports to `out`.

    Raises:
        DemoFailed: A job failed, or took too long.
        Disagreement: The features are not those of a replay of the live queue.
    """
    done = Computed()
    seen = 0
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    say(f"starting Spark, {MASTER}")
    with ProcessGroup(paths.root / "logs" / "spark") as processes:
        settings = Settings("spark", os.fspath(paths.root), os.getpid())
        processes.start("spark", "tapewire.demo.spark_jobs", settings.to_json())
        while processes.runs("spark"):
            processes.listen(until=time.monotonic() + 0.05)
            for event in processes.events[seen:]:
                _take(event, done, say)
            seen = len(processes.events)
            if time.monotonic() > deadline:
                raise DemoFailed(f"Spark took longer than {_TIMEOUT_SECONDS:g} s")
    finish(paths, out, done)
    return done


def _take(event: ProcessEvent, done: Computed, say: Callable[[str], None]) -> None:
    if event.event == "started":
        done.start_seconds = event.facts["seconds"]
        say(f"Spark took {done.start_seconds:.1f} s to start")
        return
    job = event.facts
    done.jobs.append(job)
    rate = f", {job['rows'] / job['seconds']:,.0f} rows/s" if job["seconds"] else ""
    say(f"Spark's {job['job']}: {job['rows']:,} rows in {job['seconds']:.1f} s{rate}")


def finish(paths: DemoPaths, out: Path, done: Computed) -> None:
    """Compare the results of the jobs, and copy their reports to `out`.

    Raises:
        Disagreement: The features are not those of a replay of the live queue.
    """
    _compare(paths, _table(paths.features), done)
    out.mkdir(parents=True, exist_ok=True)
    for title, directory in (("features", paths.features), ("quality", paths.quality)):
        name = import_module(f"tapewire.spark.jobs.{title}").REPORT
        done.pages[title] = f"{title}.html"
        shutil.copyfile(directory / name, out / done.pages[title])


def _table(directory: Path) -> pa.Table:
    """A table stored as Parquet by venue, date and symbol, sorted by time."""
    import pyarrow.dataset as ds

    files = [os.fspath(file) for file in sorted(directory.rglob("*.parquet"))]
    found = ds.dataset(files, partitioning="hive", partition_base_dir=os.fspath(directory))
    return found.to_table().sort_by("timestamp_ns")


def _compare(paths: DemoPaths, found: pa.Table, done: Computed) -> None:
    """Compare the features of Spark's workers with those of one pass over the live queue."""
    expected = replay.features(paths.raw, list(FEATURES), sample=SAMPLE)
    audit = Audit(paths)
    audit.equal(
        f"Spark's features, every {SAMPLE}, have the times of a replay of the live queue",
        found["timestamp_ns"].to_pylist(),
        expected["timestamp_ns"].to_pylist(),
    )
    for name in FEATURES:
        audit.equal(
            f"Spark's {name} equals that of the replay, bit for bit",
            _bits(found, name),
            _bits(expected, name),
        )
    if set(found["venue"].to_pylist()) != {VENUE} or set(found["symbol"].to_pylist()) != {SYMBOL}:
        raise Disagreement(f"Spark found markets other than {VENUE}:{SYMBOL}")
    done.checks += audit.checks
    done.rows = found.num_rows
    nanoseconds = found["timestamp_ns"].to_numpy()
    done.times = (nanoseconds - nanoseconds[:1]) / 1e9
    done.columns = {
        name: np.array([np.nan if v is None else v for v in found[name].to_pylist()])
        for name in FEATURES
    }


def _bits(table: pa.Table, name: str) -> list[int | None]:
    """A column of doubles as integers, to compare them bit by bit."""
    values = table[name].to_pylist()
    bits = np.array([0.0 if value is None else value for value in values]).view(np.int64).tolist()
    return [None if value is None else bit for value, bit in zip(values, bits, strict=True)]
