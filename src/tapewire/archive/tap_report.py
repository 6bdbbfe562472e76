"""Reports of a tap: what it archived and what it found."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

__all__ = ["SourceReport", "TapReport"]

# More are counted, not listed: a hostile queue has millions of findings, and a tap that runs for
# years writes to as many logs.
_LISTED_MOST = 1000
# The last days of a queue, so that each log counts once: days ascend, except for late records.
_DAYS_MOST = 32


@dataclass
class SourceReport:
    """What was archived from one live queue.

    Attributes:
        queue: Its path.
        stream: What it carries: ``venue/symbol/stream``, or ``venue/raw``.
        records: Records archived by this run.
        bytes: Bytes of their payloads.
        already: Records that were in the archive before, and are equal.
        last_seq: Sequence number of the last record archived or compared, or None.
        last_timestamp_ns: Its time, or None.
        gaps: Number of gaps that were skipped; they are in the ledgers of the archive's logs.
        error: Why the queue is no longer followed, or None.
    """

    queue: str
    stream: str
    records: int = 0
    bytes: int = 0
    already: int = 0
    last_seq: int | None = None
    last_timestamp_ns: int | None = None
    gaps: int = 0
    error: str | None = None


@dataclass
class TapReport:
    """What a tap has done so far.

    Attributes:
        sources: Every queue it has followed, by what it carries.
        logs_count: Number of archive logs it has written to.
        commits: Number of commits to the live queues.
        waiting: Why it is waiting (the archive's disk is full), or None.
        findings: Problems found, as text; at most 1,000.
        findings_count: Number of all findings.
    """

    sources: dict[str, SourceReport] = field(default_factory=dict)
    logs_count: int = 0
    commits: int = 0
    waiting: str | None = None
    findings: list[str] = field(default_factory=list)
    findings_count: int = 0
    _logs: dict[str, None] = field(default_factory=dict, init=False, repr=False)
    _by_stream: dict[str, dict[str, None]] = field(default_factory=dict, init=False, repr=False)

    @property
    def logs(self) -> list[str]:
        """Paths below the archive of the last 1,000 logs it has written to."""
        return sorted(self._logs)

    @property
    def records(self) -> int:
        """Records archived from all queues."""
        return sum(source.records for source in self.sources.values())

    @property
    def bytes(self) -> int:
        """Payload bytes archived from all queues."""
        return sum(source.bytes for source in self.sources.values())

    @property
    def gaps(self) -> int:
        """Gaps that were skipped in all queues."""
        return sum(source.gaps for source in self.sources.values())

    @property
    def clean(self) -> bool:
        """Whether there are no findings: every record of the queues so far is archived."""
        return self.findings_count == 0

    def add_finding(self, text: str) -> None:
        """Add a problem that was found."""
        self.findings_count += 1
        if len(self.findings) < _LISTED_MOST:
            self.findings.append(text)

    def add_log(self, stream: str, log: str) -> None:
        """Add a log that got records."""
        if _remember(self._by_stream.setdefault(stream, {}), log, _DAYS_MOST):
            self.logs_count += 1
        _remember(self._logs, log, _LISTED_MOST)

    def to_dict(self) -> dict[str, Any]:
        """A dict for JSON."""
        return {
            "records": self.records,
            "bytes": self.bytes,
            "gaps": self.gaps,
            "commits": self.commits,
            "logs": self.logs,
            "logs_count": self.logs_count,
            "waiting": self.waiting,
            "clean": self.clean,
            "findings": self.findings,
            "findings_count": self.findings_count,
            "sources": [dataclasses.asdict(self.sources[name]) for name in sorted(self.sources)],
        }

    def __str__(self) -> str:
        found = "" if self.clean else f", findings: {self.findings_count:,}"
        return (
            f"{self.records:,} records of {len(self.sources):,} queues into "
            f"{self.logs_count:,} logs, gaps: {self.gaps:,}{found}"
        )


def _remember(names: dict[str, None], name: str, most: int) -> bool:
    """Move a name to the end, drop the first if there are too many; returns whether it is new."""
    new = name not in names
    names.pop(name, None)
    names[name] = None
    if len(names) > most:
        del names[next(iter(names))]
    return new
