"""What a tap has done and found."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

__all__ = ["SourceReport", "TapReport"]

# More than that are counted, not listed: a hostile queue has millions of findings, and a tap that
# runs for years writes to as many logs.
_LISTED_MOST = 1000
# A queue's last days are known, so that each log counts once: days rise, but for late records.
_DAYS_MOST = 32


@dataclass
class SourceReport:
    """What became of one live queue.

    Attributes:
        queue: Its path.
        stream: What it carries: ``venue/symbol/stream``, or ``venue/raw``.
        records: Records archived by this run.
        bytes: Of their payloads.
        already: Records that were in the archive already, and were found equal.
        last_seq: Number of the last record archived or found, or None.
        last_timestamp_ns: Its time, or None.
        gaps: Gaps that were passed over; the ledgers beside the archive's logs tell which.
        error: Why it is not followed any more, or None.
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
        logs_count: How many logs of the archive it has written to.
        commits: How often it has committed to the live queues.
        waiting: Why it stands still, or None: the archive's disk is full.
        findings: What was not as it should be, in words; at most 1,000.
        findings_count: How many there are in all.
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
        """The logs it has written to, by their paths below the archive; the last 1,000 of them."""
        return sorted(self._logs)

    @property
    def records(self) -> int:
        """Records archived, of all queues."""
        return sum(source.records for source in self.sources.values())

    @property
    def bytes(self) -> int:
        """Of their payloads."""
        return sum(source.bytes for source in self.sources.values())

    @property
    def gaps(self) -> int:
        """Gaps that were passed over."""
        return sum(source.gaps for source in self.sources.values())

    @property
    def clean(self) -> bool:
        """Everything that the queues ever numbered is archived, as far as this run has come."""
        return self.findings_count == 0

    def find(self, text: str) -> None:
        """Note what is not as it should be."""
        self.findings_count += 1
        if len(self.findings) < _LISTED_MOST:
            self.findings.append(text)

    def wrote(self, stream: str, log: str) -> None:
        """Note that a log has got records."""
        if _remember(self._by_stream.setdefault(stream, {}), log, _DAYS_MOST):
            self.logs_count += 1
        _remember(self._logs, log, _LISTED_MOST)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
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
    """Put a name behind the others, the first of which goes when they are many; if it is new."""
    new = name not in names
    names.pop(name, None)
    names[name] = None
    if len(names) > most:
        del names[next(iter(names))]
    return new
