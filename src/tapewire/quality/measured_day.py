"""The quality tables of one symbol's day, from its logs in an archive or on a bus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tapewire.book.gaps import KINDS, Gap
from tapewire.protocol.instruments import Instruments
from tapewire.quality.findings import TABLES, findings_of, rows_of
from tapewire.quality.limits import QualityLimits
from tapewire.quality.measure import DayLogs, DayMeasures, measure
from tapewire.replay import book_rows
from tapewire.scan import gaps as gaps_view
from tapewire.scan.options import ReadOptions

if TYPE_CHECKING:
    from tapewire.scan.symbol_days import SymbolDay

__all__ = ["MeasuredDay", "day_book", "measure_day"]


@dataclass(frozen=True)
class MeasuredDay:
    """The measures of one symbol's day.

    Attributes:
        measures: What `measure` found.
        gaps: Gaps of the ledgers, of the records and of the book.
        findings: What needs attention, as rows of the table `findings`.
    """

    measures: DayMeasures
    gaps: list[Gap] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def tables(self) -> dict[str, pa.Table]:
        """The tables of `quality.findings.TABLES`, by name."""
        rows = rows_of(self.measures, self.gaps, self.findings)
        return {name: pa.Table.from_pylist(rows[name], schema) for name, schema in TABLES.items()}


def measure_day(
    day: SymbolDay, limits: QualityLimits | None = None, instruments: str | None = None
) -> MeasuredDay:
    """Measure one symbol's day; the tables that the job `quality` writes.

    Args:
        day: The day, as `scan.days_of` lists it.
        limits: What counts as a finding; None: the defaults.
        instruments: Path of an `instruments.json`; None: the file nearest to the log.

    Example:
        >>> import tapewire as tw
        >>> from tapewire import bus, scan
        >>> from tapewire.protocol import market
        >>> where = bus.ArchiveLayout(tmp).log("okx", "BTC-USDT", "2024-01-01", "trades")
        >>> start_ns = 1_704_067_200 * 10**9
        >>> tick = market.TradeTick(start_ns, 420_000, 7, 1, 0, 0, 5, 6, 1, 3)
        >>> with tw.open_publisher(where, segment_bytes=1 << 20) as writer:
        ...     _ = writer.append(market.TRADE_TICK, bytes(tick), timestamp_ns=start_ns + 1000)
        >>> [day] = scan.days_of(tmp, scan.ReadOptions())
        >>> found = measure_day(day)
        >>> found.measures.records, found.findings
        (1, [])
        >>> found.tables["clocks"].select(["stream", "p50_ns"]).to_pylist()
        [{'stream': 'trades', 'p50_ns': 1000}]
    """
    limits = QualityLimits() if limits is None else limits
    found = measure(_logs_of(day, instruments), limits)
    gaps = _gaps(day, found)
    return MeasuredDay(found, gaps, findings_of(found, gaps, limits))


def day_book(
    day: SymbolDay,
    sample: str,
    levels: int,
    *,
    begin_ns: int | None = None,
    instruments: str | None = None,
) -> pa.Table:
    """Rows of the day's book at regular times, from `begin_ns` on; damage is skipped.

    Args:
        day: A day with a book.
        sample: Interval between rows, such as "1s".
        levels: Number of levels on each side.
        begin_ns: Time of the first row; None: the first event.
        instruments: Path of an `instruments.json`; None: the file nearest to the log.
    """
    logs = [*(log.path for log in day.before), day.logs["book"].path]
    known = {} if instruments is None else {"instruments": Instruments.load(instruments)}
    return book_rows(
        logs,
        levels,
        sample,
        symbols=[f"{day.venue}:{day.symbol}"],
        time_from=begin_ns,
        skip_damaged=True,
        **known,
    )


def _logs_of(day: SymbolDay, instruments: str | None) -> DayLogs:
    return DayLogs(
        day.venue,
        day.symbol,
        {stream: log.path for stream, log in day.logs.items()},
        tuple(log.path for log in day.before),
        instruments,
    )


def _gaps(day: SymbolDay, found: DayMeasures) -> list[Gap]:
    """The gaps of the ledgers and of the records, and those of the book that are not among them."""
    gaps: dict[Any, Gap] = {}
    logs = list(day.logs.values())
    options = ReadOptions(view="gaps")
    for part in gaps_view.plan(options, logs, len(logs)):
        if isinstance(part, gaps_view.BookPart):
            continue  # `measure` has replayed the books
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
