"""The records of raw logs as rows, each with the clean log that it goes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tapewire.refine.owners import InstrumentKeys, Owners, clean_names
from tapewire.scan.columns import RowColumns, pieces
from tapewire.scan.slice_reader import batches

if TYPE_CHECKING:
    from tapewire.log import Batch
    from tapewire.refine.options import RefineOptions
    from tapewire.scan.slices import Slice

__all__ = ["KEPT", "SPLIT_SCHEMA", "RawSlice", "Split"]

KEPT = 0  # the verdict of a row until `judge` gives another
# `log` is the index of the clean log, `source` that of the raw log; `native`, `venue_ns` and `kind`
# identify the event at its venue.
SPLIT_SCHEMA = pa.schema(
    [
        ("log", pa.int32()),
        ("seq", pa.int64()),
        ("source", pa.int32()),
        ("timestamp_ns", pa.int64()),
        ("type_id", pa.int32()),
        ("flags", pa.int32()),
        ("payload", pa.binary()),
        ("native", pa.int64()),
        ("venue_ns", pa.int64()),
        ("kind", pa.int32()),
        ("late", pa.bool_()),
        ("verdict", pa.int32()),
    ]
)
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class RawSlice:
    """A slice of a raw log.

    Attributes:
        part: The slice.
        source: Index of its log among the raw logs of the run.
        clock_ns: The highest time before it in its log.
        date: The day of its log; records of other days are left out. None: all days.
    """

    part: Slice
    source: int
    clock_ns: int
    date: str | None = None


class Split:
    """Reads raw slices; a row is a record that belongs to a clean log.

    Args:
        keys: The known instruments.
        logs: Index of each clean log, by its name. Records of others are left out.
        options: Policy for late records, lateness, and how damage is treated.
        count: Called with the number of rows of each batch.
    """

    def __init__(
        self,
        keys: InstrumentKeys,
        logs: Mapping[str, int],
        options: RefineOptions,
        count: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._keys, self._logs, self._options = keys, dict(logs), options
        self._count = count

    def rows(self, raw: RawSlice) -> Iterator[pa.RecordBatch]:
        """The rows of a slice, under `SPLIT_SCHEMA`, in the order of the log."""
        clock, lateness_ns = raw.clock_ns, self._options.lateness_ns
        for mapped in batches(raw.part, self._options.reading, lambda lost: None):
            for batch in pieces(mapped):
                owners = self._keys.owners(batch)
                times = batch.timestamp_ns
                reached = np.maximum.accumulate(np.maximum(times, clock))
                before = np.concatenate(([clock], reached[:-1]))
                clock = int(reached[-1])
                # Nothing is late before the first record; the subtraction must not wrap.
                late = times < np.maximum(before, lateness_ns) - lateness_ns
                places, names = clean_names(batch, owners, self._keys)
                logs = self._logs_of(names, places, late, raw.date)
                chosen = logs >= 0
                self._count(int(chosen.sum()))
                if chosen.any():
                    rows = RowColumns(batch, raw.part.log.name, chosen)
                    yield _row_batch(rows, batch, owners, logs, late, chosen, raw.source)

    def _logs_of(self, names: list[str], places: _Array, late: _Array, date: str | None) -> _Array:
        """Index of the clean log of each record; -1 if it goes to none."""
        names = [name if date in (None, name.split("/")[2]) else "" for name in names]
        table = np.array([self._logs.get(name, -1) for name in names] + [-1], "i4")
        logs = table[places]
        if self._options.late == "separate":
            late_logs = [self._logs.get(f"{name}_late", -1) for name in names]
            logs = np.where(late, np.array([*late_logs, -1], "i4")[places], logs)
        return logs


def _row_batch(
    rows: RowColumns,
    batch: Batch,
    owners: Owners,
    logs: _Array,
    late: _Array,
    chosen: _Array,
    source: int,
) -> pa.RecordBatch:
    return pa.record_batch(
        [
            logs[chosen],
            rows.column("seq"),
            np.full(rows.rows, source, "i4"),
            *(rows.column(name) for name in ("timestamp_ns", "type_id", "flags", "payload")),
            owners.native[chosen].view("i8"),
            owners.venue_ns[chosen].view("i8"),
            owners.kind[chosen],
            late[chosen],
            np.full(rows.rows, KEPT, "i4"),
        ],
        schema=SPLIT_SCHEMA,
    )
