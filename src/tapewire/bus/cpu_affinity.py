"""CPU affinity of a thread."""

from __future__ import annotations

import os

from tapewire.config import check_whole
from tapewire.errors import InvalidOption

__all__ = ["pin_to_core"]


def pin_to_core(core: int) -> set[int]:
    """Restrict the calling thread to one core; return the cores allowed before.

    Existing threads are not affected. Threads started later inherit the core, including Tapewire's
    native threads, which start with the first queue: open the queues before you pin. Pass the
    result to `os.sched_setaffinity(0, …)` to undo it.

    Example:
        >>> import os
        >>> from tapewire import bus
        >>> before = bus.pin_to_core(max(os.sched_getaffinity(0)))
        >>> len(os.sched_getaffinity(0))
        1
        >>> os.sched_setaffinity(0, before)

    Raises:
        InvalidOption: The core does not exist, or this thread may not use it.
    """
    check_whole("core", core, 0)
    before = os.sched_getaffinity(0)
    if core not in before:
        count = os.cpu_count() or 0
        why = "no such core" if core >= count else "this thread may not use the core"
        raise InvalidOption(
            f"{why}: core={core}, allowed={_ranges(before)}",
            hint="choose an allowed core; taskset, cgroups and containers restrict them",
        )
    os.sched_setaffinity(0, {core})
    return before


def _ranges(cores: set[int]) -> str:
    """Format cores as ranges: 0-3,8."""
    text: list[str] = []
    left = sorted(cores)
    while left:
        end = 0
        while end + 1 < len(left) and left[end + 1] == left[end] + 1:
            end += 1
        text.append(f"{left[0]}-{left[end]}" if end else f"{left[0]}")
        del left[: end + 1]
    return ",".join(text)
