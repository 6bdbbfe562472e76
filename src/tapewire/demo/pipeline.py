"""From the archive to tables: what was kept is compared, refined by Spark, and compared again.

The tap has archived the market data while the session went on. Here the archive is held against
the live queue, record for record; then Spark refines it into clean logs and computes features from
those; and these must be, to the bit, what a replay of the live queue gives.
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
from tapewire.demo.computing import FEATURES, MASTER, SAMPLE
from tapewire.demo.places import SYMBOL, VENUE, Places
from tapewire.demo.process import Settings
from tapewire.demo.stage import DemoFailed, Stage, Told
from tapewire.demo.tape import records

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Archived", "Computed", "archived", "compute", "finish", "why_no_spark"]

_PATIENCE = 300.0  # seconds for what takes some twenty
_JAVA = "Spark needs Java: install a JDK, 17 or later, or set JAVA_HOME"


@dataclass(frozen=True)
class Archived:
    """What the tap has kept.

    Attributes:
        logs: The archive's logs.
        records: How many records they hold: those of the live queue, each once.
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
    """What Spark has made of the archive.

    Attributes:
        start_seconds: How long Spark took to start.
        jobs: What each job told: its name, rows, seconds, findings.
        rows: Rows of features.
        times: Their times, in seconds from the first.
        columns: The features, by name; NaN where there is no value.
        pages: Title → file name of the reports, beside the demo's page.
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


def archived(places: Places) -> Archived:
    """Hold the archive against the live queue.

    Raises:
        Disagreement: A record is missing, there twice, or another.
    """
    verdict = archive.verify(places.archive)
    if not verdict.intact:
        raise Disagreement("the archive is damaged", path=os.fspath(places.archive))
    logs = archive.ls(places.archive)
    audit = Audit(places)
    audit.equal(
        "the archive holds every record of the market data, once, as it was",
        (key for log in logs for key in _keys(places.archive / log.log)),
        _keys(places.raw),
    )
    return Archived(logs, verdict.records, audit.checks)


def _keys(log: Path) -> Iterator[tuple[int, int, int, int, bytes]]:
    for record in records(log):
        flags = record.flags & 0xFF00  # the others are the writer's own
        yield record.seq, record.timestamp_ns, record.type_id, flags, bytes(record.payload)


def why_no_spark() -> str | None:
    """What is missing for Spark, in words; None when all is there."""
    try:
        import tapewire.spark  # noqa: F401
    except ImportError as error:
        return str(error)
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        return _JAVA
    return None


def compute(places: Places, out: Path, say: Callable[[str], None]) -> Computed:
    """Have Spark refine the archive and compute features; compare those, keep the reports in `out`.

    Raises:
        DemoFailed: A job failed, or took too long.
        Disagreement: The features are not those of a replay of the live queue.
    """
    done = Computed()
    heard = 0
    deadline = time.monotonic() + _PATIENCE
    say(f"Spark starts, {MASTER}")
    with Stage(places.root / "logs" / "spark") as stage:
        settings = Settings("spark", os.fspath(places.root), os.getpid())
        stage.start("spark", "tapewire.demo.computing", settings.to_json())
        while stage.runs("spark"):
            stage.listen(until=time.monotonic() + 0.05)
            for told in stage.told[heard:]:
                _take(told, done, say)
            heard = len(stage.told)
            if time.monotonic() > deadline:
                raise DemoFailed(f"Spark took longer than {_PATIENCE:g} s")
    finish(places, out, done)
    return done


def _take(told: Told, done: Computed, say: Callable[[str], None]) -> None:
    if told.event == "started":
        done.start_seconds = told.facts["seconds"]
        say(f"Spark took {done.start_seconds:.1f} s to start")
        return
    job = told.facts
    done.jobs.append(job)
    rate = f", {job['rows'] / job['seconds']:,.0f} rows/s" if job["seconds"] else ""
    say(f"Spark's {job['job']}: {job['rows']:,} rows in {job['seconds']:.1f} s{rate}")


def finish(places: Places, out: Path, done: Computed) -> None:
    """Compare what the jobs have left, and put their reports into `out`.

    Raises:
        Disagreement: The features are not those of a replay of the live queue.
    """
    _compare(places, _table(places.features), done)
    out.mkdir(parents=True, exist_ok=True)
    for title, folder in (("features", places.features), ("quality", places.quality)):
        name = import_module(f"tapewire.spark.jobs.{title}").REPORT
        done.pages[title] = f"{title}.html"
        shutil.copyfile(folder / name, out / done.pages[title])


def _table(folder: Path) -> pa.Table:
    """A table in Parquet by venue, date and symbol, in the order of its times."""
    import pyarrow.dataset as ds

    files = [os.fspath(file) for file in sorted(folder.rglob("*.parquet"))]
    found = ds.dataset(files, partitioning="hive", partition_base_dir=os.fspath(folder))
    return found.to_table().sort_by("timestamp_ns")


def _compare(places: Places, found: pa.Table, done: Computed) -> None:
    """The features of Spark's workers, from clean logs, against one pass over the live queue."""
    expected = replay.features(places.raw, list(FEATURES), sample=SAMPLE)
    audit = Audit(places)
    audit.equal(
        f"Spark's features, every {SAMPLE}, stand at the times of a replay of the live queue",
        found["timestamp_ns"].to_pylist(),
        expected["timestamp_ns"].to_pylist(),
    )
    for name in FEATURES:
        audit.equal(
            f"Spark's {name} is that of the replay, bit for bit",
            _bits(found, name),
            _bits(expected, name),
        )
    if set(found["venue"].to_pylist()) != {VENUE} or set(found["symbol"].to_pylist()) != {SYMBOL}:
        raise Disagreement(f"Spark found other markets than {VENUE}:{SYMBOL}")
    done.checks += audit.checks
    done.rows = found.num_rows
    nanoseconds = found["timestamp_ns"].to_numpy()
    done.times = (nanoseconds - nanoseconds[:1]) / 1e9
    done.columns = {
        name: np.array([np.nan if v is None else v for v in found[name].to_pylist()])
        for name in FEATURES
    }


def _bits(table: pa.Table, name: str) -> list[int | None]:
    """A column of doubles as integers: equal when they are the same bits."""
    values = table[name].to_pylist()
    bits = np.array([0.0 if value is None else value for value in values]).view(np.int64).tolist()
    return [None if value is None else bit for value, bit in zip(values, bits, strict=True)]
