"""The reader of streaming queries over the view `gaps`: each gap once, when it is first known.

A gap is known by three ways. Reading the records, and replaying the books that are in them, finds
it in the micro-batch that has the record behind it. The ledger of the log tells of it when whoever
keeps the ledger (a snapshotter) has come there, which may be long after: so an offset also says how
many gaps of the ledger were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from tapewire.book.gaps import Gap, GapLedger
from tapewire.scan import gaps, slices
from tapewire.spark.reading.batch import read_pack, wanted_parts
from tapewire.spark.reading.packs import pack
from tapewire.spark.streaming.book_gaps import has_books, kept_from, replayed_gaps
from tapewire.spark.streaming.checkpoints import check_folder
from tapewire.spark.streaming.offsets import Offset
from tapewire.spark.streaming.stream import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions
    from tapewire.scan.slices import Slice

__all__ = ["GapStep", "GapsStreamReader"]


@dataclass(frozen=True)
class GapStep(InputPartition):
    """What one micro-batch has of the gaps of one log.

    Attributes:
        log: The log.
        records: Slices to look through.
        scanned: Numbers below this were looked through before.
        first: Number of the first record that the query asks for.
        end: Number behind the last record of this step, and of those before.
        told: How many gaps of the ledger were read before.
        tell: And how many are with this step.
        bytes: About how many bytes of log it has.
    """

    log: LogRef
    records: tuple[Slice, ...]
    scanned: int
    first: int
    end: int
    told: int
    tell: int
    bytes: int = 1


class GapsStreamReader(StreamReader):
    """Follows logs and their ledgers; arguments are those of `StreamReader`."""

    _ledger_goal: dict[str, int] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_folder(self._options.view, self._options.state)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note what is there now: this run goes no further."""
        super().prepareForTriggerAvailableNow()
        self._ledger_goal = self._ledgers()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends; `start` itself when there is nothing to read."""
        begin = Offset.parse(start, self._options.view)
        latest = Offset.parse(super().latestOffset(start, limit), self._options.view)
        told = self._ledgers() if self._ledger_goal is None else self._ledger_goal
        counts = {
            name: max(count, begin.ledgers.get(name, 0)) for name, count in told.items() if count
        }
        latest = replace(latest, ledgers={**begin.ledgers, **counts})
        return start if latest == begin else latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A task for some logs each."""
        begin = Offset.parse(start, self._options.view)
        until = Offset.parse(end, self._options.view)
        until.check_follows(begin)
        logs = self._logs.find()
        self._logs.hold(logs, begin.logs)
        steps = []
        for log in logs:
            low, high = begin.logs.get(log.name), until.logs.get(log.name, 0)
            told, tell = begin.ledgers.get(log.name, 0), until.ledgers.get(log.name, 0)
            found = self._slices(log, low, high) if high > (low or 0) else []
            if found or tell > told:
                size = sum(each.bytes for each in found) or 1
                first = found[0].seq_from if low is None and found else 0
                steps.append(
                    GapStep(
                        log, tuple(found), low or 0, first, max(high, low or 0), told, tell, size
                    )
                )
        return pack(steps, wanted_parts(self._options, self._parallelism))

    def _slices(self, log: LogRef, low: int | None, high: int) -> list[Slice]:
        if low is not None:
            self._logs.check_range(log, self._logs.look(log), low, high)
        # From the last record that was looked at: what is missing may begin right behind it.
        first = self._options.seq_from if low is None else max(low - 1, 0)
        options = self._options.replace(seq_from=first, seq_to=high, on_damage="skip")
        return slices.plan([log], options, 1)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; in an executor."""
        options = self._options
        return read_pack(
            partition,
            self._columns,
            lambda step: gaps.as_batch(_rows(step, options), options),
        )

    def commit(self, end: dict[str, Any]) -> None:
        """The checkpoint has all before `end`; what books are built again from stays.

        With the record before, to begin from.
        """
        until = Offset.parse(end, self._options.view)
        places = dict(until.logs)
        for log in self._logs.find():
            if log.name in places and has_books(log):
                places[log.name] = kept_from(log, places[log.name], self._options)
        self._logs.release({name: max(seq - 1, 0) for name, seq in places.items()})

    def _ledgers(self) -> dict[str, int]:
        return {log.name: len(GapLedger(log.path).read()) for log in self._logs.find()}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_ledger_goal": None}


def _rows(step: GapStep, options: ReadOptions) -> Iterator[dict[str, Any]]:
    scan = GapLedger(step.log.path).scan()
    ledger = scan.gaps[: step.tell]
    books = None
    if has_books(step.log) and step.end > 0:
        books = replayed_gaps(step.log, step.scanned, step.end, options)
    for gap in ledger[step.told :]:
        if not _asked_for(gap, options) or (books is not None and books.told_of(gap)):
            continue
        if not _was_found(step, gap, options):
            yield gaps.row_of(step.log, gap)
    if step.scanned == 0:
        yield from gaps.damaged_lines(step.log, scan)
    for part in step.records:
        yield from gaps.found_in(part, options, ledger)
    if books is not None:
        told = map(gaps.event_of, ledger)
        yield from gaps.rows_of_books(step.log, books.found, told, step.first, step.end)


def _asked_for(gap: Gap, options: ReadOptions) -> bool:
    if options.seq_from is not None and gap.seq < options.seq_from:
        return False
    if options.seq_to is not None and gap.seq >= options.seq_to:
        return False
    if options.time_from is not None and gap.timestamp_ns < options.time_from:
        return False
    return options.time_to is None or gap.timestamp_ns < options.time_to


def _was_found(step: GapStep, gap: Gap, options: ReadOptions) -> bool:
    """Whether reading the records has told of this gap in a micro-batch before."""
    if gap.kind != "record" or gap.seq >= step.scanned:
        return False
    around = options.replace(
        seq_from=max(gap.first - 1, 0), seq_to=gap.seq + 1, on_damage="skip", time_from=None
    )
    return any(
        (row["first"], row["last"]) == (gap.first, gap.last)
        for part in slices.plan([step.log], around, 1)
        for row in gaps.found_in(part, around)
    )
