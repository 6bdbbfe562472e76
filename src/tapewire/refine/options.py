"""The options of a refinement, checked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tapewire.config import check_at_least
from tapewire.errors import InvalidOption
from tapewire.scan.options import ReadOptions

__all__ = ["LATE_POLICIES", "RefineOptions"]

LATE_POLICIES = ("keep", "drop", "separate")
MAX_LATENESS = 1e9  # seconds; an int64 of nanoseconds ends at 9.2e9


@dataclass(frozen=True)
class RefineOptions:
    """What decides the contents of the clean logs.

    Attributes:
        late: What happens to a late record: "keep" it in its place, "drop" it, or "separate" it
            into a stream of its own, such as `book_late`.
        lateness: A record is late if its time is more than this many seconds before the highest
            time so far in its raw log.
        snapshot_seconds: Recorded time between two snapshots of a book, seconds.
        on_damage: "raise": a damaged raw log is an error. "skip": damage is skipped and reported.

    Example:
        >>> RefineOptions(late="drop").to_dict()["lateness"]
        1.0
        >>> RefineOptions(late="no")
        Traceback (most recent call last):
            ...
        tapewire.errors.InvalidOption: unknown policy: late='no'; one of keep, drop, separate
    """

    late: str = "keep"
    lateness: float = 1.0
    snapshot_seconds: float = 60.0
    on_damage: str = "raise"

    def __post_init__(self) -> None:
        if self.late not in LATE_POLICIES:
            raise InvalidOption(
                f"unknown policy: late={self.late!r}", hint=f"one of {', '.join(LATE_POLICIES)}"
            )
        check_at_least("lateness", self.lateness, 0)
        if self.lateness > MAX_LATENESS:
            raise InvalidOption(
                f"lateness must be at most {MAX_LATENESS:g} s: lateness={self.lateness!r}"
            )
        check_at_least("snapshot_seconds", self.snapshot_seconds, 1e-9)
        ReadOptions.parse({"path": ".", "on_damage": self.on_damage})  # raises if it is unknown

    @property
    def lateness_ns(self) -> int:
        """Lateness in nanoseconds."""
        return int(self.lateness * 1e9)

    @property
    def reading(self) -> ReadOptions:
        """How the raw logs are read."""
        return ReadOptions(on_damage=self.on_damage)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for the ledger."""
        return {**asdict(self), "lateness": float(self.lateness),
                "snapshot_seconds": float(self.snapshot_seconds)}  # fmt: skip
