"""What raw logs hold: which clean logs, how many records, gaps, damage, and the highest time.

Late records are found by the highest time before them, so every slice is surveyed before any slice
is split: a slice's clock starts where the slices before it end.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire.book.gaps import GapLedger
from tapewire.errors import TapewireError
from tapewire.refine.owners import InstrumentKeys, clean_names
from tapewire.refine.raw_units import RawUnit, missing_of
from tapewire.refine.split import RawSlice
from tapewire.scan.slice_reader import batches

if TYPE_CHECKING:
    from tapewire.damage import SkippedDamage
    from tapewire.log import Batch
    from tapewire.refine.options import RefineOptions
    from tapewire.scan.options import ReadOptions
    from tapewire.scan.slices import Slice

__all__ = [
    "NO_CLOCK",
    "RefineFinding",
    "SliceSurvey",
    "UnitSurvey",
    "clean_log_names",
    "late_log_names",
    "share_clean_logs",
    "survey_slice",
    "survey_unit",
]

NO_CLOCK = -(2**63)
MAX_REPORTED = 1000  # gaps and damaged places of a slice
MAX_UNKNOWN = 20  # unknown instruments of a unit that are listed


@dataclass(frozen=True)
class RefineFinding:
    """Something that needs attention.

    Attributes:
        what: What was found, with its numbers.
        where: The log concerned; empty if it is the unit itself.
        kind: "finding" or "damage".
    """

    what: str
    where: str = ""
    kind: str = "finding"


@dataclass
class SliceSurvey:
    """What a slice of a raw log holds; plain values.

    Attributes:
        records: Number of records of each clean log, by ``venue/symbol/date/stream``.
        other_types: Number of records of other types, by type id.
        unknown: Number of records that name no known instrument, by what they name.
        clock_ns: The highest time.
        first_seq: Its first sequence number, or None.
        last_seq: Its last sequence number, or None.
        gaps: Of each gap the first and last sequence number missing, and sequence number and time
            of the next record.
        more_gaps: Number of further gaps, beyond `MAX_REPORTED`.
        damage: What was damaged and skipped.
        error: Why the slice could not be read, or None; then `path` is the file concerned.
    """

    records: dict[str, int] = field(default_factory=dict)
    other_types: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    clock_ns: int = NO_CLOCK
    first_seq: int | None = None
    last_seq: int | None = None
    gaps: list[list[int]] = field(default_factory=list)
    more_gaps: int = 0
    damage: list[str] = field(default_factory=list)
    error: str | None = None
    path: str | None = None


@dataclass
class UnitSurvey:
    """What the slices of a unit hold together.

    Attributes:
        unit: The unit.
        records: Number of records of each clean log.
        gaps: What its raw logs lack, as of `book.gaps.Gap`.
        findings: What needs attention.
        counts: Counts for the summary.
        slices: Its slices, each with the clock before it.
        clocks: For each raw log, the highest time.
    """

    unit: RawUnit
    records: dict[str, int] = field(default_factory=dict)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    findings: list[RefineFinding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    slices: list[RawSlice] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)


def survey_slice(part: Slice, keys: InstrumentKeys, options: ReadOptions) -> SliceSurvey:
    """Survey a slice; an error of reading is part of the result."""
    seen = SliceSurvey()
    records: collections.Counter[str] = collections.Counter()
    other_types: collections.Counter[str] = collections.Counter()
    unknown: collections.Counter[str] = collections.Counter()

    def note_damage(lost: SkippedDamage) -> None:
        if len(seen.damage) < MAX_REPORTED:
            seen.damage.append(lost.what)

    try:
        for batch in batches(part, options, note_damage):
            owners = keys.owners(batch)
            places, names = clean_names(batch, owners, keys)
            counts = np.bincount(places[places >= 0], minlength=len(names))
            records.update(dict(zip(names, counts.tolist(), strict=True)))
            unknown.update(owners.unknown)
            types, times = np.unique(batch.type_id[owners.stream < 0], return_counts=True)
            for type_id, count in zip(types.tolist(), times.tolist(), strict=True):
                other_types[f"0x{type_id:04X}"] += count
            _survey_sequence(seen, batch)
    except (TapewireError, OSError) as error:
        seen.error = getattr(error, "message", None) or str(error)
        seen.path = getattr(error, "path", None) or part.log.path
    seen.records, seen.other_types, seen.unknown = dict(records), dict(other_types), dict(unknown)
    return seen


def _survey_sequence(seen: SliceSurvey, batch: Batch) -> None:
    """Add the sequence numbers and times of a batch to the survey."""
    seq = batch.seq.astype("i8")
    before = seq[0] if seen.last_seq is None else seen.last_seq
    step = np.diff(seq, prepend=before)
    for at in np.flatnonzero(step > 1).tolist():
        if len(seen.gaps) < MAX_REPORTED:
            first, last = int(seq[at] - step[at]) + 1, int(seq[at]) - 1
            seen.gaps.append([first, last, int(seq[at]), int(batch.timestamp_ns[at])])
        else:
            seen.more_gaps += 1
    if seen.first_seq is None:
        seen.first_seq = int(seq[0])
    seen.last_seq = int(seq[-1])
    seen.clock_ns = max(seen.clock_ns, int(batch.timestamp_ns.max()))


def survey_unit(unit: RawUnit, seen: Sequence[Sequence[SliceSurvey]], source: int) -> UnitSurvey:
    """Combine the surveys of a unit's slices.

    Args:
        unit: The unit.
        seen: For each raw log, the surveys of its slices in order.
        source: Index of the unit's first raw log among those of the run.
    """
    found = UnitSurvey(unit)
    unknown: collections.Counter[str] = collections.Counter()
    other_types: collections.Counter[str] = collections.Counter()
    for i, (log, parts, surveys) in enumerate(zip(unit.logs, unit.slices, seen, strict=True)):
        clock = unit.clocks[i] if i < len(unit.clocks) else NO_CLOCK
        last: int | None = None
        for part, each in zip(parts, surveys, strict=True):
            found.slices.append(RawSlice(part, source + i, clock, unit.date))
            clock = max(clock, each.clock_ns)
            for name, count in each.records.items():
                found.records[name] = found.records.get(name, 0) + count
            unknown.update(each.unknown)
            other_types.update(each.other_types)
            found.findings += [RefineFinding(what, log.path, "damage") for what in each.damage]
            gaps = list(each.gaps)
            if last is not None and each.first_seq is not None and each.first_seq > last + 1:
                gaps.append([last + 1, each.first_seq - 1, each.first_seq, each.clock_ns])
            found.gaps += [
                _raw_gap(*rest) for gap in gaps for rest in missing_of(gap, unit.neighbours)
            ]
            last = each.last_seq if each.last_seq is not None else last
            if each.more_gaps:
                found.findings.append(
                    RefineFinding(f"too many gaps, not reported: {each.more_gaps:,}", log.path)
                )
        found.clocks.append(clock)
        found.gaps += [asdict(gap) for gap in GapLedger(log.path).read()]
    for name, count in unknown.most_common(MAX_UNKNOWN):
        what = f"records of unknown instruments: {count:,}, {name}"
        found.findings.append(RefineFinding(what, unit.logs[0].path))
    found.counts = {
        "of_no_known_instrument": unknown.total(),
        "of_other_types": other_types.total(),
    }
    _leave_out_other_days(unit, found)
    return found


def clean_log_names(surveys: Sequence[UnitSurvey], options: RefineOptions) -> list[str]:
    """The clean logs that the records of these units may go to; logs of late records last."""
    names = sorted({name for each in surveys for name in each.records})
    return [*names, *late_log_names(names, options)]


def late_log_names(names: Iterable[str], options: RefineOptions) -> list[str]:
    """The logs of late records beside these clean logs; none unless late records are separated."""
    return [f"{name}_late" for name in names] if options.late == "separate" else []


def share_clean_logs(surveys: Sequence[UnitSurvey]) -> bool:
    """Whether a clean log may get records of more than one raw log."""
    names = {name for each in surveys for name in each.records}
    return len(names) < sum(len(each.records) * len(each.unit.logs) for each in surveys)


def _leave_out_other_days(unit: RawUnit, found: UnitSurvey) -> None:
    """Leave out records of other days: they would have to go between records that are written."""
    if unit.date is None:
        return
    for name in [name for name in found.records if name.split("/")[2] != unit.date]:
        what = f"records of another day were left out: {found.records.pop(name):,}, {name}"
        found.findings.append(RefineFinding(what, unit.logs[0].path, "damage"))


def _raw_gap(first: int, last: int, seq: int, timestamp_ns: int) -> dict[str, Any]:
    return {
        "kind": "record",
        "venue": "",
        "symbol": "",
        "stream": "",
        "first": first,
        "last": last,
        "seq": seq,
        "timestamp_ns": max(timestamp_ns, 0),
        "cause": "the raw log lacks these records",
        "action": "noted",
    }
