"""What is let pass, and what is a finding."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Self

from tapewire.errors import InvalidOption
from tapewire.replay._features import parse_span

__all__ = ["QualityLimits"]


@dataclass(frozen=True)
class QualityLimits:
    """What is let pass; everything beyond is a finding.

    Attributes:
        late_ns: A record that came longer after its exchange time is late.
        behind_ns: A record may bear a time so much before one that is on the tape already.
        early_ns: A record may come so much before its exchange time.
        clock_drift_ns: So far may the shortest way of an hour be from that of another hour.
        levels: How many levels of a snapshot are compared.

    Example:
        >>> QualityLimits.parse(late="2s").late_ns, QualityLimits.parse(early="0").early_ns
        (2000000000, 0)
    """

    late_ns: int = 10 * 10**9
    behind_ns: int = 0
    early_ns: int = 0
    clock_drift_ns: int = 250 * 10**6
    levels: int = 25

    @classmethod
    def parse(
        cls,
        *,
        late: str | None = None,
        behind: str | None = None,
        early: str | None = None,
        clock_drift: str | None = None,
        levels: int | None = None,
    ) -> Self:
        """The same from spans as people write them; None: the default."""
        spans = {
            "late_ns": late,
            "behind_ns": behind,
            "early_ns": early,
            "clock_drift_ns": clock_drift,
        }
        given: dict[str, int] = {
            name: _span(text) for name, text in spans.items() if text is not None
        }
        if levels is not None:
            if not 1 <= levels <= 1_000:
                raise InvalidOption(f"levels must be from 1 to 1000: levels={levels!r}")
            given["levels"] = levels
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        """Plain values: they decide what a part becomes."""
        return asdict(self)


def _span(text: str) -> int:
    # Nothing at all is no span for a grid, and the strictest limit here.
    return 0 if re.fullmatch(r"0(us|ms|s|m|h|d)?", text) else parse_span(text)
