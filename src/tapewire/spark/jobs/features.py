"""`features`: tables of features of books and trades, by venue, date and symbol."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire.archive.job_marks import JobMarks
from tapewire.errors import InvalidOption
from tapewire.page import write_file
from tapewire.page.features_report import DayFeatures, FeatureFacts, features_page
from tapewire.page.picture import PICTURE_LEVELS, PICTURE_POINTS, BookPicture, span_for
from tapewire.page.plots import Series
from tapewire.replay.row_stream import look_back_ns
from tapewire.scan.options import ReadOptions
from tapewire.scan.symbol_days import (
    REPORT,
    SymbolDay,
    days_of,
    on_dates,
    partition_directory,
    symbols_option,
)
from tapewire.spark.jobs.day_tables import (
    KEYS,
    read_days,
    refuse_live_days,
    utc_date,
    write_day_tables,
)
from tapewire.spark.jobs.progress import Progress
from tapewire.spark.jobs.summary import Summary
from tapewire.spark.views.features import names_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tapewire.spark.jobs.parts import PartResult

__all__ = ["features"]

JOB = "features"
STREAMS = ("book", "trades")
PLOTS = 6


def features(
    spark: SparkSession,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    names: Iterable[str] | None = None,
    sample: str = "1s",
    symbols: Iterable[str] | None = None,
    dates: Iterable[str] | None = None,
    instruments: str | None = None,
    plots: int = PLOTS,
    progress: Progress | None = None,
) -> Summary:
    """Compute features of an archive: Parquet by venue, date and symbol, and ``_report.html``.

    The book and the trades of a symbol are replayed together, ordered by time received. Rows are
    sorted by time within each file, and are identical to the bit for any number of partitions.

    Args:
        spark: The session.
        source: An archive with clean logs.
        target: Directory for the table.
        names: Features, as listed by `replay.describe_features`; None: all of them.
        sample: When there is a row: "event", "trade", or an interval such as "1s".
        symbols: Only these symbols, as SYMBOL or VENUE:SYMBOL.
        dates: Only these days, ``YYYY-MM-DD``.
        instruments: Path of an `instruments.json`; None: the files nearest to the logs.
        plots: Number of days in the report's plots: those with the most rows.
        progress: Shows the progress.

    Example:
        >>> from tapewire import spark as tws
        >>> spark = tws.session()  # doctest: +SKIP
        >>> tws.jobs.features(spark, "clean/", "features/", names=["mid", "ofi"])  # doctest: +SKIP
    """
    started = time.monotonic()
    asked = None if names is None else tuple(names)
    if asked == ():
        raise InvalidOption("names is empty", hint="replay.describe_features() lists the features")
    options = ReadOptions(
        view="features",
        sample=sample,
        symbols=symbols_option(symbols),
        instruments=instruments,
        features=asked,
    )
    columns = names_of(options)
    look_back_ns(columns, sample)  # raises if a name or the sample is invalid
    days = [
        day
        for day in on_dates(days_of(source, options), dates)
        if any(stream in day.logs for stream in STREAMS)
    ]
    refuse_live_days(days, source)
    summary = Summary(JOB, os.fspath(source), os.fspath(target))
    views = _Views(spark, os.path.abspath(os.fspath(source)), instruments)

    def rows_of(date: str, group: Sequence[SymbolDay]) -> DataFrame:
        rows = views.load("features", date, group, sample=sample, features=",".join(columns))
        return _keep_order(rows.withColumn("date", utc_date()))

    made_with = {"names": list(columns), "sample": sample, "instruments": instruments}
    progress = progress if progress is not None else Progress(JOB, quiet=True)
    results = write_day_tables(
        spark,
        JOB,
        target,
        days,
        rows_of,
        streams=STREAMS,
        options=made_with,
        summary=summary,
        progress=progress,
    )
    root = Path(os.path.abspath(os.fspath(target)))
    plotter = _DayPlotter(views, root, columns)
    done = [(day, results[day.name]) for day in days if day.name in results]
    shown_with = {**made_with, "plots": plots, "source": os.fspath(source)}
    _report(root / REPORT, done, plotter, shown_with, progress, changed=bool(summary.done))
    summary.seconds = time.monotonic() - started
    summary.report = os.path.join(os.fspath(target), REPORT)
    return summary


def _report(
    path: Path,
    days: Sequence[tuple[SymbolDay, PartResult]],
    plotter: _DayPlotter,
    options: Mapping[str, Any],
    progress: Progress,
    *,
    changed: bool,
) -> None:
    """Write the page, unless it exists for the same days and options.

    The next run also writes a page that was not written because of a kill.
    """
    facts = [
        FeatureFacts(day.venue, day.symbol, day.date, result.rows, result.bytes)
        for day, result in days
    ]
    inputs = [asdict(fact) for fact in facts]
    done = JobMarks(path.parent, f"{JOB}_report")
    if not changed and path.exists() and done.current("report", inputs, options):
        return
    largest = sorted(days, key=lambda each: -each[1].rows)[: options["plots"]]
    drawn = [day for day, result in largest if result.rows]
    progress.expect(parts=len(drawn))
    pictures = []
    for day in drawn:
        pictures.append(plotter.plot(day))
        progress.add(parts=1)
    page = features_page(facts, pictures, plotter.names, options["sample"], options["source"])
    write_file(path, page)
    done.write("report", inputs, options, {})


def _keep_order(rows: DataFrame) -> DataFrame:
    """Rows by `KEYS` in the order of the source, by time, which the writer's sort may not keep."""
    from pyspark.sql import functions as F

    numbered = rows.withColumn("_row", F.monotonically_increasing_id())
    return numbered.sortWithinPartitions(*KEYS, "_row").drop("_row")


class _Views:
    """Reads views of days of one source."""

    def __init__(self, spark: SparkSession, source: str, instruments: str | None) -> None:
        self.spark, self._source = spark, source
        self._options = {} if instruments is None else {"instruments": instruments}

    def load(self, view: str, date: str, days: Sequence[SymbolDay], **options: str) -> DataFrame:
        """The rows of these symbols on one day."""
        return read_days(self.spark, self._source, view, date, days, **options, **self._options)


class _DayPlotter:
    """Prepares the plots of a day: some hundreds of points, however many rows the day has."""

    def __init__(self, views: _Views, target: Path, names: Sequence[str]) -> None:
        self._views, self._target, self.names = views, target, names

    def plot(self, day: SymbolDay) -> DayFeatures:
        """The book and the features of a day."""
        from pyspark.sql import functions as F

        rows = self._views.spark.read.parquet(os.fspath(partition_directory(self._target, day)))
        edges = rows.agg(F.min("timestamp_ns"), F.max("timestamp_ns"), F.count("*")).collect()[0]
        begin, end, count = int(edges[0]), int(edges[1]), int(edges[2])
        series, known = self._series(rows, begin, end)
        return DayFeatures(
            day.title,
            count,
            series,
            {name: known[name] / count for name in self.names},
            self._picture(day, begin, end),
        )

    def _series(self, rows: DataFrame, begin: int, end: int) -> tuple[list[Series], dict[str, int]]:
        from pyspark.sql import functions as F

        width = max(1, -(-(end - begin + 1) // PICTURE_POINTS))
        place = F.expr(f"(timestamp_ns - {begin}L) div {width}L").alias("place")
        columns = [
            function(name).alias(f"{label} {name}")
            for name in self.names
            for label, function in (
                ("low", F.min),
                ("mean", F.mean),
                ("high", F.max),
                ("known", F.count),
            )
        ]
        found = rows.groupBy(place).agg(*columns).orderBy("place").toArrow()
        times = begin + found["place"].to_numpy() * width
        series = [
            Series(
                name,
                times,
                *(
                    found[f"{label} {name}"].to_numpy().astype(np.float64)
                    for label in ("low", "mean", "high")
                ),
            )
            for name in self.names
        ]
        known = {name: int(np.sum(found[f"known {name}"].to_numpy())) for name in self.names}
        return series, known

    def _picture(self, day: SymbolDay, begin: int, end: int) -> BookPicture | None:
        if "book" not in day.logs:
            return None
        grid: dict[str, str] = {"sample": span_for(begin, end), "levels": str(PICTURE_LEVELS)}
        table = self._views.load("book", day.date, [day], **grid).toArrow()
        columns: dict[str, Any] = table.sort_by("timestamp_ns").to_pydict()
        picture = BookPicture.of(day.title, columns)
        return picture if len(picture) > 1 else None
