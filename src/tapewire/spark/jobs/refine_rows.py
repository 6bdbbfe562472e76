"""The rows of a refinement: out of slices by the clean log they go to, then judged in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapewire.spark.jobs.refine_survey import clean_names
from tapewire.spark.reading.columns import RowColumns, pieces
from tapewire.spark.reading.slice_reader import batches

if TYPE_CHECKING:
    from tapewire.log import Batch
    from tapewire.spark.jobs.progress import Tally
    from tapewire.spark.jobs.raw_keys import Keys
    from tapewire.spark.reading.options import ReadOptions
    from tapewire.spark.reading.slices import Slice

__all__ = [
    "CONFLICT",
    "DUPLICATE",
    "JUDGED",
    "KEPT",
    "LATE",
    "SPLIT",
    "THERE",
    "Judge",
    "Split",
    "Tape",
    "VenueJudge",
]

KEPT, DUPLICATE, CONFLICT, LATE, THERE = range(5)
# A row on its way: `log` is the place of its clean log, `source` that of its raw log.
SPLIT = (
    "log INT, seq BIGINT, source INT, timestamp_ns BIGINT, type_id INT, flags INT, "
    "payload BINARY, native BIGINT, venue_ns BIGINT, kind INT, late BOOLEAN, verdict INT"
)
JUDGED = (
    "seq BIGINT, timestamp_ns BIGINT, type_id INT, flags INT, payload BINARY, "
    "venue STRING, symbol STRING, stream STRING, verdict INT, late BOOLEAN"
)
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Tape:
    """A slice of a raw log.

    Attributes:
        part: The slice.
        source: Place of its log among those of its unit.
        clock_ns: The highest time before it on its tape.
    """

    part: Slice
    source: int
    clock_ns: int


class Split:
    """Reads slices; a row is a record that belongs to a clean log.

    Args:
        tapes: The slices; a task is given their places.
        keys: Who is named by a payload.
        logs: Place of each clean log, by its name. Records of others are left out.
        late: What becomes of a record that is late: "keep", "drop" or "separate".
        lateness_ns: How far behind the tape's clock a record must be to be late.
        options: Of reading.
        tally: Counts the rows.
    """

    def __init__(
        self,
        tapes: Sequence[Tape],
        keys: Keys,
        logs: Mapping[str, int],
        late: str,
        lateness_ns: int,
        options: ReadOptions,
        tally: Tally,
    ) -> None:
        self._tapes, self._keys, self._logs = tapes, keys, dict(logs)
        self._late, self._lateness_ns = late, lateness_ns
        self._options, self._tally = options, tally

    def __call__(self, inputs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the slices at these places."""
        for ids in inputs:
            for index in ids.column(0).to_pylist():
                yield from self._read(self._tapes[index])

    def _read(self, tape: Tape) -> Iterator[pa.RecordBatch]:
        clock = tape.clock_ns
        for whole in batches(tape.part, self._options, lambda _: None):
            for batch in pieces(whole):
                owners = self._keys.owners(batch)
                times = batch.timestamp_ns
                reached = np.maximum.accumulate(np.maximum(times, clock))
                before = np.concatenate(([clock], reached[:-1]))
                clock = int(reached[-1])
                # Without a clock yet nothing is late; the subtraction must not wrap.
                late = times < np.maximum(before, self._lateness_ns) - self._lateness_ns
                places, names = clean_names(batch, owners, self._keys)
                logs = self._places(names, places, late)
                chosen = logs >= 0
                self._tally.add(rows=int(chosen.sum()))
                if chosen.any():
                    rows = RowColumns(batch, tape.part.log.name, chosen)
                    yield self._row_batch(rows, batch, owners, logs, late, chosen, tape.source)

    def _places(self, names: list[str], places: _Array, late: _Array) -> _Array:
        """The place of the clean log of each record, -1 where it goes to none."""
        table = np.array([self._logs.get(name, -1) for name in names] + [-1], "i4")
        logs = table[places]
        if self._late == "separate":
            aside = np.array([self._logs.get(f"{name}_late", -1) for name in names] + [-1], "i4")
            logs = np.where(late, aside[places], logs)
        return logs

    @staticmethod
    def _row_batch(
        rows: RowColumns,
        batch: Batch,
        owners: Any,
        logs: _Array,
        late: _Array,
        chosen: _Array,
        source: int,
    ) -> pa.RecordBatch:
        return pa.record_batch(
            {
                "log": logs[chosen],
                "seq": rows.column("seq"),
                "source": np.full(rows.rows, source, "i4"),
                "timestamp_ns": rows.column("timestamp_ns"),
                "type_id": rows.column("type_id"),
                "flags": rows.column("flags"),
                "payload": rows.column("payload"),
                "native": owners.native[chosen].view("i8"),
                "venue_ns": owners.venue_ns[chosen].view("i8"),
                "kind": owners.kind[chosen],
                "late": late[chosen],
                "verdict": np.full(rows.rows, KEPT, "i4"),
            }
        )


class VenueJudge:
    """Finds the records that another raw log has too, by what their venue says.

    It is given rows by clean log, kind, venue's number and venue's time: those that agree in all
    of these are one event. The first raw log's are kept, all others are duplicates. Memory: one
    batch.
    """

    def __call__(self, inputs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Each row with its verdict."""
        last: tuple[Any, ...] | None = None
        first_source = -1
        for batch in inputs:
            if not batch.num_rows:
                continue
            event = [batch[name].to_numpy() for name in ("log", "kind", "native", "venue_ns")]
            source = batch["source"].to_numpy()
            begins = np.zeros(len(source), bool)
            begins[0] = last != tuple(int(column[0]) for column in event)
            for column in event:
                begins[1:] |= column[1:] != column[:-1]
            # Rows of an event stand in the order of their logs: its first row has its first log.
            group = np.cumsum(begins)
            firsts = np.concatenate(([first_source], source[begins]))
            of_event = firsts[group]
            twin = (event[2] != 0) & (source != of_event)
            last, first_source = tuple(int(column[-1]) for column in event), int(of_event[-1])
            verdict = np.where(twin, DUPLICATE, KEPT).astype("i4")
            at = batch.schema.get_field_index("verdict")
            yield batch.set_column(at, "verdict", pa.array(verdict))


class Judge:
    """Takes rows by clean log and number, and says of each whether it is kept.

    A number that comes twice is a duplicate if the record is the same or has the same number of
    its venue; else the two are in conflict, and the first raw log's is kept. Memory: one batch.

    Args:
        names: Of the clean logs, by place.
        drop_late: Whether late records are not kept.
        ends: Number behind the last record of each clean log: what is below is there already.
    """

    def __init__(
        self, names: Sequence[str], drop_late: bool, ends: Sequence[int] | None = None
    ) -> None:
        self._names = [name.split("/") for name in names]
        self._drop_late = drop_late
        self._ends = np.array(ends or [0] * len(names), "i8")

    def __call__(self, inputs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Each row with its verdict, and the names of its clean log."""
        venues, symbols, _, streams = (
            pa.array(column) for column in zip(*self._names, strict=True)
        )
        before: pa.RecordBatch | None = None
        for batch in inputs:
            if not batch.num_rows:
                continue
            verdict = batch["verdict"].to_numpy().copy()
            # A record that another log has, too, takes no number away from a third one's.
            kept = np.flatnonzero(verdict == KEPT)
            if len(kept):
                rows = batch if len(kept) == len(verdict) else batch.take(pa.array(kept))
                verdict[kept] = _twins(rows, before)
                before = rows.slice(rows.num_rows - 1)
            if self._drop_late:
                late = batch["late"].to_numpy(zero_copy_only=False)
                verdict[late & (verdict == KEPT)] = LATE
            log = batch["log"]
            there = batch["seq"].to_numpy() < self._ends[log.to_numpy()]
            verdict[there & (verdict == KEPT)] = THERE
            yield pa.record_batch(
                {
                    **{name: batch[name] for name in ("seq", "timestamp_ns", "type_id", "flags")},
                    "payload": batch["payload"],
                    "venue": venues.take(log),
                    "symbol": symbols.take(log),
                    "stream": streams.take(log),
                    "verdict": verdict,
                    "late": batch["late"],
                }
            )


def _twins(batch: pa.RecordBatch, before: pa.RecordBatch | None) -> _Array:
    """Verdict of the rows whose number the row before them has, too."""
    verdict = np.zeros(batch.num_rows, "i4")
    behind = batch if before is None else pa.concat_batches([before, batch])
    shift = 0 if before is None else 1
    log, seq = behind["log"].to_numpy(), behind["seq"].to_numpy()
    twins = np.flatnonzero((log[1:] == log[:-1]) & (seq[1:] == seq[:-1])) + 1
    if not len(twins):
        return verdict
    one, other = behind.take(pa.array(twins)), behind.take(pa.array(twins - 1))
    same = pc.and_(
        pc.equal(one["payload"], other["payload"]),
        pc.equal(one["timestamp_ns"], other["timestamp_ns"]),
    )
    native = one["native"].to_numpy()
    of_venue = (native == other["native"].to_numpy()) & (native != 0)
    alike = same.to_numpy(zero_copy_only=False) | of_venue
    verdict[twins - shift] = np.where(alike, DUPLICATE, CONFLICT)
    return verdict
