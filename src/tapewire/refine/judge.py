"""Which rows of a refinement are kept: duplicates, conflicts and late records are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapewire.refine.split import KEPT

__all__ = [
    "BY_SEQUENCE",
    "BY_VENUE_EVENT",
    "CONFLICT",
    "DUPLICATE",
    "JUDGED_SCHEMA",
    "KEPT",
    "LATE",
    "PRESENT",
    "Judge",
    "VenueJudge",
]

DUPLICATE, CONFLICT, LATE, PRESENT = range(KEPT + 1, KEPT + 5)
JUDGED_SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("timestamp_ns", pa.int64()),
        ("type_id", pa.int32()),
        ("flags", pa.int32()),
        ("payload", pa.binary()),
        ("venue", pa.string()),
        ("symbol", pa.string()),
        ("stream", pa.string()),
        ("verdict", pa.int32()),
        ("late", pa.bool_()),
    ]
)
# The orders in which the two judges receive their rows.
BY_VENUE_EVENT = ("log", "kind", "native", "venue_ns", "source", "seq")
BY_SEQUENCE = ("log", "seq", "source")
_Array = np.ndarray[Any, Any]


class VenueJudge:
    """Finds records that another raw log has too, by the venue's sequence numbers.

    It receives rows in the order `BY_VENUE_EVENT`. Rows that agree in clean log, kind, venue's
    sequence number and venue's time are one event. The rows of the first raw log are kept, all
    others are duplicates. Memory: one batch.
    """

    def __call__(self, inputs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows with their verdicts."""
        last: tuple[Any, ...] | None = None
        first_source = -1
        for batch in inputs:
            if not batch.num_rows:
                continue
            event = [batch[name].to_numpy() for name in BY_VENUE_EVENT[:4]]
            source = batch["source"].to_numpy()
            begins = np.zeros(len(source), bool)
            begins[0] = last != tuple(int(column[0]) for column in event)
            for column in event:
                begins[1:] |= column[1:] != column[:-1]
            # The rows of an event are in the order of their logs: the first row has the first log.
            group = np.cumsum(begins)
            firsts = np.concatenate(([first_source], source[begins]))
            of_event = firsts[group]
            twin = (event[2] != 0) & (source != of_event)
            last, first_source = tuple(int(column[-1]) for column in event), int(of_event[-1])
            verdict = np.where(twin, DUPLICATE, KEPT).astype("i4")
            at = batch.schema.get_field_index("verdict")
            yield batch.set_column(at, "verdict", pa.array(verdict))


class Judge:
    """Decides, for rows in the order `BY_SEQUENCE`, which of them are kept.

    If a sequence number is repeated, the record is a duplicate if the bytes are equal or the venue
    gave both the same sequence number; otherwise the two are in conflict, and the record of the
    first raw log is kept. Memory: one batch.

    Args:
        names: Names of the clean logs, by index.
        drop_late: Whether late records are dropped.
        ends: For each clean log the sequence number after its last record: lower ones are already
            there.
    """

    def __init__(
        self, names: Sequence[str], drop_late: bool, ends: Sequence[int] | None = None
    ) -> None:
        self._names = [name.split("/") for name in names]
        self._drop_late = drop_late
        self._ends = np.array(ends or [0] * len(names), "i8")

    def __call__(self, inputs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows with their verdicts, under `JUDGED_SCHEMA`."""
        venues, symbols, _, streams = (
            pa.array(column) for column in zip(*self._names, strict=True)
        )
        before: pa.RecordBatch | None = None
        for batch in inputs:
            if not batch.num_rows:
                continue
            verdict = batch["verdict"].to_numpy().copy()
            # A duplicate by the venue does not take the sequence number from a third log's record.
            kept = np.flatnonzero(verdict == KEPT)
            if len(kept):
                rows = batch if len(kept) == len(verdict) else batch.take(pa.array(kept))
                verdict[kept] = _repeated(rows, before)
                before = rows.slice(rows.num_rows - 1)
            if self._drop_late:
                late = batch["late"].to_numpy(zero_copy_only=False)
                verdict[late & (verdict == KEPT)] = LATE
            log = batch["log"]
            there = batch["seq"].to_numpy() < self._ends[log.to_numpy()]
            verdict[there & (verdict == KEPT)] = PRESENT
            yield pa.record_batch(
                [
                    *(batch[name] for name in JUDGED_SCHEMA.names[:5]),
                    venues.take(log),
                    symbols.take(log),
                    streams.take(log),
                    verdict,
                    batch["late"],
                ],
                schema=JUDGED_SCHEMA,
            )


def _repeated(batch: pa.RecordBatch, before: pa.RecordBatch | None) -> _Array:
    """Verdicts of rows that have the sequence number of the row before them; KEPT for others."""
    verdict = np.full(batch.num_rows, KEPT, "i4")
    joined = batch if before is None else pa.concat_batches([before, batch])
    shift = 0 if before is None else 1
    log, seq = joined["log"].to_numpy(), joined["seq"].to_numpy()
    repeats = np.flatnonzero((log[1:] == log[:-1]) & (seq[1:] == seq[:-1])) + 1
    if not len(repeats):
        return verdict
    one, other = joined.take(pa.array(repeats)), joined.take(pa.array(repeats - 1))
    same = pc.and_(
        pc.equal(one["payload"], other["payload"]),
        pc.equal(one["timestamp_ns"], other["timestamp_ns"]),
    )
    native = one["native"].to_numpy()
    same_event = (native == other["native"].to_numpy()) & (native != 0)
    alike = same.to_numpy(zero_copy_only=False) | same_event
    verdict[repeats - shift] = np.where(alike, DUPLICATE, CONFLICT)
    return verdict
