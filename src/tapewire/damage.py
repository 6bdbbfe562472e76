"""Going on behind what is damaged or missing in a log, and saying what was passed over."""

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

__all__ = ["DAMAGE", "Passed", "pass_damage", "said"]

# CorruptMetadata: of a segment's header, where reading comes to it.
DAMAGE = (CorruptRecord, CorruptMetadata, SegmentMissing, GapDetected, Overrun)


@dataclass(frozen=True)
class Passed:
    """What a reader was moved past.

    Attributes:
        what: In words.
        first: First number that is lost; None where that cannot be known.
        last: Last number that is lost; below `first` when none is.
    """

    what: str
    first: int | None = None
    last: int | None = None


def said(error: TapewireError) -> str:
    """What an error says without its hint, which is for who writes Python."""
    return str(error).removesuffix(f"; {error.hint}")


def pass_damage(reader: Reader, error: TapewireError) -> Passed | None:
    """Move the reader past what made it raise `error`; what was skipped.

    None when there is nothing right behind it yet: the reader stays where it is.
    """
    if isinstance(error, GapDetected):
        # Raised once: the reader has gone on by itself.
        return Passed(said(error), error.first, error.last)
    if isinstance(error, Overrun):
        return Passed(said(error))
    seen = reader.last_seq
    skipped = reader.skip_damaged()
    if skipped.bytes:
        lost = f"{skipped.bytes} bytes of segment {skipped.segment}"
        if skipped.first_seq is not None and skipped.last_seq is not None:
            if skipped.last_seq > skipped.first_seq:
                lost += f", records {skipped.first_seq} to {skipped.last_seq}"
            elif skipped.last_seq == skipped.first_seq:
                lost += f", record {skipped.first_seq}"
        return Passed(f"{said(error)} (skipped: {lost})", skipped.first_seq, skipped.last_seq)
    if isinstance(error, SegmentMissing):
        there = error.first_available_seq
        ahead = there if seen is None else seen + 1
        if ahead is not None and reader.seek_seq(ahead):
            return Passed(f"{said(error)} (went on at the next record there is)")
    return None
