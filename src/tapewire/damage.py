"""Skips what is damaged or missing in a log, and reports what was skipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tapewire.errors import (
    CorruptMetadata,
    CorruptRecord,
    GapDetected,
    Overrun,
    SegmentMissing,
    TapewireError,
)

if TYPE_CHECKING:
    from tapewire.log import Reader

__all__ = ["DAMAGE", "SkippedDamage", "message_of", "skip_damage"]

# CorruptMetadata is raised for a segment header when the reader reaches it.
DAMAGE = (CorruptRecord, CorruptMetadata, SegmentMissing, GapDetected, Overrun)


@dataclass(frozen=True)
class SkippedDamage:
    """What a reader skipped.

    Attributes:
        what: A description.
        first: First lost sequence number; None if unknown.
        last: Last lost sequence number; less than `first` if no record is lost.
    """

    what: str
    first: int | None = None
    last: int | None = None


def message_of(error: TapewireError) -> str:
    """Return the message of an error without its hint, which is for Python code."""
    return str(error).removesuffix(f"; {error.hint}")


def skip_damage(reader: Reader, error: TapewireError) -> SkippedDamage | None:
    """Move the reader past the damage for which it raised `error`; return what was skipped.

    Returns None, and does not move the reader, if no valid record follows yet.
    """
    if isinstance(error, GapDetected):
        # Raised once: the reader is already past it.
        return SkippedDamage(message_of(error), error.first, error.last)
    if isinstance(error, Overrun):
        return SkippedDamage(message_of(error))
    last_read = reader.last_seq
    skipped = reader.skip_damaged()
    if skipped.bytes:
        lost = f"{skipped.bytes} bytes of segment {skipped.segment}"
        if skipped.first_seq is not None and skipped.last_seq is not None:
            if skipped.last_seq > skipped.first_seq:
                lost += f", records {skipped.first_seq} to {skipped.last_seq}"
            elif skipped.last_seq == skipped.first_seq:
                lost += f", record {skipped.first_seq}"
        return SkippedDamage(
            f"{message_of(error)} (skipped: {lost})", skipped.first_seq, skipped.last_seq
        )
    if isinstance(error, SegmentMissing):
        next_seq = error.first_available_seq if last_read is None else last_read + 1
        if next_seq is not None and reader.seek_seq(next_seq):
            return SkippedDamage(f"{message_of(error)} (continued at the next record)")
    return None
