"""The limits beyond which something is a finding."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Self

from tapewire.errors import InvalidOption
from tapewire.replay._features import parse_span

__all__ = ["QualityLimits"]


@dataclass(frozen=True)
class QualityLimits:
    """The limits beyond which something is a finding.

    Attributes:
        late_ns: A record that arrives later than this after its exchange time is late.
        behind_ns: How much earlier a record's time may be than that of a record before it.
        early_ns: How much earlier than its exchange time a record may arrive.
        clock_drift_ns: How far the shortest delays of two hours may differ.
        levels: Number of levels of a snapshot to compare.

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
        """Parse spans such as "10s"; None selects the default.

        Raises:
            InvalidOption: A span or the number of levels is invalid.
        """
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
                raise InvalidOption(f"invalid number of levels: {levels=}, must be from 1 to 1000")
            given["levels"] = levels
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, stored as the options of a part."""
        return asdict(self)


def _span(text: str) -> int:
    # `parse_span` rejects 0, which is the strictest limit here.
    return 0 if re.fullmatch(r"0(us|ms|s|m|h|d)?", text) else parse_span(text)
