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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire import archive, replay
from tapewire.archive import ArchivedLog
from tapewire.demo.audit import Audit, Disagreement
from tapewire.demo.places import SYMBOL, VENUE, Places
from tapewire.demo.tape import records

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Archived", "Computed", "archived", "compute", "compute_with", "why_no_spark"]

FEATURES = ("mid", "spread_bps", "microprice", "imbalance5")
SAMPLE = "100ms"
MASTER = "local[2]"
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
    """Refine the archive, compute features, write the reports into `out`; compare the features.

    Raises:
        Disagreement: They are not those of a replay of the live queue.
    """
    from tapewire import spark as tws

    began = time.monotonic()
    say(f"Spark starts ({MASTER})")
    spark = tws.session("tapewire demo", MASTER)
    try:
        return compute_with(spark, places, out, say, time.monotonic() - began)
    finally:
        spark.stop()


def compute_with(
    spark: Any, places: Places, out: Path, say: Callable[[str], None], start_seconds: float = 0.0
) -> Computed:
    """The same with a session that is there."""
    done = Computed(start_seconds)
    _compare(places, _jobs(spark, places, out, say, done), done)
    return done


def _jobs(
    spark: Any, places: Places, out: Path, say: Callable[[str], None], done: Computed
) -> pa.Table:
    """Run them one after the other; the features that came out."""
    from tapewire.spark import jobs

    def run(job: Callable[..., Any], source: Path, target: Path, **options: Any) -> None:
        summary = job(spark, source, target, **options)
        if summary.failed:
            raise Disagreement(f"{summary.job} failed: {'; '.join(map(str, summary.findings))}")
        done.jobs.append(
            {
                "job": summary.job,
                "rows": summary.rows,
                "seconds": round(summary.seconds, 3),
                "findings": [str(finding) for finding in summary.findings],
            }
        )
        rate = summary.rows / summary.seconds if summary.seconds else 0.0
        say(f"{summary.job}: {summary.rows:,} rows, {summary.seconds:.1f} s, {rate:,.0f} rows/s")

    run(jobs.refine, places.archive, places.clean)
    run(jobs.features, places.clean, places.features, names=FEATURES, sample=SAMPLE)
    run(jobs.quality, places.clean, places.quality)
    out.mkdir(parents=True, exist_ok=True)
    for title, folder in (("features", places.features), ("quality", places.quality)):
        done.pages[title] = f"{title}.html"
        shutil.copyfile(folder / "report.html", out / f"{title}.html")
    table: pa.Table = spark.read.parquet(os.fspath(places.features)).toArrow()
    return table.sort_by("timestamp_ns")


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
