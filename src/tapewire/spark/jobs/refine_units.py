"""What is refined at once: the raw logs of a venue's day, and how much of them is new."""

from __future__ import annotations

import datetime as dt
import heapq
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tapewire.errors import InvalidOption, NotALog, TapewireError
from tapewire.log import open_log
from tapewire.spark.jobs.job_marks import JobMark
from tapewire.spark.reading.logs import LogRef, resolve
from tapewire.spark.reading.options import ReadOptions
from tapewire.spark.reading.slices import Slice, plan

__all__ = ["RefineUnit", "missing_of", "raw_logs", "units_of"]


@dataclass
class RefineUnit:
    """Raw logs that are refined together: the same record may be in several of them.

    Attributes:
        name: ``venue/date``, or ``venue`` where a log holds many days.
        date: The day that all its records must have, or None.
        logs: The raw logs.
        slices: Of each log, those that are to be read now.
        state: Of each log what is to be refined after this run: path, first and next number.
        clocks: Of each log the highest time before its slices.
        replace: Whether the clean logs are to be made anew.
        neighbours: Raw logs of the venue's other days, which may have numbers that this lacks.
    """

    name: str
    date: str | None
    logs: list[LogRef]
    slices: list[list[Slice]] = field(default_factory=list)
    state: list[dict[str, Any]] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)
    replace: bool = False
    neighbours: list[LogRef] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """About how much there is to read."""
        return sum(part.bytes for parts in self.slices for part in parts)

    def look(self, options: ReadOptions, wanted: int) -> None:
        """Plan the slices of all its logs, up to the last record that is there now."""
        self.slices, self.state = [], []
        for log in self.logs:
            parts = plan([log], options, wanted)
            if any(part.count is not None for part in parts):
                raise InvalidOption(
                    "the numbers of this log begin again: its records cannot be told by them",
                    path=log.path,
                    hint="archive the log with `tapewire archive tap` and refine that",
                )
            self.slices.append(parts)
            first = parts[0].seq_from if parts else None
            last = parts[-1].seq_to if parts else None
            self.state.append({"path": log.path, "first_seq": first, "next_seq": last})

    def go_on(
        self, mark: JobMark, options: Mapping[str, Any], read: ReadOptions, wanted: int
    ) -> None:
        """Leave out what an earlier run has refined; all of it again where that is not to be told.

        Raises:
            InvalidOption: All would have to be refined again, and some of it is gone.
        """
        grown, gone = self._since(mark)
        if grown and mark.options == dict(options):
            self._leave_out(mark, read, wanted)
            return
        self._replace(gone)

    def begin_again(self, mark: JobMark, options: Mapping[str, Any]) -> None:
        """Go on with what a killed run began, which may have published all of it, or nothing.

        Records are passed over by number where they are there, unless that run was to replace
        what it found, made it otherwise, or made it of other logs: then all of it is replaced.

        Raises:
            InvalidOption: All would have to be refined again, and some of it is gone.
        """
        grown, gone = self._since(mark)
        again = grown or mark.inputs == self.state
        if mark.result.get("replace") or mark.options != dict(options) or not again:
            self._replace(gone)

    def has_lost(self, mark: JobMark) -> bool:
        """Whether raw records that an earlier run refined are gone."""
        return self._since(mark)[1]

    def _since(self, mark: JobMark) -> tuple[bool, bool]:
        """Whether there is one log, which has only grown; and whether records are gone."""
        before = {each.get("path"): each for each in mark.inputs}
        grown, gone = len(self.logs) == 1, False
        for state in self.state:
            old = before.pop(state["path"], None)
            if old is None or old["next_seq"] is None:
                continue
            gone |= state["first_seq"] is None or state["first_seq"] > old["first_seq"]
            grown &= state["next_seq"] is not None and state["next_seq"] >= old["next_seq"]
        return grown and not before, gone or bool(before)

    def _replace(self, gone: bool) -> None:
        if gone:
            raise InvalidOption(
                f"raw records that were refined before are gone, and cannot be refined again: "
                f"unit={self.name}",
                path=self.logs[0].path,
                hint="use the options of the run before, or a new target",
            )
        self.replace = True

    def _leave_out(self, mark: JobMark, read: ReadOptions, wanted: int) -> None:
        (log,), (state,), (old,) = self.logs, self.state, mark.inputs
        self.clocks = [int(clock) for clock in mark.result.get("clocks", [])]
        if old["next_seq"] is None:
            return
        later = read.replace(seq_from=old["next_seq"], seq_to=state["next_seq"])
        self.slices = [plan([log], later, wanted)]
        state["first_seq"] = old["first_seq"]


def raw_logs(source: str | os.PathLike[str]) -> list[LogRef]:
    """The multiplexed logs of a path: those of an archive or a bus, or the logs that it names.

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


def units_of(logs: Sequence[LogRef]) -> list[RefineUnit]:
    """Logs by venue and day; all of a venue together where one of them holds many days.

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
            units.append(RefineUnit(venue, None, sorted(of_venue)))
            continue
        for day in sorted(day for day in days if day is not None):
            of_day = sorted(log for log in of_venue if log.date == day)
            units.append(RefineUnit(f"{venue}/{day}", day, of_day))
            units[-1].neighbours = sorted(log for log in of_venue if _is_near(log.date, day))
    return units


def missing_of(gap: Sequence[int], neighbours: Sequence[LogRef]) -> Iterator[list[int]]:
    """What of a gap (first, last, number and time behind it) is in none of these logs.

    A day's raw log lacks the numbers of records whose time is of the day before or after.
    """
    first, last, *behind = gap
    for start, end in heapq.merge(*(_runs_of(log, first, last) for log in neighbours)):
        if start > first:
            yield [first, start - 1, *behind]
        first = max(first, end + 1)
    if first <= last:
        yield [first, last, *behind]


def _runs_of(log: LogRef, first: int, last: int) -> Iterator[tuple[int, int]]:
    """First and last of the numbers that follow each other, of those from `first` to `last`.

    What cannot be read is not there; it is told with the log's own day.
    """
    try:
        with open_log(log.path) as reader:
            found = reader.seek_seq(first)
            while found and len(batch := reader.read_batch(4096)):
                numbers = batch.seq[batch.seq <= last]
                for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
                    if len(run):
                        yield int(run[0]), int(run[-1])
                found = int(batch.seq[-1]) < last
    except (TapewireError, OSError):
        return


def _is_near(date: str | None, day: str) -> bool:
    apart = dt.date.fromisoformat(date or day) - dt.date.fromisoformat(day)
    return abs(apart.days) == 1
