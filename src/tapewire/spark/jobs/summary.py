"""What a job did, for people and for programs."""

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
    """Something that a person should know.

    Attributes:
        part: The part of the job it was found in.
        what: What was found, with its numbers.
        where: The file or the log concerned; empty where the part says it.
        kind: "finding": the result is right, and this is worth a look. "damage": something could
            not be read. "failed": the part was not done.
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
        job: Its name.
        source: Where it read.
        target: Where it wrote.
        rows: Rows that it wrote, by this run.
        bytes: Bytes that it wrote, by this run.
        seconds: How long this run took.
        done: Parts that this run did.
        skipped: Parts that an earlier run had done, from the same input with the same options.
        failed: Parts that could not be done; `findings` says why.
        findings: What a person should know, those of skipped parts included.
        counts: Numbers of the job's own, by name: what was dropped, how many gaps there are.
        report: The page that it wrote; empty where it writes none.

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
        """Nothing was found, and nothing failed."""
        return not self.findings and not self.failed

    @property
    def exit_code(self) -> int:
        """For a command: 0 well, 1 findings, 3 something is damaged or was not done."""
        if self.failed or any(finding.kind != "finding" for finding in self.findings):
            return 3
        return 1 if self.findings else 0

    def count(self, **numbers: int) -> None:
        """Add to `counts`."""
        for name, number in numbers.items():
            self.counts[name] = self.counts.get(name, 0) + number

    def to_dict(self) -> dict[str, Any]:
        """For JSON: plain values, stable keys."""
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
                break_long_words=False,  # a path is to be copied whole
                break_on_hyphens=False,
            )
        if len(self.findings) > FINDINGS_SHOWN:
            lines.append(f"  … and {len(self.findings) - FINDINGS_SHOWN:,} more findings")
        return "\n".join(lines)


def _parts(count: int) -> str:
    return f"{count:,} part" if count == 1 else f"{count:,} parts"
