"""Refining in one process: the kept records of raw logs as an Arrow table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tapewire.errors import CorruptSource
from tapewire.refine.judge import (
    BY_SEQUENCE,
    BY_VENUE_EVENT,
    JUDGED_SCHEMA,
    KEPT,
    Judge,
    VenueJudge,
)
from tapewire.refine.options import RefineOptions
from tapewire.refine.owners import InstrumentKeys, instruments_beside
from tapewire.refine.raw_units import raw_logs, units_of
from tapewire.refine.split import SPLIT_SCHEMA, Split
from tapewire.refine.survey import (
    clean_log_names,
    share_clean_logs,
    survey_slice,
    survey_unit,
)

if TYPE_CHECKING:
    from tapewire.protocol.instruments import Instruments
    from tapewire.refine.survey import SliceSurvey, UnitSurvey
    from tapewire.scan.slices import Slice

__all__ = ["refined_table"]

# Arrow sorts at most 2 GiB of `binary`.
_SORTED_SCHEMA = SPLIT_SCHEMA.set(
    SPLIT_SCHEMA.get_field_index("payload"), pa.field("payload", pa.large_binary())
)
_BATCH_ROWS = 16_384


def refined_table(
    source: str | os.PathLike[str],
    options: RefineOptions | None = None,
    *,
    instruments: Instruments | None = None,
) -> pa.Table:
    """Refine raw logs in memory; the records that their clean logs would hold.

    The rows are those that `tapewire.spark.jobs.refine` writes, by clean log (venue, symbol, day,
    stream) and sequence number. Memory: all records of the source, so give it a day at a time.

    Args:
        source: A raw log, an archive or a bus with raw logs, or a glob of those.
        options: Policy for late records; None: the defaults.
        instruments: The known instruments; None: those of the files beside the logs.

    Raises:
        NotALog: There is no raw log.
        CorruptSource: A raw log is damaged, and `on_damage` is not "skip".

    Example:
        >>> import tapewire as tw
        >>> from tapewire.protocol import market
        >>> from tapewire.protocol.instruments import Instrument, Instruments
        >>> one = Instrument.of("okx", "BTC-USDT", 1, 3)
        >>> tick = market.TradeTick(5, 420_000, 7, 1, 0, 0, one.symbol_hash, one.market_id, 1, 3)
        >>> with tw.open_publisher(tmp / "raw", segment_bytes=1 << 20) as writer:
        ...     _ = writer.append(market.TRADE_TICK, bytes(tick), timestamp_ns=9)
        >>> table = refined_table(tmp / "raw", instruments=Instruments([one]))
        >>> table.select(["seq", "symbol", "stream"]).to_pylist()
        [{'seq': 0, 'symbol': 'BTC-USDT', 'stream': 'trades'}]
    """
    options = RefineOptions() if options is None else options
    logs = raw_logs(source)
    if instruments is None:
        keys = InstrumentKeys.of_files(instruments_beside([log.path for log in logs]))
    else:
        keys = InstrumentKeys(instruments)
    surveys: list[UnitSurvey] = []
    source_index = 0
    for unit in units_of(logs):
        unit.plan(options.reading, 1)
        seen = [[_surveyed(part, keys, options) for part in parts] for parts in unit.slices]
        surveys.append(survey_unit(unit, seen, source_index))
        source_index += len(unit.logs)
    names = sorted(clean_log_names(surveys, options), key=lambda name: name.split("/"))
    split = Split(keys, {name: index for index, name in enumerate(names)}, options)
    batches = (batch for found in surveys for raw in found.slices for batch in split.rows(raw))
    rows = pa.Table.from_batches((batch.cast(_SORTED_SCHEMA) for batch in batches), _SORTED_SCHEMA)
    if share_clean_logs(surveys):
        rows = _judged(rows, BY_VENUE_EVENT, VenueJudge(), _SORTED_SCHEMA)
    rows = _judged(rows, BY_SEQUENCE, Judge(names, options.late == "drop"), JUDGED_SCHEMA)
    return rows.filter(pc.equal(rows["verdict"], KEPT)).drop_columns(["verdict"])


def _surveyed(part: Slice, keys: InstrumentKeys, options: RefineOptions) -> SliceSurvey:
    seen = survey_slice(part, keys, options.reading)
    if seen.error is not None:
        raise CorruptSource(seen.error, path=seen.path)
    return seen


def _judged(
    rows: pa.Table,
    order: tuple[str, ...],
    judge: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> pa.Table:
    if not rows.num_rows:
        return schema.empty_table()
    ordered = rows.sort_by([(name, "ascending") for name in order])
    # `take` copies: the offsets of a slice do not fit `binary` if it is far into the table.
    batches = (
        batch.take(pa.array(range(batch.num_rows))).cast(SPLIT_SCHEMA)
        for batch in ordered.to_batches(_BATCH_ROWS)
    )
    return pa.Table.from_batches((batch.cast(schema) for batch in judge(batches)), schema)
