"""The ledger of a refinement: one entry for each unit, with what is done and what is under way.

An entry is replaced in one step. `begin` records, before anything is published, which clean logs a
run may change; `complete` records the result after everything is durable. A killed run leaves its
`pending` part, from which the next run decides what to repeat.

Entries are job marks, `<target>/_tapewire/done/refine/units/<unit>.json`. The marks of finished
clean logs are next to them: `<target>/_tapewire/done/refine/<clean log>.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from tapewire.archive.job_marks import JobMarks
from tapewire.book.gaps import Gap
from tapewire.refine.survey import RefineFinding

__all__ = ["JOB", "DoneUnit", "PendingUnit", "RefineLedger", "UnitEntry"]

JOB = "refine"
_GAP = {field.name for field in fields(Gap)}


@dataclass(frozen=True)
class DoneUnit:
    """A unit whose records are in their clean logs.

    Attributes:
        inputs: The raw logs as they were: path, first and next sequence number of each.
        options: Options of the run.
        logs: Clean logs, ``venue/symbol/date/stream``, and how many raw records each received.
        gaps: What the raw logs lack, as of `book.gaps.Gap`.
        counts: Counts for the summary.
        findings: Findings for the summary, as of `RefineFinding`.
        clocks: For each raw log, the highest time in it.
    """

    inputs: list[dict[str, Any]]
    options: dict[str, Any]
    logs: dict[str, int] = field(default_factory=dict)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)

    @property
    def replace(self) -> bool:
        """A run that is done has replaced what it was to replace."""
        return False


@dataclass(frozen=True)
class PendingUnit:
    """A unit that a run is writing, or was when it was killed.

    Attributes:
        inputs: The raw logs as that run saw them.
        options: Options of that run.
        logs: Clean logs that may exist for this unit besides those of what is done.
        replace: Whether that run replaces every clean log of this unit.
    """

    inputs: list[dict[str, Any]]
    options: dict[str, Any]
    logs: list[str] = field(default_factory=list)
    replace: bool = False


@dataclass(frozen=True)
class UnitEntry:
    """What the ledger holds for a unit: what is done, and what is under way."""

    done: DoneUnit | None = None
    pending: PendingUnit | None = None

    @property
    def logs(self) -> set[str]:
        """Every clean log that may exist for this unit."""
        done = self.done.logs if self.done is not None else ()
        pending = self.pending.logs if self.pending is not None else ()
        return {*done, *pending}


class RefineLedger:
    """The ledger of one target.

    Example:
        >>> ledger = RefineLedger(tmp)
        >>> ledger.entry("okx/2024-01-01")
        UnitEntry(done=None, pending=None)
        >>> run = PendingUnit([], {"late": "keep"}, ["okx/BTC-USDT/2024-01-01/book"])
        >>> ledger.begin("okx/2024-01-01", run)
        >>> ledger.complete("okx/2024-01-01", DoneUnit([], {"late": "keep"}))
        >>> ledger.entry("okx/2024-01-01").pending is None
        True
    """

    def __init__(self, target: str) -> None:
        self._marks = JobMarks(target, JOB)

    def entry(self, unit: str) -> UnitEntry:
        """The entry of a unit; an empty one if it is missing or damaged.

        Without an entry a unit is read again, and its clean logs skip the records that they have.
        """
        mark = self._marks.known(_part(unit))
        if mark is None:
            return UnitEntry()
        try:
            done, pending = mark.result["done"], mark.result["pending"]
            return UnitEntry(
                None if done is None else _done_unit(done),
                None if pending is None else _pending_unit(pending),
            )
        except (KeyError, TypeError):
            return UnitEntry()

    def begin(self, unit: str, run: PendingUnit, *, again: bool = False) -> None:
        """Record that a run is about to change the clean logs of a unit.

        The marks of these logs are removed: they are finished again. What was done with other
        options no longer counts, nor does what a run does again from the start.
        """
        entry = self.entry(unit)
        done = entry.done
        if done is not None and (again or done.options != run.options):
            done = None
        logs = entry.logs.union(run.logs)
        others = sorted(logs.difference(() if done is None else done.logs))
        self._write(unit, done, PendingUnit(run.inputs, run.options, others, run.replace))
        for log in sorted(logs) if run.replace else run.logs:
            self._marks.forget(log)

    def complete(self, unit: str, done: DoneUnit) -> None:
        """Record that the records of a unit are durable in their clean logs."""
        self._write(unit, done, None)

    def drop_logs(self, unit: str, logs: Iterable[str]) -> None:
        """Remove clean logs from what is done: they were removed and cannot be written again."""
        entry = self.entry(unit)
        if entry.done is not None:
            gone = set(logs)
            left = {name: n for name, n in entry.done.logs.items() if name not in gone}
            self._write(unit, replace(entry.done, logs=left), entry.pending)

    def _write(self, unit: str, done: DoneUnit | None, pending: PendingUnit | None) -> None:
        result: Mapping[str, Any] = {
            "done": None if done is None else asdict(done),
            "pending": None if pending is None else asdict(pending),
        }
        self._marks.write(_part(unit), [], {}, result)


def _done_unit(value: Mapping[str, Any]) -> DoneUnit:
    _check_run(value)
    if not isinstance(value["logs"], dict) or not isinstance(value["counts"], dict):
        raise TypeError("logs and counts must be objects")
    _check_integers(*value["logs"].values(), *value["counts"].values(), *value["clocks"])
    for gap in value["gaps"]:
        if not isinstance(gap, dict) or gap.keys() != _GAP:
            raise TypeError("gaps must have the members of a gap")
        _check_integers(gap["timestamp_ns"])
    for finding in value["findings"]:
        RefineFinding(**finding)
    return DoneUnit(**value)


def _pending_unit(value: Mapping[str, Any]) -> PendingUnit:
    _check_run(value)
    if not all(isinstance(log, str) for log in value["logs"]):
        raise TypeError("logs must be names")
    if not isinstance(value["replace"], bool):
        raise TypeError("replace must be true or false")
    return PendingUnit(**value)


def _check_run(value: Mapping[str, Any]) -> None:
    if not isinstance(value["options"], dict):
        raise TypeError("options must be an object")
    for each in value["inputs"]:
        if not isinstance(each["path"], str):
            raise TypeError("path must be a string")
        first, end = each["first_seq"], each["next_seq"]
        if (first, end) != (None, None):
            _check_integers(first, end)


def _check_integers(*values: Any) -> None:
    if not all(type(value) is int for value in values):
        raise TypeError("counts, clocks and sequence numbers must be integers")


def _part(unit: str) -> str:
    """The unit as the name of a mark. A clean log has four parts, a unit three at most."""
    return f"units/{unit}"
