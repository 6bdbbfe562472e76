"""The view `gaps`: what is missing in the logs, by their ledgers and by reading them through."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tapewire.book.gaps import GapLedger
from tapewire.damage import Passed
from tapewire.log import open_log
from tapewire.spark import schemas, slices
from tapewire.spark.reading import batches

if TYPE_CHECKING:
    from tapewire.spark.logs import LogRef
    from tapewire.spark.options import ReadOptions
    from tapewire.spark.slices import Slice

__all__ = ["LedgerPart", "plan", "read", "schema"]

_NAMES = tuple(column.name for column in schemas.GAPS)
_BIGINT_MAX = 2**63 - 1


@dataclass(frozen=True)
class LedgerPart(InputPartition):
    """The ledger of one log, as far as it is of these records."""

    log: LogRef
    seq_from: int
    seq_to: int
    bytes: int = 1


def schema(options: ReadOptions, logs: Sequence[LogRef]) -> Sequence[schemas.Column]:
    """The fields of a gap in the ledger, and the log."""
    return schemas.GAPS


def plan(options: ReadOptions, logs: Sequence[LogRef], wanted: int) -> list[Any]:
    """Of each log its ledger, then its records in slices."""
    passing = options.replace(on_damage="skip")
    parts: list[Any] = []
    for log in logs:
        found = slices.plan([log], passing, max(1, wanted // len(logs)))
        if found:
            parts.append(LedgerPart(log, *_ledger_range(found, options)))
        parts += found
    return parts


def _ledger_range(found: list[Slice], options: ReadOptions) -> tuple[int, int]:
    """The numbers at which gaps are of interest; all where nothing was chosen by number or time."""
    low = found[0].seq_from if (options.seq_from or options.time_from is not None) else 0
    chosen = options.seq_to is not None or options.time_to is not None
    return low, found[-1].seq_to if chosen else slices.END


def read(part: LedgerPart | Slice, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The gaps of one part. Damage is what is looked for: it never raises here."""
    rows = list(_of_ledger(part) if isinstance(part, LedgerPart) else _of_records(part, options))
    if options.symbols is not None:
        rows = [row for row in rows if _chosen(row, options)]
    if rows:
        yield _table(rows, options.columns or _NAMES)


def _of_ledger(part: LedgerPart) -> Iterator[dict[str, Any]]:
    scan = GapLedger(part.log.path).scan()
    for gap in scan.gaps:
        if part.seq_from <= gap.seq < part.seq_to:
            yield {"queue": part.log.name, **dataclasses.asdict(gap)}
    if scan.damaged_count:
        first = scan.damaged[0]
        yield _row(
            part.log,
            kind="ledger",
            cause=f"{scan.damaged_count} lines of gaps.jsonl are damaged, the first: "
            f"line {first.line}: {first.why}",
            action="passed over",
        )


def _of_records(part: Slice, options: ReadOptions) -> Iterator[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    told = {
        (gap.first, gap.last)
        for gap in GapLedger(part.log.path).scan().gaps
        if gap.kind == "record"
    }

    def note(lost: Passed) -> None:
        known = lost.first is not None and lost.last is not None and lost.last >= lost.first
        if known and (lost.first, lost.last) in told:
            return  # the ledger has it, and says more
        found.append(
            _row(
                part.log,
                kind="record",
                first=lost.first if known else None,
                last=lost.last if known else None,
                cause=lost.what,
                action="skipped",
            )
        )

    settled = 0
    for batch in batches(part, options.replace(on_damage="skip"), note):
        for row in found[settled:]:
            row.update(seq=int(batch.seq[0]), timestamp_ns=int(batch.timestamp_ns[0]))
        settled = len(found)
    if settled < len(found) and part.count is None:
        # What comes behind is of the next slice: look it up, so that cuts change no row.
        behind = _at(part)
        for row in found[settled:]:
            row.update(behind)
    yield from found


def _at(part: Slice) -> dict[str, Any]:
    with open_log(part.log.path) as reader:
        record = reader.next() if reader.seek_seq(part.seq_to) else None
    if record is None:
        return {}
    return {"seq": record.seq, "timestamp_ns": record.timestamp_ns}


def _row(log: LogRef, **values: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(_NAMES)
    row |= {"queue": log.name, "venue": log.venue, "symbol": log.symbol, "stream": log.stream}
    return row | values


def _chosen(row: dict[str, Any], options: ReadOptions) -> bool:
    """A gap of the whole log is one of every symbol in it."""
    if not row["symbol"] or options.symbols is None:
        return True
    return any(
        symbol == row["symbol"] and venue in (None, row["venue"])
        for venue, symbol in options.symbols
    )


def _table(rows: list[dict[str, Any]], names: Sequence[str]) -> pa.RecordBatch:
    arrow = schemas.arrow_schema(schemas.GAPS)
    columns = []
    for name in names:
        kind = arrow.field(name).type
        if name == "timestamp":
            micros = [
                None if row["timestamp_ns"] is None else row["timestamp_ns"] // 1000 for row in rows
            ]
            columns.append(pa.array(micros, pa.int64()).view(kind))
            continue
        values = [row[name] for row in rows]
        if name in ("first", "last", "seq"):
            # A number beyond BIGINT is told by the cause alone.
            values = [None if v is None or v > _BIGINT_MAX else v for v in values]
        if name in ("venue", "symbol", "stream"):
            values = [value or None for value in values]
        columns.append(pa.array(values, kind))
    return pa.record_batch(columns, names=list(names))
