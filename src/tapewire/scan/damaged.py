"""Going on behind damage as `tapewire.damage` does, and where a seek fails.

Where that leads into a segment that is gone, a reader cannot say what comes behind it: the status
of the queue can.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tapewire import damage
from tapewire.damage import DAMAGE, Passed, said
from tapewire.errors import CorruptMetadata, SegmentMissing, TapewireError
from tapewire.queue import status

if TYPE_CHECKING:
    from tapewire.log import Reader

__all__ = ["DAMAGE", "UNREACHABLE", "pass_damage", "seek_seq"]

# What a seek raises where the segment of a number is gone, or damaged and written elsewhere.
UNREACHABLE = (CorruptMetadata, SegmentMissing)


def pass_damage(reader: Reader, error: TapewireError, first: int | None = None) -> Passed | None:
    """Move the reader past what made it raise `error`; what was skipped.

    Args:
        reader: Stands before the damage, or failed to get there.
        error: Of `DAMAGE`.
        first: The number that could not be sought; None: reading came to the damage.

    Returns:
        None when there is nothing right behind it yet: the reader stays where it is.
    """
    if first is None:
        return damage.pass_damage(reader, error)
    path = error.path or ""
    for segment in status(os.path.dirname(path)).segments if path.endswith(".q") else ():
        number = segment.first_seq
        # By number: whose segment is missing is of no name in the folder.
        if segment.readable and number is not None and number > first:
            reader.seek_seq(number)
            lost = f"{said(error)} (skipped: {os.path.basename(path)})"
            return Passed(lost, first, number - 1)
    return None


def seek_seq(reader: Reader, seq: int) -> bool:
    """`Reader.seek_seq`; to the next segment that can be read where the number is in none."""
    try:
        return reader.seek_seq(seq)
    except UNREACHABLE as error:
        return pass_damage(reader, error, seq) is not None
