"""Going on behind damage as `tapewire.damage` does, and behind a segment that cannot be entered.

Where its header is damaged, or a seek leads into one that is gone, a reader cannot say what comes
behind it: the status of the queue can.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tapewire import damage
from tapewire.damage import Passed, said
from tapewire.errors import CorruptMetadata, SegmentMissing, TapewireError
from tapewire.queue import status

if TYPE_CHECKING:
    from tapewire.log import Reader

__all__ = ["DAMAGE", "UNREACHABLE", "pass_damage", "seek_seq"]

DAMAGE = (*damage.DAMAGE, CorruptMetadata)
# What a seek raises where the segment of a number is damaged or gone.
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
    if first is None and not isinstance(error, CorruptMetadata):
        return damage.pass_damage(reader, error)
    wanted = first
    if first is None and reader.last_seq is not None:
        first = reader.last_seq + 1
    path = error.path or ""
    for segment in status(os.path.dirname(path)).segments if path.endswith(".q") else ():
        number = segment.first_seq
        # By number where a seek failed: whose segment is missing is of no name in the folder.
        behind = segment.path > path if wanted is None else number is not None and number > wanted
        if behind and segment.readable and number is not None:
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
