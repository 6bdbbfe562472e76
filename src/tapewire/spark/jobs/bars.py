"""`bars`: trades into time, tick, volume and dollar bars."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapewire.errors import TapewireError
from tapewire.spark.jobs.bar_builder import Bar, BarBuilder, BarSpec
from tapewire.spark.jobs.day_tables import (
    KEYS,
    read_days,
    refuse_live_days,
    utc_date,
    write_day_tables,
)
from tapewire.spark.jobs.days import Day, chosen, days_of, symbols_option
from tapewire.spark.jobs.progress import Progress
from tapewire.spark.jobs.summary import Summary
from tapewire.spark.reading.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SCHEMA", "bars"]

JOB = "bars"
STREAM = "trades"
_EXACT = pa.decimal128(38, 0)
SCHEMA = pa.schema(
    [
        pa.field("venue", pa.string()),
        pa.field("date", pa.string()),
        pa.field("symbol", pa.string()),
        pa.field("bar", pa.int64()),
        pa.field("start_ns", pa.int64()),
        pa.field("end_ns", pa.int64()),
        *(pa.field(name, pa.int64()) for name in ("open", "high", "low", "close")),
        *(pa.field(name, _EXACT) for name in ("volume", "buy_volume", "notional")),
        pa.field("trades", pa.int64()),
        pa.field("vwap", pa.float64()),
        pa.field("price_scale", pa.int32()),
        pa.field("size_scale", pa.int32()),
        pa.field("complete", pa.bool_()),
    ]
)
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
    """Make bars of the trades of an archive: Parquet by venue, date and symbol.

    Trades count in the order of the tape: time received, log, number. Bars begin anew with each UTC
    day, so days are made apart and in any order. Prices and sums are exact scaled integers. The
    same rows come out for any number of partitions.

    Args:
        spark: The session.
        source: An archive with logs of trades.
        target: Where the table goes.
        kind: "time", "tick", "volume" or "dollar".
        size: Of time bars a span that divides a day ("1s", "5m"); else how many trades, how much
            size, or how much money (price times size).
        symbols: Only these; SYMBOL or VENUE:SYMBOL.
        dates: Only these days, ``YYYY-MM-DD``.
        progress: Shows how far it is.

    Example:
        >>> from tapewire import spark as tws
        >>> spark = tws.session()  # doctest: +SKIP
        >>> tws.jobs.bars(spark, "clean/", "bars/", kind="volume", size="10")  # doctest: +SKIP
    """
    started = time.monotonic()
    spec = BarSpec.parse(kind, size)
    options = ReadOptions(symbols=symbols_option(symbols))
    days = [day for day in chosen(days_of(source, options), dates) if STREAM in day.logs]
    refuse_live_days(days, source)
    summary = Summary(JOB, os.fspath(source), os.fspath(target))

    def rows_of(date: str, group: Sequence[Day]) -> DataFrame:
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
    spark: SparkSession, source: str, date: str, days: Sequence[Day], spec: BarSpec
) -> DataFrame:
    trades = read_days(spark, source, "trades", date, days, columns=_WANTED)
    trades = trades.withColumn("date", utc_date())
    in_order = trades.repartition(*KEYS).sortWithinPartitions(*KEYS, "timestamp_ns", "queue", "seq")
    made = in_order.groupBy(*KEYS).applyInArrow(_Bars(spec).of_day, _DDL)
    return made.sortWithinPartitions(*KEYS, "bar")


class _Bars:
    """The bars of one symbol's day; on a worker."""

    def __init__(self, spec: BarSpec) -> None:
        self._spec = spec

    def of_day(
        self, key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        builder: BarBuilder | None = None
        scales, count = (0, 0), 0
        names = [part.as_py() for part in key]
        for batch in batches:
            if not batch.num_rows:
                continue
            found = _scales(batch)
            if builder is None:
                scales = found[0]
                builder = BarBuilder(self._spec, *scales)
            if found != [scales]:
                raise TapewireError(
                    f"the scales of trades change within a day: {'/'.join(names)}, "
                    f"price_scale and size_scale are {scales} and {found[-1]}"
                )
            made = builder.add(
                batch["timestamp_ns"].to_numpy(),
                batch["price"].to_numpy(),
                batch["size"].to_numpy(),
                pc.fill_null(pc.equal(batch["side"], "buy"), False).to_numpy(zero_copy_only=False),
            )
            if made:
                yield _batch(names, count, made, scales)
                count += len(made)
        last = builder.finish() if builder is not None else None
        if last is not None:
            yield _batch(names, count, [last], scales)


def _scales(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    """Every pair of scales there is in a batch."""
    pairs = np.column_stack([batch[name].to_numpy() for name in ("price_scale", "size_scale")])
    return [(int(a), int(b)) for a, b in np.unique(pairs, axis=0).tolist()]


def _batch(
    names: list[str], first: int, made: list[Bar], scales: tuple[int, int]
) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        name: [value] * len(made) for name, value in zip(KEYS, names, strict=True)
    }
    columns["bar"] = list(range(first, first + len(made)))
    for field in Bar.__dataclass_fields__:
        values = [getattr(bar, field) for bar in made]
        exact = SCHEMA.field(field).type == _EXACT
        columns[field] = [Decimal(value) for value in values] if exact else values
    columns["vwap"] = [bar.vwap(scales[0]) for bar in made]
    columns["price_scale"] = [scales[0]] * len(made)
    columns["size_scale"] = [scales[1]] * len(made)
    try:
        return pa.RecordBatch.from_pydict(columns, SCHEMA)
    except pa.ArrowInvalid as error:
        raise TapewireError(f"a bar of {'/'.join(names)} is beyond 38 digits: {error}") from None
