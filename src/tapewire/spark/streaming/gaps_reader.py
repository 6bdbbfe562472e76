"""The reader of streaming queries over the view `gaps`: each gap once, when it is first known.

Gaps come from three sources. Reading the records, and replaying the books in them, finds a gap in
the micro-batch that has the record after it. The ledger of the log reports it when the process that
writes the ledger (a snapshotter) has reached that record, possibly much later: so an offset also
holds how many gaps of the ledger were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from tapewire.book.gaps import Gap, GapLedger
from tapewire.scan import gaps, slices
from tapewire.spark.reading.batch import read_task, wanted_tasks
from tapewire.spark.reading.tasks import group_parts
from tapewire.spark.streaming.book_gaps import find_book_gaps, first_needed_seq, may_have_books
from tapewire.spark.streaming.checkpoints import check_state_directory
from tapewire.spark.streaming.offsets import Offset
from tapewire.spark.streaming.stream_reader import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions
    from tapewire.scan.slices import Slice

__all__ = ["GapStep", "GapsStreamReader"]


@dataclass(frozen=True)
class GapStep(InputPartition):
    """The part of one log in a micro-batch.

    Attributes:
        log: The log.
        records: Slices to search for gaps.
        scanned: Sequence numbers below this were searched by earlier steps.
        first: The first sequence number that the query selects.
        end: Sequence number after the last record that has been searched with this step.
        ledger_start: How many gaps of the ledger earlier steps have read.
        ledger_end: How many gaps of the ledger have been read with this step.
        bytes: Approximate bytes of log.
    """

    log: LogRef
    records: tuple[Slice, ...]
    scanned: int
    first: int
    end: int
    ledger_start: int
    ledger_end: int
    bytes: int = 1


class GapsStreamReader(StreamReader):
    """Follows logs and their ledgers; arguments are those of `StreamReader`."""

    _ledger_target: dict[str, int] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_state_directory(self._options.view, self._options.state)

    def prepareForTriggerAvailableNow(self) -> None:
        """Store the current ends of logs and ledgers: this run does not read past them."""
        super().prepareForTriggerAvailableNow()
        self._ledger_target = self._ledgers()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The offset at which the next micro-batch ends; `start` if there is nothing to read."""
        begin = Offset.parse(start, self._options.view)
        latest = Offset.parse(super().latestOffset(start, limit), self._options.view)
        ledgers = self._ledgers() if self._ledger_target is None else self._ledger_target
        counts = {
            name: max(count, begin.ledgers.get(name, 0)) for name, count in ledgers.items() if count
        }
        latest = replace(latest, ledgers={**begin.ledgers, **counts})
        return start if latest == begin else latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Tasks that each read one or more logs."""
        begin, until, logs = self._range(start, end)
        steps = []
        for log in logs:
            low, high = begin.logs.get(log.name), until.logs.get(log.name, 0)
            ledger_start = begin.ledgers.get(log.name, 0)
            ledger_end = until.ledgers.get(log.name, 0)
            found = self._slices(log, low, high) if high > (low or 0) else []
            if found or ledger_end > ledger_start:
                steps.append(
                    GapStep(
                        log,
                        records=tuple(found),
                        scanned=low or 0,
                        first=found[0].seq_from if low is None and found else 0,
                        end=max(high, low or 0),
                        ledger_start=ledger_start,
                        ledger_end=ledger_end,
                        bytes=sum(each.bytes for each in found) or 1,
                    )
                )
        return group_parts(steps, wanted_tasks(self._options, self._parallelism))

    def _slices(self, log: LogRef, low: int | None, high: int) -> list[Slice]:
        if low is not None:
            self._logs.check_range(log, self._logs.look(log), low, high)
        # Start at the last record that was searched: a gap may begin right after it.
        first = self._options.seq_from if low is None else max(low - 1, 0)
        options = self._options.replace(seq_from=first, seq_to=high, on_damage="skip")
        return slices.plan([log], options, 1)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in an executor."""
        options = self._options
        return read_task(
            partition,
            self._columns,
            lambda step: gaps.as_batch(_rows(step, options), options),
        )

    def commit(self, end: dict[str, Any]) -> None:
        """The checkpoint has committed `end`: release the records that are not needed any more.

        Kept are the records that books are rebuilt from, and the last record before them, at which
        the next search starts.
        """
        until = Offset.parse(end, self._options.view)
        needed = dict(until.logs)
        for log in self._logs.find():
            if log.name in needed and may_have_books(log):
                needed[log.name] = first_needed_seq(log, needed[log.name], self._options)
        self._logs.release({name: max(seq - 1, 0) for name, seq in needed.items()})

    def _ledgers(self) -> dict[str, int]:
        return {log.name: len(GapLedger(log.path).read()) for log in self._logs.find()}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_ledger_target": None}


def _rows(step: GapStep, options: ReadOptions) -> Iterator[dict[str, Any]]:
    scan = GapLedger(step.log.path).scan()
    ledger = scan.gaps[: step.ledger_end]
    books = None
    if may_have_books(step.log) and step.end > 0:
        books = find_book_gaps(step.log, step.scanned, step.end, options)
    for gap in ledger[step.ledger_start :]:
        if not _is_selected(gap, options) or (books is not None and books.found_before(gap)):
            continue
        if not _found_in_records_before(step, gap, options):
            yield gaps.row_of(step.log, gap)
    if step.scanned == 0:
        yield from gaps.damaged_lines(step.log, scan)
    for part in step.records:
        yield from gaps.found_in(part, options, ledger)
    if books is not None:
        known = map(gaps.event_of, ledger)
        yield from gaps.rows_of_books(step.log, books.found, known, step.first, step.end)


def _is_selected(gap: Gap, options: ReadOptions) -> bool:
    """Whether a gap is in the range of the options."""
    if options.seq_from is not None and gap.seq < options.seq_from:
        return False
    if options.seq_to is not None and gap.seq >= options.seq_to:
        return False
    if options.time_from is not None and gap.timestamp_ns < options.time_from:
        return False
    return options.time_to is None or gap.timestamp_ns < options.time_to


def _found_in_records_before(step: GapStep, gap: Gap, options: ReadOptions) -> bool:
    """Whether an earlier micro-batch returned this gap because reading the records found it."""
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
