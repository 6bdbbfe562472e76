"""A first look at raw logs: what is in each slice, before anything is written.

It tells how many rows each clean log will have, where the tape's clock stands at the start of every
slice, which numbers are missing, and what cannot be refined; all slices at the same time.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire.clock import DAY_NS, date_of
from tapewire.errors import TapewireError
from tapewire.spark.jobs.raw_keys import STREAMS, Keys, Owners
from tapewire.spark.reading.slice_reader import batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tapewire.damage import Passed
    from tapewire.log import Batch
    from tapewire.spark.reading.options import ReadOptions
    from tapewire.spark.reading.slices import Slice

__all__ = ["NO_CLOCK", "Survey", "clean_names", "survey"]

NO_CLOCK = -(2**63)
MAX_TOLD = 1000  # gaps and damaged places of a slice that are kept
_Array = np.ndarray[Any, Any]


@dataclass
class Survey:
    """What a slice holds.

    Attributes:
        rows: Records of each clean log, by ``venue/symbol/date/stream``.
        others: Records of other types, by type id.
        strangers: Records that name no known instrument, by what they name.
        clock_ns: The highest time in it.
        first_seq: Its first number, or None.
        last_seq: Its last number, or None.
        gaps: First and last number missing, number and time of the record behind them.
        untold: Further gaps, for which there was no room.
        damage: What was damaged and passed over.
        error: Why it could not be read, or None; `path` of the file then.
    """

    rows: dict[str, int] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
    strangers: dict[str, int] = field(default_factory=dict)
    clock_ns: int = NO_CLOCK
    first_seq: int | None = None
    last_seq: int | None = None
    gaps: list[list[int]] = field(default_factory=list)
    untold: int = 0
    damage: list[str] = field(default_factory=list)
    error: str | None = None
    path: str | None = None


def survey(
    spark: SparkSession, slices: Sequence[Slice], keys: Keys, options: ReadOptions
) -> list[Survey]:
    """Look at all slices, a task each; the answers in their order."""
    task = _SurveyTask(list(slices), keys, options)
    ids = spark.range(0, len(slices), 1, len(slices))
    found: list[Survey | None] = [None] * len(slices)
    for row in ids.mapInArrow(task, "slice BIGINT, result STRING").collect():
        found[row["slice"]] = Survey(**json.loads(row["result"]))
    return [each for each in found if each is not None]


def clean_names(batch: Batch, owners: Owners, keys: Keys) -> tuple[_Array, list[str]]:
    """For each record a place in a list of clean logs, or -1; and the list."""
    known = (owners.market >= 0) & (owners.stream >= 0) & (batch.timestamp_ns >= 0)
    days, day = np.unique(batch.timestamp_ns // DAY_NS, return_inverse=True)
    code = (owners.market.astype("i8") * len(STREAMS) + owners.stream) * len(days) + day
    codes, place = np.unique(code[known], return_inverse=True)
    places = np.full(len(batch), -1, "i4")
    places[known] = place
    names = []
    for each in codes.tolist():
        rest, at = divmod(each, len(days))
        market, stream = divmod(rest, len(STREAMS))
        venue, symbol = keys.names[market]
        names.append(f"{venue}/{symbol}/{date_of(int(days[at]))}/{STREAMS[stream]}")
    return places, names


class _SurveyTask:
    def __init__(self, slices: list[Slice], keys: Keys, options: ReadOptions) -> None:
        self._slices, self._keys, self._options = slices, keys, options

    def __call__(self, inputs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for ids in inputs:
            for index in ids.column(0).to_pylist():
                text = json.dumps(asdict(self._look(self._slices[index])))
                yield pa.record_batch({"slice": [index], "result": [text]})

    def _look(self, part: Slice) -> Survey:
        seen = Survey()
        rows: collections.Counter[str] = collections.Counter()
        others: collections.Counter[str] = collections.Counter()
        strangers: collections.Counter[str] = collections.Counter()

        def tell(lost: Passed) -> None:
            if len(seen.damage) < MAX_TOLD:
                seen.damage.append(lost.what)

        try:
            for batch in batches(part, self._options, tell):
                owners = self._keys.owners(batch)
                places, names = clean_names(batch, owners, self._keys)
                counts = np.bincount(places[places >= 0], minlength=len(names))
                rows.update(dict(zip(names, counts.tolist(), strict=True)))
                strangers.update(owners.strangers)
                types, times = np.unique(batch.type_id[owners.stream < 0], return_counts=True)
                for type_id, count in zip(types.tolist(), times.tolist(), strict=True):
                    others[f"0x{type_id:04X}"] += count
                _numbers(seen, batch)
        except (TapewireError, OSError) as error:
            seen.error = getattr(error, "message", None) or str(error)
            seen.path = getattr(error, "path", None) or part.log.path
        seen.rows, seen.others, seen.strangers = dict(rows), dict(others), dict(strangers)
        return seen


def _numbers(seen: Survey, batch: Batch) -> None:
    """Take in the numbers and times of a batch."""
    seq = batch.seq.astype("i8")
    before = seq[0] if seen.last_seq is None else seen.last_seq
    step = np.diff(seq, prepend=before)
    for at in np.flatnonzero(step > 1).tolist():
        if len(seen.gaps) < MAX_TOLD:
            first, last = int(seq[at] - step[at]) + 1, int(seq[at]) - 1
            seen.gaps.append([first, last, int(seq[at]), int(batch.timestamp_ns[at])])
        else:
            seen.untold += 1
    if seen.first_seq is None:
        seen.first_seq = int(seq[0])
    seen.last_seq = int(seq[-1])
    seen.clock_ns = max(seen.clock_ns, int(batch.timestamp_ns.max()))
