"""`quality`: what a tape is worth, as tables and as a page."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tapewire.archive.atomic_directories import AtomicDirectories
from tapewire.book.gaps import KINDS, Gap
from tapewire.page import write_file
from tapewire.page.picture import PICTURE_LEVELS, BookPicture, span_for
from tapewire.quality import DayLogs, DayMeasures, QualityLimits, measure
from tapewire.quality.findings import TABLES, findings_of, rows_of
from tapewire.quality.report import DayReport, quality_page
from tapewire.queue.status import status
from tapewire.replay import book_rows
from tapewire.scan import gaps as gaps_view
from tapewire.scan.options import ReadOptions
from tapewire.scan.symbol_days import (
    REPORT,
    Day,
    chosen,
    days_of,
    folder_of,
    input_of,
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
    """Measure clean logs, a symbol's day at a time; tables below `target`, and ``_report.html``.

    Found is: what is missing, books that are crossed, locked or not to be trusted, clocks that
    disagree or drift, late records, and books that differ from the venue's own snapshots. Each is
    a finding of the summary, whose exit code is then 1.

    Args:
        spark: The session.
        source: An archive or a bus with clean logs.
        target: Where the tables go: days, clocks, clock_times, spans, snapshots, gaps, findings,
            each by venue, date and symbol.
        symbols: Only these; SYMBOL or VENUE:SYMBOL.
        dates: Only these days, ``YYYY-MM-DD``.
        late: A record is late that came longer after its exchange time ("10s").
        behind: How much a record's time may be before one already on the tape (0).
        early: How much a record may come before its exchange time (0).
        clock_drift: How far the shortest ways of two hours may be apart ("250ms").
        levels: How many levels of a venue's snapshot are compared (25).
        instruments: Path of an `instruments.json`; None takes those above the logs.
        plots: How many symbols' days the report draws: the largest.
        progress: Shows how far it is.

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
    days = chosen(days_of(source, options), dates)
    drawn = sorted((day for day in days if "book" in day.logs), key=_bytes, reverse=True)[:plots]
    summary = Summary(JOB, os.fspath(source), os.fspath(target))
    root = os.path.abspath(os.fspath(target))
    progress = progress if progress is not None else Progress(JOB, quiet=True)
    parts = {
        day.name: JobPart(
            day.name,
            tuple(input_of(log) for log in (*day.logs.values(), *day.before[-1:])),
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
            _Measure(root, limits, instruments),
            options={**limits.to_dict(), "instruments": instruments},
            summary=summary,
            progress=progress,
        )
        summary.seconds = time.monotonic() - started
        # Parts of their own: that another day is larger now is no reason to measure this one anew.
        pictures = run_parts(
            spark,
            PICTURE,
            root,
            [parts[day.name] for day in drawn if day.name in results],
            _Draw(root, instruments),
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


def _bytes(day: Day) -> int:
    """What the records of a day take; files are as long from the beginning on."""
    queues = [status(log.path) for log in day.logs.values() if log.kind == "queue"]
    return sum(seen.end_segment * seen.segment_bytes + seen.end_offset for seen in queues)


class _Measure:
    """Measures a day and writes its tables; on a worker."""

    def __init__(self, target: str, limits: QualityLimits, instruments: str | None) -> None:
        self._target, self._limits, self._instruments = target, limits, instruments

    def __call__(self, part: JobPart) -> PartResult:
        day: Day = part.work
        found = measure(_logs_of(day, self._instruments), self._limits)
        gaps = _gaps(day, found)
        findings = findings_of(found, gaps, self._limits)
        size = 0
        for name, rows in rows_of(found, gaps, findings).items():
            table = pa.Table.from_pylist(rows, TABLES[name])
            size += write_parquet(_file(self._target, name, day), table)
        return PartResult(
            rows=found.records,
            bytes=size,
            findings=[
                JobFinding(
                    part.name,
                    one["what"],
                    day.logs[one["stream"]].path if one["kind"] == "damage" else "",
                    "damage" if one["kind"] == "damage" else "finding",
                )
                for one in findings
            ],
            counts={"gaps": len(gaps), "snapshots_compared": _compared(found)},
            outputs=[str(_file(".", name, day)) for name in TABLES],
        )


class _Draw:
    """The book of a day that was measured, at some hundred points; on a worker."""

    def __init__(self, target: str, instruments: str | None) -> None:
        self._target, self._instruments = target, instruments

    def __call__(self, part: JobPart) -> PartResult:
        day: Day = part.work
        [facts] = pq.ParquetFile(_file(self._target, "days", day)).read().to_pylist()
        if facts["book_begin_ns"] is None:
            return PartResult()
        begin, end = facts["book_begin_ns"], facts["book_begin_ns"] + facts["book_ns"]
        table = _picture(_logs_of(day, self._instruments), begin, end)
        path = _file(self._target, PICTURE, day)
        return PartResult(bytes=write_parquet(path, table), outputs=[str(_file(".", PICTURE, day))])


def _logs_of(day: Day, instruments: str | None) -> DayLogs:
    return DayLogs(
        day.venue,
        day.symbol,
        {stream: log.path for stream, log in day.logs.items()},
        tuple(log.path for log in day.before),
        instruments,
    )


def _compared(found: DayMeasures) -> int:
    return found.drift.compared if found.drift is not None else 0


def _file(target: str, table: str, day: Day) -> Path:
    # Spark passes over folders that begin with a line: pictures are no table.
    folder = f"_{table}" if table == PICTURE else table
    return folder_of(Path(target) / folder, day) / "part.parquet"


def _gaps(day: Day, found: DayMeasures) -> list[Gap]:
    """What the ledgers and the records say is missing, and what the book missed besides."""
    gaps: dict[Any, Gap] = {}
    logs = list(day.logs.values())
    options = ReadOptions(view="gaps")
    for part in gaps_view.plan(options, logs, len(logs)):
        if isinstance(part, gaps_view.BookPart):
            continue  # the books were replayed: `found` has what they miss
        for batch in gaps_view.read(part, options):
            for row in batch.to_pylist():
                gap = _gap(row)
                gaps.setdefault(gap.key, gap)
    known = {(gap.first, gap.last) for gap in gaps.values()}
    for first, last, cause, seq, timestamp_ns in found.gaps:
        if (first, last) not in known:
            known.add((first, last))
            gap = Gap("venue", day.venue, day.symbol, "book", first, last, seq, timestamp_ns, cause)
            gaps[gap.key] = gap
    return sorted(gaps.values(), key=lambda gap: (gap.timestamp_ns, gap.first))


def _gap(row: Mapping[str, Any]) -> Gap:
    kind, cause = row["kind"], row["cause"] or ""
    if kind not in KINDS:  # a damaged ledger
        kind, cause = "parse", f"{kind}: {cause}"[:256]
    return Gap(
        kind,
        row["venue"] or "",
        row["symbol"] or "",
        row["stream"] or "",
        row["first"] or 0,
        row["last"] or 0,
        row["seq"] or 0,
        row["timestamp_ns"] or 0,
        cause,
        row["action"] or "",
    )


def _picture(logs: DayLogs, begin: int, end: int) -> pa.Table:
    tape = [*logs.before, logs.streams["book"]]
    return book_rows(
        tape,
        PICTURE_LEVELS,
        span_for(begin, end),
        symbols=[f"{logs.venue}:{logs.symbol}"],
        time_from=begin,
        skip_damaged=True,
        **_instruments_of(logs),
    )


def _instruments_of(logs: DayLogs) -> dict[str, Any]:
    from tapewire.protocol.instruments import Instruments

    return {} if logs.instruments is None else {"instruments": Instruments.load(logs.instruments)}


def _read_day(root: str, day: Day, drawn: bool) -> DayReport:
    """What the tables say of a day, for the page."""

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
