"""What a job did: as text, as JSON and as an exit code."""

from __future__ import annotations

import dataclasses
import textwrap
from dataclasses import dataclass, field
from typing import Any

from tapewire.text import bytes_text, rate_text, span_text

__all__ = ["JobFinding", "Summary"]

WIDTH = 80
FINDINGS_SHOWN = 20


@dataclass(frozen=True)
class JobFinding:
    """Something that needs attention.

    Attributes:
        part: The part of the job.
        what: What was found, with counts.
        where: The file or the log concerned; empty if it is the part itself.
        kind: "finding": the result is valid, but look at this. "damage": something could not be
            read. "failed": the part was not done.
    """

    part: str
    what: str
    where: str = ""
    kind: str = "finding"

    def __str__(self) -> str:
        where = f" [{self.where}]" if self.where else ""
        return f"{self.part}: {self.what}{where}"


@dataclass
class Summary:
    """What a job did.

    Attributes:
        job: Name of the job.
        source: What it read.
        target: Where it wrote.
        rows: Rows written by this run.
        bytes: Bytes written by this run.
        seconds: Duration of this run.
        done: Parts that this run did.
        skipped: Parts that an earlier run had done from the same input with the same options.
        failed: Parts that could not be done; `findings` has the reasons.
        findings: What needs attention, including findings of skipped parts.
        counts: Counts specific to the job, by name, such as gaps or duplicates.
        report: Path of the report that it wrote; empty if it writes none.

    Example:
        >>> print(Summary("refine", "raw", "clean", rows=1_200_000, bytes=96 << 20, seconds=2.5,
        ...               done=4, counts={"gaps": 1}))
        refine: raw -> clean
          4 parts done
          1,200,000 rows, 96.0 MiB in 2.5 s (480,000 rows/s)
          gaps: 1
    """

    job: str
    source: str
    target: str
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    done: int = 0
    skipped: int = 0
    failed: int = 0
    findings: list[JobFinding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    report: str = ""

    @property
    def clean(self) -> bool:
        """Whether there are no findings and no failures."""
        return not self.findings and not self.failed

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 0 no findings, 1 findings, 3 damage or failed parts."""
        if self.failed or any(finding.kind != "finding" for finding in self.findings):
            return 3
        return 1 if self.findings else 0

    def count(self, **counts: int) -> None:
        """Add to `counts`."""
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def to_dict(self) -> dict[str, Any]:
        """Plain values with stable keys, for JSON."""
        return {**dataclasses.asdict(self), "seconds": round(self.seconds, 3), "clean": self.clean}

    def __str__(self) -> str:
        lines = [f"{self.job}: {self.source} -> {self.target}"]
        parts = [f"{_parts(self.done)} done"]
        if self.skipped:
            parts.append(f"{self.skipped:,} done before")
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        lines.append("  " + ", ".join(parts))
        if self.done:
            lines.append(
                f"  {self.rows:,} {'row' if self.rows == 1 else 'rows'}, "
                f"{bytes_text(self.bytes)} in {span_text(self.seconds)} "
                f"({rate_text(self.rows, self.seconds)})"
            )
        shown = [f"{name.replace('_', ' ')}: {n:,}" for name, n in self.counts.items() if n]
        if shown:
            lines += textwrap.wrap(
                ", ".join(shown), WIDTH, initial_indent="  ", subsequent_indent="  "
            )
        if self.report:
            lines.append(f"  report: {self.report}")
        for finding in self.findings[:FINDINGS_SHOWN]:
            mark = "!" if finding.kind == "finding" else "✗"
            lines += textwrap.wrap(
                str(finding),
                WIDTH,
                initial_indent=f"  {mark} ",
                subsequent_indent="    ",
                break_long_words=False,  # so that a path can be copied
                break_on_hyphens=False,
            )
        if len(self.findings) > FINDINGS_SHOWN:
            lines.append(f"  … and {len(self.findings) - FINDINGS_SHOWN:,} more findings")
        return "\n".join(lines)


def _parts(count: int) -> str:
    return f"{count:,} part" if count == 1 else f"{count:,} parts"
