"""A core for the hot thread."""

from __future__ import annotations

import os

from tapewire.config import check_whole
from tapewire.errors import InvalidOption

__all__ = ["pin_to_core"]


def pin_to_core(core: int) -> set[int]:
    """Keep the calling thread on one core; the cores it was allowed before.

    Other threads stay where they are. Threads started from now on inherit the core, Tapewire's
    native ones too, and they start with the first queue that is opened: open queues first, pin
    then. Give the result to `os.sched_setaffinity(0, …)` to undo it.

    Example:
        >>> import os
        >>> from tapewire import bus
        >>> before = bus.pin_to_core(max(os.sched_getaffinity(0)))
        >>> len(os.sched_getaffinity(0))
        1
        >>> os.sched_setaffinity(0, before)

    Raises:
        InvalidOption: There is no such core, or this process may not use it.
    """
    check_whole("core", core, 0)
    before = os.sched_getaffinity(0)
    if core not in before:
        count = os.cpu_count() or 0
        why = "there is no such core" if core >= count else "this thread may not use the core"
        raise InvalidOption(
            f"{why}: core={core}, allowed={_ranges(before)}",
            hint="choose one of those allowed; taskset, cgroups and containers narrow them down",
        )
    os.sched_setaffinity(0, {core})
    return before


def _ranges(cores: set[int]) -> str:
    """Cores as people write them: 0-3,8."""
    text: list[str] = []
    left = sorted(cores)
    while left:
        end = 0
        while end + 1 < len(left) and left[end + 1] == left[end] + 1:
            end += 1
        text.append(f"{left[0]}-{left[end]}" if end else f"{left[0]}")
        del left[: end + 1]
    return ",".join(text)
