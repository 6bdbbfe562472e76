"""What an ``async for`` over a discovery sleeps on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tapewire.errors import ConcurrentUse

__all__ = ["Alarm"]


class Alarm:
    """Wakes one task: when a descriptor is readable, after a time, or when rung for the end."""

    def __init__(self) -> None:
        self._ring: Callable[[], None] | None = None
        self._over = False

    async def wait(self, descriptor: int | None, timeout: float) -> None:
        """Until one of the three; nothing stays registered with the loop."""
        if self._over:
            return
        if self._ring is not None:
            raise ConcurrentUse("another task iterates over this discovery already")
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            # Once: afterwards the number may be another descriptor's.
            if self._ring is wake:
                self._ring = None
                timer.cancel()
                if descriptor is not None:
                    loop.remove_reader(descriptor)
                woken.set()

        timer = loop.call_later(timeout, wake)
        if descriptor is not None:
            loop.add_reader(descriptor, wake)
        self._ring = wake
        try:
            await woken.wait()
        finally:
            wake()

    def ring(self) -> None:
        """End the wait under way before its descriptor is closed, and every later one."""
        self._over = True
        if self._ring is not None:
            self._ring()
