"""Tables by venue, date and symbol.

All symbols of a date are one query of Spark's; each symbol's day is then put into its place in one
step, and marked.
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
from tapewire.scan.symbol_days import LIVE, Day, day_bounds, folder_of, input_of
from tapewire.spark.jobs.failures import typed
from tapewire.spark.jobs.parts import DAMAGE, JobPart, PartResult, skip_done
from tapewire.spark.jobs.progress import Progress
from tapewire.spark.jobs.summary import JobFinding, Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["KEYS", "read_days", "refuse_live_days", "utc_date", "write_day_tables"]

KEYS = ("venue", "date", "symbol")  # the folders, from the outermost on
_MOST_SYMBOLS = 256  # of one query: a kill costs no more than those


def refuse_live_days(days: Sequence[Day], source: str | os.PathLike[str]) -> None:
    """A table of days needs days: those of an archive.

    Raises:
        InvalidOption: With the remedy.
    """
    for day in days:
        if day.date == LIVE:
            raise InvalidOption(
                f"the logs here are of no day: {day.venue}/{day.symbol}",
                path=os.fspath(source),
                hint="read an archive of them: `tapewire archive tap`",
            )


def utc_date(column: str = "timestamp_ns") -> Any:
    """The UTC day of nanoseconds as text, whatever zone the session has."""
    from pyspark.sql import functions as F

    # Whole numbers all the way: `div` rounds towards zero, and no log is older than 1970.
    days = F.expr(f"cast({column} div 86400000000000 as int)")
    return F.date_format(F.date_add(F.lit("1970-01-01").cast("date"), days), "yyyy-MM-dd")


def read_days(
    spark: SparkSession,
    source: str,
    view: str,
    date: str,
    days: Sequence[Day],
    **options: str,
) -> DataFrame:
    """Rows of a view, of these symbols on one day."""
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
    days: Sequence[Day],
    rows_of: Callable[[str, Sequence[Day]], DataFrame],
    *,
    streams: Sequence[str],
    options: Mapping[str, Any],
    summary: Summary,
    progress: Progress,
) -> dict[str, PartResult]:
    """Write what is not there yet.

    Args:
        spark: The session.
        job: The job's name.
        target: The table's folder.
        days: All symbols' days of the job.
        rows_of: Given a date and symbols' days of it, their rows with the columns of `KEYS`, sorted
            by those and by time within each partition.
        streams: What the rows are made of; a change there has a day made again.
        options: Of the job, as far as they decide what the rows are; plain values.
        summary: Filled in.
        progress: Told of parts and rows.

    Returns:
        What each day came to, by its part's name, now or before; those that failed are not in it.
    """
    root = Path(os.path.abspath(os.fspath(target)))
    done, directories = JobMarks(root, job), AtomicDirectories(root, job)
    parts = [JobPart(day.name, _inputs(day, streams), day) for day in days]
    with directories.exclusive():
        left, results = skip_done(done, parts, options, summary)
        progress.expect(parts=len(left))
        work = _Work(spark, directories, done, root, rows_of, options, summary, progress, results)
        for date, group in _groups(left):
            work.do(date, group)
    return results


@dataclass
class _Work:
    """What all groups of a run have in common."""

    spark: SparkSession
    directories: AtomicDirectories
    done: JobMarks
    root: Path
    rows_of: Callable[[str, Sequence[Day]], DataFrame]
    options: Mapping[str, Any]
    summary: Summary
    progress: Progress
    results: dict[str, PartResult]

    def do(self, date: str, group: Sequence[JobPart]) -> None:
        """A group at once; where that fails, each of its days alone: most of them are well."""
        from pyspark.errors import PySparkException

        try:
            self._write(date, group)
        except (PySparkException, TapewireError) as error:
            own = typed(error)
            if own is None:
                raise
            if len(group) > 1:
                for part in group:
                    self.do(date, [part])
                return
            kind = "damage" if isinstance(own, DAMAGE) else "failed"
            self.summary.failed += 1
            self.summary.findings.append(JobFinding(group[0].name, str(own), kind=kind))

    def _write(self, date: str, group: Sequence[JobPart]) -> None:
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


def _inputs(day: Day, streams: Sequence[str]) -> tuple[dict[str, Any], ...]:
    own = [log for stream, log in sorted(day.logs.items()) if stream in streams]
    # The book that a day begins with is made by the days before.
    return tuple(input_of(log) for log in [*day.before[-1:], *own])


def _groups(parts: Sequence[JobPart]) -> Iterator[tuple[str, list[JobPart]]]:
    by_date = sorted(parts, key=lambda part: (part.work.date, part.name))
    for date, group in groupby(by_date, key=lambda part: str(part.work.date)):
        all_of_it = list(group)
        for i in range(0, len(all_of_it), _MOST_SYMBOLS):
            yield date, all_of_it[i : i + _MOST_SYMBOLS]


def _publish(
    directories: AtomicDirectories,
    done: JobMarks,
    made: Path,
    root: Path,
    part: JobPart,
    options: Mapping[str, Any],
) -> PartResult:
    day: Day = part.work
    staged, place = folder_of(made, day), folder_of(root, day)
    staged.mkdir(parents=True, exist_ok=True)  # a day without rows has a folder without files
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
