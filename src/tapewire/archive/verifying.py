"""Verification of an archive: every log, checksum, sequence number and day."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tapewire.archive.tree import LogPlace, walk
from tapewire.book.gaps import FILE_NAME as LEDGER
from tapewire.book.gaps import GapLedger
from tapewire.bus.layout import DECIDED
from tapewire.clock import DAY_NS, date_of
from tapewire.errors import TapewireError
from tapewire.queue.verification import Verdict, Verification

__all__ = ["ArchiveVerdict", "verify"]


@dataclass
class ArchiveVerdict:
    """What reading a complete archive found.

    Attributes:
        root: The archive.
        logs: What was found in each log, by its path below the archive.
        unreadable: Logs that cannot be read at all, and why.
        misplaced: Logs that hold records of other days, and which.
        gaps: Number of gaps in the ledgers: records that were missing before they were archived.
        unfinished: Batches of the Spark sink that were decided but are not completely in their logs
            yet.
        damaged_ledgers: Logs with damaged lines in their ledger, and how many.
    """

    root: str
    logs: dict[str, Verdict] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    misplaced: dict[str, str] = field(default_factory=dict)
    gaps: int = 0
    unfinished: list[str] = field(default_factory=list)
    damaged_ledgers: dict[str, int] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """Records in all logs."""
        return sum(log.records for log in self.logs.values())

    @property
    def payload_bytes(self) -> int:
        """Payload bytes of all records."""
        return sum(log.payload_bytes for log in self.logs.values())

    @property
    def intact(self) -> bool:
        """Whether every record of every log is valid and in the log of its day."""
        valid = all(log.intact and not log.restarts_found for log in self.logs.values())
        return valid and not self.unreadable and not self.misplaced

    @property
    def problems(self) -> list[str]:
        """Problems other than damaged records.

        Seek indexes, counters, lines of ledgers, and batches whose writer was killed.
        """
        found = [f"{name}: {what}" for name, log in self.logs.items() for what in log.problems]
        found += [
            f"{batch}: incomplete batch: the next write to the archive completes it"
            for batch in self.unfinished
        ]
        return found + [
            f"{name}: damaged lines in {LEDGER}: {lines}"
            for name, lines in self.damaged_ledgers.items()
        ]


def verify(
    root: str | os.PathLike[str], on_log: Callable[[str, ArchiveVerdict], None] | None = None
) -> ArchiveVerdict:
    """Read every log of an archive and check every checksum, sequence number and day.

    A log that is being written is read up to its end at the start. Nothing is changed.

    Args:
        root: The archive.
        on_log: Called before each log with its name and the findings so far.

    Raises:
        FileNotFoundError: There is no such directory.
        NotALog: The directory is not an archive.
    """
    verdict = ArchiveVerdict(os.fspath(root))
    for place in walk(root):
        name = place.path.relative_to(Path(root)).as_posix()
        if on_log is not None:
            on_log(name, verdict)
        try:
            with Verification(os.fspath(place.path)) as check:
                for _ in check.run():
                    pass
                verdict.logs[name] = check.verdict()
            ledger = GapLedger(place.path).scan()
            verdict.gaps += len(ledger.gaps)
            if ledger.damaged_count:
                verdict.damaged_ledgers[name] = ledger.damaged_count
        except (TapewireError, OSError) as error:
            verdict.unreadable[name] = str(error)
            continue
        other = _other_day(place, verdict.logs[name])
        if other is not None:
            verdict.misplaced[name] = other
    verdict.unfinished = sorted(
        path.relative_to(Path(root)).as_posix() for path in Path(root).glob(DECIDED)
    )
    return verdict


def _other_day(place: LogPlace, log: Verdict) -> str | None:
    for timestamp_ns in (log.earliest_ns, log.latest_ns):
        if timestamp_ns is not None and date_of(timestamp_ns // DAY_NS) != place.date:
            return f"a record of {date_of(timestamp_ns // DAY_NS)}: timestamp_ns={timestamp_ns}"
    return None
