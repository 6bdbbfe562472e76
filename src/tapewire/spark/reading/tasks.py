"""Groups the parts of a plan into Spark tasks, so that a task reads several small parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from tapewire.scan.slices import SLICE_BYTES

__all__ = ["Task", "group_parts"]


@dataclass(frozen=True)
class Task(InputPartition):
    """Parts that one task reads, one after the other."""

    parts: tuple[Any, ...]


def group_parts(
    parts: Sequence[Any], wanted: int, *, limit: int | None = SLICE_BYTES
) -> list[Task]:
    """The parts, in order, as at most `wanted` tasks of about equal size in bytes.

    Args:
        parts: What a view planned; each has `bytes`.
        wanted: Number of tasks.
        limit: Bytes per task: more tasks than `wanted` are made to stay below it. None: no limit.
    """
    total = sum(max(part.bytes, 1) for part in parts)
    if limit is not None:
        wanted = max(wanted, total // limit)
    tasks: list[list[Any]] = []
    filled = 0
    for i, part in enumerate(parts):
        # Start a task when the current one has its share, up to the number wanted.
        due = len(parts) <= wanted or filled * wanted >= total * len(tasks)
        if i == 0 or (due and len(tasks) < max(wanted, 1)):
            tasks.append([])
        tasks[-1].append(part)
        filled += max(part.bytes, 1)
    return [Task(tuple(each)) for each in tasks]
