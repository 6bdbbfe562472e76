"""How a router finds strategies: it looks, it is told by the kernel, and it looks again.

The filesystem is the truth. inotify only says where to look at once; whatever it loses (its queue
overflows, its watches run out, the folder lies on a mount that has none) the next rescan finds.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tapewire.bus.alarm import Alarm
from tapewire.bus.layout import ORDERS_OUT, OrdersLayout
from tapewire.bus.markers import READY
from tapewire.bus.watches import StrategyWatches
from tapewire.config import check_at_least
from tapewire.errors import ClosedHandle, ForkedHandle
from tapewire.files import directories_below

__all__ = ["Added", "Removed", "RouterDiscovery"]

_log = logging.getLogger("tapewire.bus")


@dataclass(frozen=True)
class Added:
    """A strategy is ready: open a reader on `orders_out`."""

    strategy: str
    orders_out: Path


@dataclass(frozen=True)
class Removed:
    """A strategy took READY away, or its folder is gone: close the reader, which holds mappings."""

    strategy: str


@dataclass(frozen=True)
class _Identity:
    """What tells one readiness from the next.

    Filesystems give a deleted folder's number to the next one, and their clocks stand still for
    milliseconds. The number of a watch, which ends with its folder, is not given again.
    """

    folder: tuple[int, int]
    ready: tuple[int, int]
    watch: int | None

    def same(self, other: _Identity) -> bool:
        watches_differ = None not in (self.watch, other.watch) and self.watch != other.watch
        return (self.folder, self.ready) == (other.folder, other.ready) and not watches_differ


class RouterDiscovery:
    """Which strategies are ready, as changes since the last `poll`.

    A strategy is there when ``orders/queue/STRATEGY/orders_out/READY`` is, and all of these are
    what they seem: folders and a file, no links. One that was replaced between two polls, or that
    took READY away and set it again, is `Removed` and then `Added`.

    `poll` never blocks, and there is no thread: call it every now and then, or when `fileno()` is
    readable and at the latest after `rescan_in` seconds, or use ``async for``.

    Args:
        orders: `Layout.orders`.
        rescan: Look at everything again after so many seconds.

    Example:
        >>> import tapewire as tw
        >>> from tapewire import bus
        >>> layout = bus.Layout(tmp)
        >>> alpha = layout.orders.strategy("alpha")
        >>> with bus.RouterDiscovery(layout.orders, rescan=0) as discovery:
        ...     with tw.open_publisher(alpha.orders_out, segment_bytes=65536):
        ...         discovery.poll()
        ...         bus.mark_ready(alpha.orders_out)
        ...         [event.strategy for event in discovery.poll()]
        ...     bus.clear_ready(alpha.orders_out)
        ...     discovery.poll()
        []
        ['alpha']
        [Removed(strategy='alpha')]
    """

    def __init__(self, orders: OrdersLayout, rescan: float = 1.0) -> None:
        check_at_least("rescan", rescan, 0)
        self.orders = orders
        self.rescan = rescan
        self.closed = False
        self._pid = os.getpid()
        self._ready: dict[str, _Identity] = {}
        self._untold: deque[Added | Removed] = deque()  # found for an ``async for``, not yet taken
        self._due = time.monotonic()
        self._alarm = Alarm()
        self._watches = StrategyWatches()

    @property
    def strategies(self) -> list[str]:
        """Those that were reported as added and not as removed, sorted."""
        return sorted(self._ready)

    @property
    def watching(self) -> bool:
        """Whether the kernel tells of changes; False: its limits are reached, only rescans find."""
        return self._watches.complete

    @property
    def rescan_in(self) -> float:
        """Seconds until `poll` looks at everything again: the timeout for an event loop."""
        return max(0.0, self._due - time.monotonic())

    def poll(self) -> list[Added | Removed]:
        """What changed since the last call; never blocks."""
        if self.closed:
            raise ClosedHandle("the discovery is closed", path=os.fspath(self.orders.root))
        if self._pid != os.getpid():
            raise ForkedHandle(
                "the discovery was opened before fork, in the parent",
                path=os.fspath(self.orders.root),
                hint="open one in the child",
            )
        changed = self._watches.changed()
        now = time.monotonic()
        if changed is None or now >= self._due:
            self._due = now + self.rescan
            changed = self._scan()
        events: list[Added | Removed] = [*self._untold]
        self._untold.clear()
        if changed:
            parent = os.fspath(self.orders.folder)
            for strategy in sorted(changed):
                self._look_at(strategy, f"{parent}/{strategy}", events)
        return events

    def fileno(self) -> int:
        """A descriptor that is readable when `poll` has something to look at.

        Raises:
            OSError: The kernel gave no inotify instance; poll by a timer.
        """
        descriptor = self._watches.descriptor
        if descriptor is None:
            raise OSError(errno.EMFILE, "the kernel gave no inotify instance: poll by a timer")
        return descriptor

    async def __aiter__(self) -> AsyncGenerator[Added | Removed, None]:
        """Events as they come; ends when the discovery is closed, by the loop's own thread.

        Whoever leaves the loop loses nothing: what is left comes with the next loop or `poll`.
        """
        while not self.closed:
            self._untold.extend(self.poll())
            while self._untold and not self.closed:
                yield self._untold.popleft()
            await self._alarm.wait(self._watches.descriptor, self.rescan_in)

    def close(self) -> None:
        """Give up the watches. Closing twice is fine."""
        self.closed = True
        self._alarm.ring()
        self._watches.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._ready)} strategies"
        return f"<RouterDiscovery {os.fspath(self.orders.root)!r} {state}>"

    def _scan(self) -> set[str]:
        """Everybody to look at: who is in the folder now, who was ready, and who is watched."""
        folder = self.orders.folder
        self._watches.watch_all(folder)
        return self._ready.keys() | self._watches.strategies() | set(directories_below(folder))

    def _look_at(self, strategy: str, folder: str, events: list[Added | Removed]) -> None:
        # Paths are text here: a rescan looks at every strategy, and a Path costs more than a look.
        orders_out = f"{folder}/{ORDERS_OUT}"
        # Watched before it is looked at: what comes in between is told by the next poll.
        watch = self._watches.watch_strategy(strategy, folder)
        found = _identity(folder, orders_out, watch)
        known = self._ready.pop(strategy, None)
        if found is not None:
            self._ready[strategy] = found
        if found is not None and known is not None and known.same(found):
            return
        if known is not None:
            events.append(Removed(strategy))
        if found is not None:
            events.append(Added(strategy, Path(orders_out)))


def _identity(folder: str, orders_out: str, watch: int | None) -> _Identity | None:
    """None when the strategy is not ready, or is not what it should be."""
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            return None
        queue = os.lstat(orders_out)
        ready = os.lstat(f"{orders_out}/{READY}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:  # of another user, links in a circle: no harm to the others
        _log.warning("a strategy that cannot be looked at is passed over: %s", error)
        return None
    if not stat.S_ISDIR(queue.st_mode) or not stat.S_ISREG(ready.st_mode):
        return None
    return _Identity((queue.st_dev, queue.st_ino), (ready.st_ino, ready.st_mtime_ns), watch)
