"""`bars`: trades into time, tick, volume and dollar bars."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from tapewire.bars import BarSpec, day_bars
from tapewire.scan.options import ReadOptions
from tapewire.scan.symbol_days import SymbolDay, days_of, on_dates, symbols_option
from tapewire.spark.jobs.day_tables import (
    KEYS,
    read_days,
    refuse_live_days,
    utc_date,
    write_day_tables,
)
from tapewire.spark.jobs.progress import Progress
from tapewire.spark.jobs.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["bars"]

JOB = "bars"
STREAM = "trades"
_DDL = (
    "venue STRING, date STRING, symbol STRING, bar BIGINT, start_ns BIGINT, end_ns BIGINT, "
    "open BIGINT, high BIGINT, low BIGINT, close BIGINT, volume DECIMAL(38,0), "
    "buy_volume DECIMAL(38,0), notional DECIMAL(38,0), trades BIGINT, vwap DOUBLE, "
    "price_scale INT, size_scale INT, complete BOOLEAN"
)
_WANTED = "seq,timestamp_ns,venue,symbol,price,size,price_scale,size_scale,side,queue"


def bars(
    spark: SparkSession,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    kind: str = "time",
    size: str | int | float | Decimal = "1m",
    symbols: Iterable[str] | None = None,
    dates: Iterable[str] | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Compute bars of the trades of an archive: Parquet by venue, date and symbol.

    Trades are ordered by time received, log and sequence number. Bars start over with each UTC day,
    so days are computed separately and in any order. Prices and sums are exact scaled integers. The
    rows are the same for any number of partitions.

    Args:
        spark: The session.
        source: An archive with logs of trades.
        target: Directory for the table.
        kind: "time", "tick", "volume" or "dollar".
        size: Size of a bar: for time bars an interval that divides a day ("1s", "5m"), otherwise a
            number of trades, a volume, or a notional (price times size).
        symbols: Only these symbols, as SYMBOL or VENUE:SYMBOL.
        dates: Only these days, ``YYYY-MM-DD``.
        progress: Shows the progress.

    Example:
        >>> from tapewire import spark as tws
        >>> spark = tws.session()  # doctest: +SKIP
        >>> tws.jobs.bars(spark, "clean/", "bars/", kind="volume", size="10")  # doctest: +SKIP
    """
    started = time.monotonic()
    spec = BarSpec.parse(kind, size)
    options = ReadOptions(symbols=symbols_option(symbols))
    days = [day for day in on_dates(days_of(source, options), dates) if STREAM in day.logs]
    refuse_live_days(days, source)
    summary = Summary(JOB, os.fspath(source), os.fspath(target))

    def rows_of(date: str, group: Sequence[SymbolDay]) -> DataFrame:
        return _rows(spark, os.path.abspath(os.fspath(source)), date, group, spec)

    write_day_tables(
        spark,
        JOB,
        target,
        days,
        rows_of,
        streams=(STREAM,),
        options={"kind": spec.kind, "size": str(spec.size)},
        summary=summary,
        progress=progress if progress is not None else Progress(JOB, quiet=True),
    )
    summary.seconds = time.monotonic() - started
    return summary


def _rows(
    spark: SparkSession, source: str, date: str, days: Sequence[SymbolDay], spec: BarSpec
) -> DataFrame:
    trades = read_days(spark, source, "trades", date, days, columns=_WANTED)
    trades = trades.withColumn("date", utc_date())
    in_order = trades.repartition(*KEYS).sortWithinPartitions(*KEYS, "timestamp_ns", "queue", "seq")
    made = in_order.groupBy(*KEYS).applyInArrow(_Bars(spec).of_day, _DDL)
    return made.sortWithinPartitions(*KEYS, "bar")


class _Bars:
    """The bars of one symbol's day; in a task."""

    def __init__(self, spec: BarSpec) -> None:
        self._spec = spec

    def of_day(
        self, key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        return day_bars([part.as_py() for part in key], batches, self._spec)
