"""Parts of a view as tasks of Spark: several small parts in one task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from tapewire.scan.slices import SLICE_BYTES

__all__ = ["Pack", "pack"]


@dataclass(frozen=True)
class Pack(InputPartition):
    """Parts that one task reads, one after the other."""

    slices: tuple[Any, ...]


def pack(parts: Sequence[Any], wanted: int, *, limit: int | None = SLICE_BYTES) -> list[Pack]:
    """Parts in the same order as at most `wanted` tasks, of about equal bytes.

    Args:
        parts: What a view planned; each with `bytes`.
        wanted: How many tasks.
        limit: Rather more tasks than that many bytes in one; None: as many as wanted.
    """
    total = sum(max(part.bytes, 1) for part in parts)
    if limit is not None:
        wanted = max(wanted, total // limit)
    packs: list[list[Any]] = []
    filled = 0
    for i, part in enumerate(parts):
        # A new task where a share is full, unless it would be one too many.
        due = len(parts) <= wanted or filled * wanted >= total * len(packs)
        if i == 0 or (due and len(packs) < max(wanted, 1)):
            packs.append([])
        packs[-1].append(part)
        filled += max(part.bytes, 1)
    return [Pack(tuple(each)) for each in packs]
