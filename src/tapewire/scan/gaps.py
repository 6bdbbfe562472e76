"""What is missing in logs: the rows of the view `gaps`.

There are three sources: the gap ledger of a log; its records, read for missing sequence numbers and
damage; and its books, replayed for gaps in the venue's own sequence numbers. What is in the ledger
is not reported again.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from tapewire.book.gaps import Gap, GapLedger, LedgerScan
from tapewire.damage import SkippedDamage
from tapewire.log import open_log
from tapewire.replay.names import Names
from tapewire.replay.playback import gaps_of, open_engine
from tapewire.replay.sources import Sources
from tapewire.scan import slices
from tapewire.scan.instruments import given_instruments
from tapewire.scan.slice_reader import batches

if TYPE_CHECKING:
    from tapewire.protocol.instruments import Instruments
    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions
    from tapewire.scan.slices import Slice

__all__ = [
    "SCHEMA",
    "WITHOUT_BOOKS",
    "BookPart",
    "Event",
    "LedgerPart",
    "PathNames",
    "as_batch",
    "damaged_lines",
    "event_of",
    "found_in",
    "plan",
    "read",
    "row_of",
    "rows_of_books",
]

SCHEMA = pa.schema(
    [
        pa.field("queue", pa.string(), nullable=False),
        pa.field("venue", pa.string()),
        pa.field("symbol", pa.string()),
        pa.field("stream", pa.string()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("first", pa.int64()),
        pa.field("last", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("timestamp_ns", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("cause", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
    ]
)
Event: TypeAlias = tuple[str, str, str, int, int]
_BIGINT_MAX = 2**63 - 1
WITHOUT_BOOKS = ("trades", "orders_in", "orders_out")


@dataclass(frozen=True)
class LedgerPart:
    """The part of the gap ledger of one log that concerns these sequence numbers."""

    log: LogRef
    seq_from: int
    seq_to: int
    bytes: int = 1


@dataclass(frozen=True)
class BookPart:
    """The books of one log, replayed from its first record; gaps seen at some of its records.

    Attributes:
        log: The log.
        seq_from: Only gaps seen at this sequence number or a later one,
        seq_to: and before this one.
        end: The sequence number after the last record at planning time; None if it is not known.
        bytes: Approximate size of the log in bytes.
    """

    log: LogRef
    seq_from: int
    seq_to: int
    end: int | None
    bytes: int = 1


def plan(options: ReadOptions, logs: Sequence[LogRef], wanted: int) -> list[Any]:
    """For each log: its ledger, then its records in slices, then its books."""
    skipping = options.replace(on_damage="skip")
    parts: list[Any] = []
    for log in logs:
        found = slices.plan([log], skipping, max(1, wanted // len(logs)))
        low, high = _range(found, options)
        if low < high:
            parts.append(LedgerPart(log, low, high))
        parts += found
        if found and log.stream not in WITHOUT_BOOKS:
            last = found[-1]
            end = None if last.count is not None or last.seq_to >= slices.END else last.seq_to
            parts.append(BookPart(log, low, high, end, sum(part.bytes for part in found)))
    return parts


def _range(found: list[Slice], options: ReadOptions) -> tuple[int, int]:
    """The range of sequence numbers for gaps; everything if no range is asked for."""
    if not found:
        bounds = (options.seq_from, options.seq_to, options.time_from, options.time_to)
        return 0, slices.END if bounds == (None,) * 4 else 0
    low = found[0].seq_from if (options.seq_from or options.time_from is not None) else 0
    chosen = options.seq_to is not None or options.time_to is not None
    return low, found[-1].seq_to if chosen else slices.END


def read(part: LedgerPart | BookPart | Slice, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The gaps of one part. Damage is a row here and never raises."""
    if isinstance(part, LedgerPart):
        yield from as_batch(_of_ledger(part), options)
    elif isinstance(part, BookPart):
        yield from as_batch(_of_books(part, options), options)
    else:
        yield from as_batch(found_in(part, options, GapLedger(part.log.path).read()), options)


def as_batch(rows: Iterable[dict[str, Any]], options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The rows of the symbols asked for, with the columns asked for; no batch if there are none."""
    # A gap without a symbol concerns every symbol of its log.
    chosen = [
        row for row in rows if not row["symbol"] or options.asks_for(row["venue"], row["symbol"])
    ]
    if chosen:
        yield _table(chosen, options.columns or SCHEMA.names)


def row_of(log: LogRef, gap: Gap) -> dict[str, Any]:
    """A gap from the ledger of a log as a row."""
    return {"queue": log.name, **dataclasses.asdict(gap)}


def _of_ledger(part: LedgerPart) -> Iterator[dict[str, Any]]:
    scan = GapLedger(part.log.path).scan()
    for gap in scan.gaps:
        if part.seq_from <= gap.seq < part.seq_to:
            yield row_of(part.log, gap)
    yield from damaged_lines(part.log, scan)


def _of_books(part: BookPart, options: ReadOptions) -> Iterator[dict[str, Any]]:
    """The gaps that replaying the books finds, except missing records, which `found_in` finds."""
    ledger = {event_of(gap) for gap in GapLedger(part.log.path).read()}
    with contextlib.closing(Sources(part.log.path)) as sources:
        names = PathNames(part.log, given_instruments(options), sources.directories)
        engine = open_engine(sources, names, None, seq_to=part.end, skip_damaged=True)
        engine.run()
        found = gaps_of(engine)
    yield from rows_of_books(part.log, found, ledger, part.seq_from, part.seq_to)


def rows_of_books(
    log: LogRef, found: Iterable[Gap], ledger: Iterable[Event], seq_from: int, seq_to: int
) -> Iterator[dict[str, Any]]:
    """Gaps that replaying books found in a range, except missing records and those in the ledger.

    The action is the one at the time of the gap. Whether the book recovered is recorded in the
    ledger only; here it would depend on how far the log was read.
    """
    known = set(ledger)
    for gap in sorted(found, key=lambda each: each.seq):
        if seq_from <= gap.seq < seq_to and gap.kind != "record" and event_of(gap) not in known:
            action = gap.action if gap.action == "noted" else "untrusted"
            yield row_of(log, dataclasses.replace(gap, action=action))


def event_of(gap: Gap) -> Event:
    """What identifies a gap within its log, whether it comes from the ledger or a replay."""
    return gap.kind, gap.venue, gap.symbol, gap.first, gap.last


class PathNames(Names):
    """Names of instruments; those in the log's path for an instrument that no file lists."""

    def __init__(self, log: LogRef, known: Instruments | None, directories: Iterable[str]) -> None:
        super().__init__(known, directories)
        self._log = log

    def of(self, venue_id: int, market_id: int) -> tuple[str, str]:
        """Venue and symbol."""
        venue, symbol = super().of(venue_id, market_id)
        if self.instruments.by_id(venue_id, market_id) is not None:
            return venue, symbol
        return self._log.venue or venue, self._log.symbol or symbol


def damaged_lines(log: LogRef, scan: LedgerScan) -> Iterator[dict[str, Any]]:
    """A row for the damaged lines of a ledger, if there are any."""
    if scan.damaged_count:
        first = scan.damaged[0]
        yield _row(
            log,
            kind="ledger",
            cause=f"{scan.damaged_count} lines of gaps.jsonl are damaged, the first: "
            f"line {first.line}: {first.why}",
            action="skipped",
        )


def found_in(
    part: Slice, options: ReadOptions, ledger: Iterable[Gap] = ()
) -> Iterator[dict[str, Any]]:
    """The gaps that reading a slice finds, without those in the ledger."""
    found: list[dict[str, Any]] = []
    in_ledger = {(gap.first, gap.last) for gap in ledger if gap.kind == "record"}

    def note(lost: SkippedDamage) -> None:
        known = lost.first is not None and lost.last is not None and lost.last >= lost.first
        if known and (lost.first, lost.last) in in_ledger:
            return  # the ledger has more details
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
        # The next record is in the next slice: read it, so that rows do not depend on the cuts.
        after = _record_after(part)
        for row in found[settled:]:
            row.update(after)
    yield from found


def _record_after(part: Slice) -> dict[str, Any]:
    with open_log(part.log.path) as reader:
        record = reader.next() if reader.seek_seq(part.seq_to) else None
    if record is None:
        return {}
    return {"seq": record.seq, "timestamp_ns": record.timestamp_ns}


def _row(log: LogRef, **values: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    row |= {"queue": log.name, "venue": log.venue, "symbol": log.symbol, "stream": log.stream}
    return row | values


def _table(rows: list[dict[str, Any]], names: Sequence[str]) -> pa.RecordBatch:
    columns = []
    for name in names:
        kind = SCHEMA.field(name).type
        if name == "timestamp":
            micros = [
                None if row["timestamp_ns"] is None else row["timestamp_ns"] // 1000 for row in rows
            ]
            columns.append(pa.array(micros, pa.int64()).view(kind))
            continue
        values = [row[name] for row in rows]
        if name in ("first", "last", "seq"):
            # A value that does not fit a BIGINT is only in the cause.
            values = [None if v is None or v > _BIGINT_MAX else v for v in values]
        if name in ("venue", "symbol", "stream"):
            values = [value or None for value in values]
        columns.append(pa.array(values, kind))
    return pa.record_batch(columns, names=list(names))
