"""The wait of an ``async for`` over a discovery."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tapewire.errors import ConcurrentUse

__all__ = ["Alarm"]


class Alarm:
    """Wakes one task: when a descriptor is readable, after a time, or when closed."""

    def __init__(self) -> None:
        self._ring: Callable[[], None] | None = None
        self._over = False

    async def wait(self, descriptor: int | None, timeout: float) -> None:
        """Wait for one of the three; unregister from the loop afterwards."""
        if self._over:
            return
        if self._ring is not None:
            raise ConcurrentUse("another task is iterating over this discovery")
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            # Only once: afterwards the descriptor's number may be reused.
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
        """End the current wait, before its descriptor is closed, and all later ones."""
        self._over = True
        if self._ring is not None:
            self._ring()
