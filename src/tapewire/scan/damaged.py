"""Skipping damage as `tapewire.damage` does, also where a seek fails.

If a seek fails because a segment is missing, the reader does not know the next segment; the status
of the queue does.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tapewire import damage
from tapewire.damage import DAMAGE, SkippedDamage, message_of
from tapewire.errors import CorruptMetadata, SegmentMissing, TapewireError
from tapewire.queue import status

if TYPE_CHECKING:
    from tapewire.log import Reader

__all__ = ["DAMAGE", "UNREACHABLE", "seek_seq", "skip_damage"]

# What a seek raises if the segment of a sequence number is missing or damaged.
UNREACHABLE = (CorruptMetadata, SegmentMissing)


def skip_damage(
    reader: Reader, error: TapewireError, first: int | None = None
) -> SkippedDamage | None:
    """Move the reader past what made it raise `error`; what was skipped.

    Args:
        reader: At the damage, or where a failed seek left it.
        error: One of `DAMAGE`.
        first: The sequence number of the failed seek; None: the damage was met while reading.

    Returns:
        What was skipped; None if no valid record follows yet: the reader does not move.
    """
    if first is None:
        return damage.skip_damage(reader, error)
    path = error.path or ""
    for segment in status(os.path.dirname(path)).segments if path.endswith(".q") else ():
        seq = segment.first_seq
        # By sequence number: a missing segment has no file whose name could be compared.
        if segment.readable and seq is not None and seq > first:
            reader.seek_seq(seq)
            lost = f"{message_of(error)} (skipped: {os.path.basename(path)})"
            return SkippedDamage(lost, first, seq - 1)
    return None


def seek_seq(reader: Reader, seq: int) -> bool:
    """`Reader.seek_seq`; if that segment cannot be read, seek to the next one that can."""
    try:
        return reader.seek_seq(seq)
    except UNREACHABLE as error:
        return skip_damage(reader, error, seq) is not None
