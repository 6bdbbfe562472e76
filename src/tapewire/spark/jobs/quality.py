"""`quality`: the quality of clean logs, as tables and as a page."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from tapewire.archive.atomic_directories import AtomicDirectories
from tapewire.page import write_file
from tapewire.page.picture import PICTURE_LEVELS, BookPicture, span_for
from tapewire.quality import QualityLimits, measure_day
from tapewire.quality.findings import TABLES
from tapewire.quality.measured_day import day_book
from tapewire.quality.report import DayReport, quality_page
from tapewire.queue.status import status
from tapewire.scan.options import ReadOptions
from tapewire.scan.symbol_days import (
    REPORT,
    SymbolDay,
    days_of,
    log_state,
    on_dates,
    partition_directory,
    symbols_option,
    write_parquet,
)
from tapewire.spark.jobs.parts import JobPart, PartResult, run_parts
from tapewire.spark.jobs.progress import Progress
from tapewire.spark.jobs.summary import JobFinding, Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["quality"]

JOB = "quality"
PICTURE = "pictures"
PLOTS = 8


def quality(
    spark: SparkSession,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    symbols: Iterable[str] | None = None,
    dates: Iterable[str] | None = None,
    late: str | None = None,
    behind: str | None = None,
    early: str | None = None,
    clock_drift: str | None = None,
    levels: int | None = None,
    instruments: str | None = None,
    plots: int = PLOTS,
    progress: Progress | None = None,
) -> Summary:
    """Measure clean logs by symbol and day; writes tables below `target` and ``_report.html``.

    Findings are gaps, books that are crossed, locked or untrusted, clocks that disagree or drift,
    late records, and books that differ from the venue's own snapshots. With findings, the exit code
    of the summary is 1.

    Args:
        spark: The session.
        source: An archive or a bus with clean logs.
        target: Directory for the tables: days, clocks, clock_times, spans, snapshots, gaps,
            findings, each by venue, date and symbol.
        symbols: Only these symbols, as SYMBOL or VENUE:SYMBOL.
        dates: Only these days, ``YYYY-MM-DD``.
        late: A record is late if it arrived more than this after its exchange time ("10s").
        behind: How far a record's time may be before that of an earlier record (0).
        early: How long before its exchange time a record may arrive (0).
        clock_drift: How far the shortest delays of two hours may differ ("250ms").
        levels: Number of levels compared with a venue's snapshot (25).
        instruments: Path of an `instruments.json`; None: the files nearest to the logs.
        plots: Number of days in the report's plots: the largest.
        progress: Shows the progress.

    Example:
        >>> from tapewire import spark as tws
        >>> spark = tws.session()  # doctest: +SKIP
        >>> print(tws.jobs.quality(spark, "archive/", "quality/"))  # doctest: +SKIP
    """
    started = time.monotonic()
    limits = QualityLimits.parse(
        late=late, behind=behind, early=early, clock_drift=clock_drift, levels=levels
    )
    options = ReadOptions(symbols=symbols_option(symbols), instruments=instruments)
    days = on_dates(days_of(source, options), dates)
    drawn = sorted((day for day in days if "book" in day.logs), key=_bytes, reverse=True)[:plots]
    summary = Summary(JOB, os.fspath(source), os.fspath(target))
    root = os.path.abspath(os.fspath(target))
    progress = progress if progress is not None else Progress(JOB, quiet=True)
    parts = {
        day.name: JobPart(
            day.name,
            tuple(log_state(log) for log in (*day.logs.values(), *day.before[-1:])),
            day,
        )
        for day in days
    }
    with AtomicDirectories(root, JOB).exclusive():
        results = run_parts(
            spark,
            JOB,
            root,
            list(parts.values()),
            _MeasureTask(root, limits, instruments),
            options={**limits.to_dict(), "instruments": instruments},
            summary=summary,
            progress=progress,
        )
        summary.seconds = time.monotonic() - started
        # Separate parts: if another day is larger now, this one need not be measured again.
        pictures = run_parts(
            spark,
            PICTURE,
            root,
            [parts[day.name] for day in drawn if day.name in results],
            _PictureTask(root, instruments),
            options={"instruments": instruments},
            summary=Summary(PICTURE, os.fspath(source), os.fspath(target)),
            progress=progress,
        )
        shown = [_read_day(root, day, day.name in pictures) for day in days if day.name in results]
        failed = [(f.part, str(f.what)) for f in summary.findings if f.part not in results]
        page = quality_page(shown, os.fspath(source), limits, failed=failed)
        write_file(Path(root) / REPORT, page)
    summary.report = os.path.join(os.fspath(target), REPORT)
    return summary


def _bytes(day: SymbolDay) -> int:
    """Size of the records of a day; the files have their full size from the start."""
    queues = [status(log.path) for log in day.logs.values() if log.kind == "queue"]
    return sum(seen.end_segment * seen.segment_bytes + seen.end_offset for seen in queues)


class _MeasureTask:
    """Measures a day and writes its tables; in a task."""

    def __init__(self, target: str, limits: QualityLimits, instruments: str | None) -> None:
        self._target, self._limits, self._instruments = target, limits, instruments

    def __call__(self, part: JobPart) -> PartResult:
        day: SymbolDay = part.work
        found = measure_day(day, self._limits, self._instruments)
        size = sum(
            write_parquet(_file(self._target, name, day), table)
            for name, table in found.tables.items()
        )
        drift = found.measures.drift
        return PartResult(
            rows=found.measures.records,
            bytes=size,
            findings=[
                JobFinding(
                    part.name,
                    one["what"],
                    day.logs[one["stream"]].path if one["kind"] == "damage" else "",
                    "damage" if one["kind"] == "damage" else "finding",
                )
                for one in found.findings
            ],
            counts={
                "gaps": len(found.gaps),
                "snapshots_compared": drift.compared if drift is not None else 0,
            },
            outputs=[str(_file(".", name, day)) for name in TABLES],
        )


class _PictureTask:
    """Writes the book of a measured day at some hundreds of points; in a task."""

    def __init__(self, target: str, instruments: str | None) -> None:
        self._target, self._instruments = target, instruments

    def __call__(self, part: JobPart) -> PartResult:
        day: SymbolDay = part.work
        [facts] = pq.ParquetFile(_file(self._target, "days", day)).read().to_pylist()
        begin = facts["book_begin_ns"]
        if begin is None:
            return PartResult()
        sample = span_for(begin, begin + facts["book_ns"])
        table = day_book(day, sample, PICTURE_LEVELS, begin_ns=begin, instruments=self._instruments)
        path = _file(self._target, PICTURE, day)
        return PartResult(bytes=write_parquet(path, table), outputs=[str(_file(".", PICTURE, day))])


def _file(target: str, table: str, day: SymbolDay) -> Path:
    # Spark ignores directories that begin with an underscore: pictures are not a table.
    directory = f"_{table}" if table == PICTURE else table
    return partition_directory(Path(target) / directory, day) / "part.parquet"


def _read_day(root: str, day: SymbolDay, drawn: bool) -> DayReport:
    """The tables of a day, for the page."""

    def rows(table: str) -> list[dict[str, Any]]:
        read: list[dict[str, Any]] = pq.ParquetFile(_file(root, table, day)).read().to_pylist()
        return read

    picture = None
    path = _file(root, PICTURE, day)
    if drawn and path.exists():
        columns = pq.ParquetFile(path).read().to_pydict()
        picture = BookPicture.of(day.title, columns)
    [facts] = rows("days")
    return DayReport(
        day.venue,
        day.symbol,
        day.date,
        facts,
        rows("findings"),
        rows("gaps"),
        rows("spans"),
        rows("clocks"),
        rows("clock_times") if picture is not None else [],
        picture if picture is not None and len(picture) else None,
    )
