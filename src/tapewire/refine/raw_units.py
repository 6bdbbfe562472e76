"""Units of a refinement: the raw logs of a venue's day, and how much of them is new."""

from __future__ import annotations

import datetime as dt
import heapq
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire.errors import InvalidOption, NotALog, TapewireError
from tapewire.log import open_log
from tapewire.scan.logs import LogRef, resolve
from tapewire.scan.options import ReadOptions
from tapewire.scan.slices import Slice, plan

if TYPE_CHECKING:
    from tapewire.refine.ledger import DoneUnit, PendingUnit

__all__ = ["RawUnit", "missing_of", "raw_logs", "units_of"]


@dataclass
class RawUnit:
    """Raw logs that are refined together, because a record may be in several of them.

    Attributes:
        name: ``venue/date``, or ``venue`` if a log holds many days.
        date: The day of all its records, or None.
        logs: The raw logs.
        slices: For each log, the slices that this run reads.
        inputs: For each log, what is refined after this run: path, first and next sequence number.
        clocks: For each log, the highest time before its slices.
        replace: Whether the clean logs are rebuilt from scratch.
        again: Whether records that an earlier run refined are read again.
        neighbours: Raw logs of the venue's adjacent days, which may hold sequence numbers that
            this unit lacks.
    """

    name: str
    date: str | None
    logs: list[LogRef]
    slices: list[list[Slice]] = field(default_factory=list)
    inputs: list[dict[str, Any]] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)
    replace: bool = False
    again: bool = False
    neighbours: list[LogRef] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Approximate number of bytes to read."""
        return sum(part.bytes for parts in self.slices for part in parts)

    def plan(self, options: ReadOptions, wanted: int) -> None:
        """Plan slices of all its logs, up to the last record that is there now.

        Raises:
            InvalidOption: The sequence numbers of a log restart, so they do not identify records.
        """
        self.slices, self.inputs = [], []
        for log in self.logs:
            parts = plan([log], options, wanted)
            if any(part.count is not None for part in parts):
                raise InvalidOption(
                    "the sequence numbers of this log restart, so they do not identify its records",
                    path=log.path,
                    hint="archive the log with `tapewire archive tap` and refine that",
                )
            self.slices.append(parts)
            first = parts[0].seq_from if parts else None
            last = parts[-1].seq_to if parts else None
            self.inputs.append({"path": log.path, "first_seq": first, "next_seq": last})

    def continue_after(
        self, done: DoneUnit, options: Mapping[str, Any], read: ReadOptions, wanted: int
    ) -> None:
        """Leave out what an earlier run has refined; refine everything again if that is unknown.

        Raises:
            InvalidOption: Everything would have to be refined again, and some records are gone.
        """
        grown, gone = self._changes_since(done.inputs)
        if grown and done.options == dict(options):
            self._leave_out(done, read, wanted)
        else:
            self._replace(gone)

    def repeat(self, before: DoneUnit | PendingUnit, options: Mapping[str, Any]) -> None:
        """Read all records again, of which a run before may have published any number.

        Records that are in their clean log are skipped by sequence number, unless that run was to
        replace the logs, had other options or read other raw logs: then all logs are replaced.

        Raises:
            InvalidOption: Everything would have to be refined again, and some records are gone.
        """
        self.again = True
        grown, gone = self._changes_since(before.inputs)
        same_logs = grown or before.inputs == self.inputs
        if before.replace or before.options != dict(options) or not same_logs:
            self._replace(gone)

    def has_lost_records(self, done: DoneUnit) -> bool:
        """Whether raw records that an earlier run refined are gone."""
        return self._changes_since(done.inputs)[1]

    def _changes_since(self, inputs: Sequence[Mapping[str, Any]]) -> tuple[bool, bool]:
        """Whether the unit is one log that has only grown; and whether records are gone."""
        before = {each.get("path"): each for each in inputs}
        grown, gone = len(self.logs) == 1, False
        for now in self.inputs:
            old = before.pop(now["path"], None)
            if old is None or old["next_seq"] is None:
                continue
            gone |= now["first_seq"] is None or now["first_seq"] > old["first_seq"]
            grown &= now["next_seq"] is not None and now["next_seq"] >= old["next_seq"]
        return grown and not before, gone or bool(before)

    def _replace(self, gone: bool) -> None:
        if gone:
            raise InvalidOption(
                "raw records that were refined before are gone and cannot be refined again: "
                f"unit={self.name}",
                path=self.logs[0].path,
                hint="use the options of the earlier run, or a new target",
            )
        self.replace = True

    def _leave_out(self, done: DoneUnit, read: ReadOptions, wanted: int) -> None:
        (log,), (now,), (old,) = self.logs, self.inputs, done.inputs
        self.clocks = list(done.clocks)
        if old["next_seq"] is None:
            return
        later = read.replace(seq_from=old["next_seq"], seq_to=now["next_seq"])
        self.slices = [plan([log], later, wanted)]
        now["first_seq"] = old["first_seq"]


def raw_logs(source: str | os.PathLike[str]) -> list[LogRef]:
    """The multiplexed logs at a path: those of an archive or a bus, or the logs that it names.

    Raises:
        NotALog: There is none; logs of one symbol each need no refinement.
    """
    logs = [log for log in resolve(os.fspath(source), ReadOptions()) if log.symbol is None]
    raw = [log for log in logs if log.stream == "raw"] or [log for log in logs if not log.stream]
    if not raw:
        raise NotALog(
            "there is no raw log here",
            path=os.fspath(source),
            hint="give a log, an archive with raw/v1/VENUE/DATE/raw, or a bus with streams/raw",
        )
    return raw


def units_of(logs: Sequence[LogRef]) -> list[RawUnit]:
    """Logs by venue and day; all logs of a venue together if one of them holds many days.

    Example:
        >>> days = ("2024-01-01", "2024-01-02")
        >>> raw = [LogRef(f"raw/okx/{day}", f"/a/{day}", "okx", date=day) for day in days]
        >>> [unit.name for unit in units_of(raw)]
        ['okx/2024-01-01', 'okx/2024-01-02']
        >>> [unit.name for unit in units_of([*raw, LogRef("raw/okx", "/bus/okx", "okx")])]
        ['okx']
    """
    by_venue: dict[str, list[LogRef]] = {}
    for log in logs:
        by_venue.setdefault(log.venue or "logs", []).append(log)
    units = []
    for venue, of_venue in sorted(by_venue.items()):
        days = {log.date for log in of_venue}
        if None in days:
            units.append(RawUnit(venue, None, sorted(of_venue)))
            continue
        for day in sorted(day for day in days if day is not None):
            of_day = sorted(log for log in of_venue if log.date == day)
            units.append(RawUnit(f"{venue}/{day}", day, of_day))
            units[-1].neighbours = sorted(log for log in of_venue if _is_adjacent(log.date, day))
    return units


def missing_of(gap: Sequence[int], neighbours: Sequence[LogRef]) -> Iterator[list[int]]:
    """The parts of a gap that are in none of these logs.

    A day's raw log lacks the sequence numbers of records whose time is of the adjacent days.

    Args:
        gap: First and last sequence number missing; sequence number and time of the next record.
        neighbours: Raw logs of the adjacent days.
    """
    first, last, *after = gap
    for start, end in heapq.merge(*(_runs_of(log, first, last) for log in neighbours)):
        if start > first:
            yield [first, start - 1, *after]
        first = max(first, end + 1)
    if first <= last:
        yield [first, last, *after]


def _runs_of(log: LogRef, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Runs of consecutive sequence numbers from `first` to `last`, as first and last of each.

    Records that cannot be read count as missing; the damage is reported with the log's own day.
    """
    try:
        with open_log(log.path) as reader:
            found = reader.seek_seq(first)
            while found and len(batch := reader.read_batch(4096)):
                seqs = batch.seq[batch.seq <= last]
                for run in np.split(seqs, np.flatnonzero(np.diff(seqs) != 1) + 1):
                    if len(run):
                        yield int(run[0]), int(run[-1])
                found = int(batch.seq[-1]) < last
    except (TapewireError, OSError):
        return


def _is_adjacent(date: str | None, day: str) -> bool:
    apart = dt.date.fromisoformat(date or day) - dt.date.fromisoformat(day)
    return abs(apart.days) == 1
