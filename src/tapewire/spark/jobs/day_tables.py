"""Tables by venue, date and symbol.

All symbols of a date are computed by one Spark query; each symbol's day is then moved into place in
one step, and marked as done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from tapewire.archive.atomic_directories import AtomicDirectories
from tapewire.archive.job_marks import JobMarks
from tapewire.errors import InvalidOption, TapewireError
from tapewire.scan.symbol_days import LIVE, SymbolDay, day_bounds, log_state, partition_directory
from tapewire.spark.jobs.failures import tapewire_error
from tapewire.spark.jobs.parts import DAMAGE, JobPart, PartResult, skip_done
from tapewire.spark.jobs.progress import Progress
from tapewire.spark.jobs.summary import JobFinding, Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["KEYS", "read_days", "refuse_live_days", "utc_date", "write_day_tables"]

KEYS = ("venue", "date", "symbol")  # the directories, from the outermost
_MAX_SYMBOLS = 256  # of one query: a kill loses the work of these at most


def refuse_live_days(days: Sequence[SymbolDay], source: str | os.PathLike[str]) -> None:
    """Refuse logs that belong to no day: they are live queues, not an archive.

    Raises:
        InvalidOption: There is such a log.
    """
    for day in days:
        if day.date == LIVE:
            raise InvalidOption(
                f"this log belongs to no day: log={day.venue}/{day.symbol}",
                path=os.fspath(source),
                hint="archive it with `tapewire archive tap` and read the archive",
            )


def utc_date(column: str = "timestamp_ns") -> Any:
    """The UTC day of a column of nanoseconds as text, whatever the time zone of the session."""
    from pyspark.sql import functions as F

    # Integers only: `div` rounds towards zero, and no log is older than 1970.
    days = F.expr(f"cast({column} div 86400000000000 as int)")
    return F.date_format(F.date_add(F.lit("1970-01-01").cast("date"), days), "yyyy-MM-dd")


def read_days(
    spark: SparkSession,
    source: str,
    view: str,
    date: str,
    days: Sequence[SymbolDay],
    **options: str,
) -> DataFrame:
    """The rows of a view for these symbols on one day."""
    bounds = day_bounds(date)
    assert bounds is not None
    return (
        spark.read.format("tapewire")
        .option("view", view)
        .option("symbols", ",".join(f"{day.venue}:{day.symbol}" for day in days))
        .option("time_from", str(bounds[0]))
        .option("time_to", str(bounds[1]))
        .options(**options)
        .load(source)
    )


def write_day_tables(
    spark: SparkSession,
    job: str,
    target: str | os.PathLike[str],
    days: Sequence[SymbolDay],
    rows_of: Callable[[str, Sequence[SymbolDay]], DataFrame],
    *,
    streams: Sequence[str],
    options: Mapping[str, Any],
    summary: Summary,
    progress: Progress,
) -> dict[str, PartResult]:
    """Write the rows of the days that are not done yet.

    Args:
        spark: The session.
        job: The name of the job.
        target: The directory of the table.
        days: All days of the job.
        rows_of: For a date and days with that date, their rows with the columns of `KEYS`, sorted
            by these and by time within each partition.
        streams: The streams that the rows depend on; a day is done again if one of its logs in
            these has changed.
        options: The options of the job that affect the rows; plain values.
        summary: Receives the results.
        progress: Receives parts and rows.

    Returns:
        The results of this and earlier runs by the names of the days, except failed days.
    """
    root = Path(os.path.abspath(os.fspath(target)))
    done, directories = JobMarks(root, job), AtomicDirectories(root, job)
    parts = [JobPart(day.name, _inputs(day, streams), day) for day in days]
    with directories.exclusive():
        left, results = skip_done(done, parts, options, summary)
        progress.expect(parts=len(left))
        run = _Run(spark, directories, done, root, rows_of, options, summary, progress, results)
        for date, group in _groups(left):
            run.write(date, group)
    return results


@dataclass
class _Run:
    """One run of a job."""

    spark: SparkSession
    directories: AtomicDirectories
    done: JobMarks
    root: Path
    rows_of: Callable[[str, Sequence[SymbolDay]], DataFrame]
    options: Mapping[str, Any]
    summary: Summary
    progress: Progress
    results: dict[str, PartResult]

    def write(self, date: str, group: Sequence[JobPart]) -> None:
        """Write a group by one query; if that fails, write each day by a query of its own."""
        from pyspark.errors import PySparkException

        try:
            self._write_group(date, group)
        except (PySparkException, TapewireError) as error:
            cause = tapewire_error(error)
            if cause is None:
                raise
            if len(group) > 1:
                for part in group:
                    self.write(date, [part])
                return
            kind = "damage" if isinstance(cause, DAMAGE) else "failed"
            self.summary.failed += 1
            self.summary.findings.append(JobFinding(group[0].name, str(cause), kind=kind))

    def _write_group(self, date: str, group: Sequence[JobPart]) -> None:
        with self.directories.new() as made:
            frame = self.rows_of(date, [part.work for part in group])
            with self.progress.watching(self.spark, parts=len(group)):
                frame.write.partitionBy(*KEYS).mode("overwrite").parquet(os.fspath(made / "rows"))
            for part in group:
                result = _publish(
                    self.directories, self.done, made / "rows", self.root, part, self.options
                )
                self.results[part.name] = result
                self.summary.done += 1
                self.summary.rows += result.rows
                self.summary.bytes += result.bytes
                self.progress.add(rows=result.rows, parts=1)


def _inputs(day: SymbolDay, streams: Sequence[str]) -> tuple[dict[str, Any], ...]:
    own = [log for stream, log in sorted(day.logs.items()) if stream in streams]
    # The book at the beginning of a day depends on the days before.
    return tuple(log_state(log) for log in [*day.before[-1:], *own])


def _groups(parts: Sequence[JobPart]) -> Iterator[tuple[str, list[JobPart]]]:
    by_date = sorted(parts, key=lambda part: (part.work.date, part.name))
    for date, group in groupby(by_date, key=lambda part: str(part.work.date)):
        of_date = list(group)
        for i in range(0, len(of_date), _MAX_SYMBOLS):
            yield date, of_date[i : i + _MAX_SYMBOLS]


def _publish(
    directories: AtomicDirectories,
    done: JobMarks,
    made: Path,
    root: Path,
    part: JobPart,
    options: Mapping[str, Any],
) -> PartResult:
    day: SymbolDay = part.work
    staged, place = partition_directory(made, day), partition_directory(root, day)
    staged.mkdir(parents=True, exist_ok=True)  # a day without rows has an empty directory
    for checksum in staged.glob(".*.crc"):
        checksum.unlink()
    files = sorted(staged.glob("*.parquet"))
    result = PartResult(
        rows=sum(pq.ParquetFile(file).metadata.num_rows for file in files),
        bytes=sum(file.stat().st_size for file in files),
        outputs=[os.fspath(place.relative_to(root))],
    )
    done.forget(part.name)
    directories.publish(staged, place)
    done.write(part.name, part.inputs, options, result.to_dict())
    return result
