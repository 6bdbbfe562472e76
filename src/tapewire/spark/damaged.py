"""Going on behind damage as `tapewire.damage` does, and behind a segment whose header is damaged.

A reader cannot enter such a segment, nor say what comes behind it: the status of the queue can.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tapewire import damage
from tapewire.damage import Passed, said
from tapewire.errors import CorruptMetadata, TapewireError
from tapewire.queue import status

if TYPE_CHECKING:
    from tapewire.log import Reader

__all__ = ["DAMAGE", "pass_damage", "seek_seq"]

DAMAGE = (*damage.DAMAGE, CorruptMetadata)


def pass_damage(reader: Reader, error: TapewireError, first: int | None = None) -> Passed | None:
    """Move the reader past what made it raise `error`; what was skipped.

    Args:
        reader: Stands before the damage, or failed to get there.
        error: Of `DAMAGE`.
        first: First number that was asked for; None: the one behind the last that was read.

    Returns:
        None when there is nothing right behind it yet: the reader stays where it is.
    """
    if not isinstance(error, CorruptMetadata):
        return damage.pass_damage(reader, error)
    if first is None and reader.last_seq is not None:
        first = reader.last_seq + 1
    path = error.path or ""
    behind = False
    for segment in status(os.path.dirname(path)).segments if path.endswith(".q") else ():
        if behind and segment.readable and segment.first_seq is not None:
            reader.seek_seq(segment.first_seq)
            lost = f"{said(error)} (skipped: {os.path.basename(path)})"
            return Passed(lost, first, segment.first_seq - 1)
        behind = behind or segment.path == path
    return None


def seek_seq(reader: Reader, seq: int) -> bool:
    """`Reader.seek_seq`; to the next segment that can be read where the number is in none."""
    try:
        return reader.seek_seq(seq)
    except CorruptMetadata as error:
        return pass_damage(reader, error, seq) is not None
