"""How a router finds strategies: by inotify events and by periodic rescans.

The filesystem is authoritative. inotify only reports what to check immediately. If an event is lost
(the event queue overflows, the limit of watches is reached, the directory is on a mount without
inotify), the next rescan finds the change.
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
    """A strategy is ready: open a reader of `orders_out`."""

    strategy: str
    orders_out: Path


@dataclass(frozen=True)
class Removed:
    """READY or the directory of a strategy was removed: close the reader, which holds mappings."""

    strategy: str


@dataclass(frozen=True)
class _Identity:
    """Identifies one instance of a ready strategy.

    Filesystems reuse the inode number of a deleted directory, and their clocks have a resolution of
    milliseconds. A watch ends with its directory, and its number is not reused.
    """

    directory: tuple[int, int]
    ready: tuple[int, int]
    watch: int | None

    def same(self, other: _Identity) -> bool:
        watches_differ = None not in (self.watch, other.watch) and self.watch != other.watch
        return (self.directory, self.ready) == (other.directory, other.ready) and not watches_differ


class RouterDiscovery:
    """Reports which strategies are ready, as changes since the last `poll`.

    A strategy is ready if ``orders/queue/STRATEGY/orders_out/READY`` exists, without links on the
    way. If it was replaced between two polls, or removed READY and created it again, `Removed` and
    then `Added` are reported.

    `poll` never blocks, and there is no thread: call it periodically, or when `fileno()` is
    readable and at the latest after `rescan_in` seconds, or use ``async for``.

    Args:
        orders: `Layout.orders`.
        rescan: Seconds between two complete scans.

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
        self._pending: deque[Added | Removed] = deque()  # for ``async for``, not yet yielded
        self._due = time.monotonic()
        self._alarm = Alarm()
        self._watches = StrategyWatches()

    @property
    def strategies(self) -> list[str]:
        """The strategies reported as added and not as removed, sorted."""
        return sorted(self._ready)

    @property
    def watching(self) -> bool:
        """Whether inotify watches everything; False: its limits are reached, so only rescans do."""
        return self._watches.complete

    @property
    def rescan_in(self) -> float:
        """Seconds until `poll` rescans: the timeout for an event loop."""
        return max(0.0, self._due - time.monotonic())

    def poll(self) -> list[Added | Removed]:
        """Return the changes since the last call; never block."""
        if self.closed:
            raise ClosedHandle("the discovery is closed", path=os.fspath(self.orders.root))
        if self._pid != os.getpid():
            raise ForkedHandle(
                "the discovery was opened by the parent process, before fork",
                path=os.fspath(self.orders.root),
                hint="open one in the child",
            )
        changed = self._watches.changed()
        now = time.monotonic()
        if changed is None or now >= self._due:
            self._due = now + self.rescan
            changed = self._scan()
        events: list[Added | Removed] = [*self._pending]
        self._pending.clear()
        if changed:
            parent = os.fspath(self.orders.directory)
            for strategy in sorted(changed):
                self._check(strategy, f"{parent}/{strategy}", events)
        return events

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` may have changes.

        Raises:
            OSError: There is no inotify instance; poll with a timer.
        """
        descriptor = self._watches.descriptor
        if descriptor is None:
            raise OSError(errno.EMFILE, "no inotify instance is available: poll with a timer")
        return descriptor

    async def __aiter__(self) -> AsyncGenerator[Added | Removed, None]:
        """Yield changes; end when the discovery is closed, in the thread of the event loop.

        No change is lost if the loop is left: the next loop or `poll` returns the rest.
        """
        while not self.closed:
            self._pending.extend(self.poll())
            while self._pending and not self.closed:
                yield self._pending.popleft()
            await self._alarm.wait(self._watches.descriptor, self.rescan_in)

    def close(self) -> None:
        """Remove the watches. A second call has no effect."""
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
        """Return all strategies to check: those that exist, were ready, or are watched."""
        directory = self.orders.directory
        self._watches.watch_all(directory)
        return self._ready.keys() | self._watches.strategies() | set(directories_below(directory))

    def _check(self, strategy: str, directory: str, events: list[Added | Removed]) -> None:
        # Paths are text: a rescan checks every strategy, and a Path costs more than the check.
        orders_out = f"{directory}/{ORDERS_OUT}"
        # Watched before it is checked: the next poll reports a change in between.
        watch = self._watches.watch_strategy(strategy, directory)
        found = _identity(directory, orders_out, watch)
        known = self._ready.pop(strategy, None)
        if found is not None:
            self._ready[strategy] = found
        if found is not None and known is not None and known.same(found):
            return
        if known is not None:
            events.append(Removed(strategy))
        if found is not None:
            events.append(Added(strategy, Path(orders_out)))


def _identity(directory: str, orders_out: str, watch: int | None) -> _Identity | None:
    """Return None if the strategy is not ready, or there is a link or another file type."""
    try:
        if not stat.S_ISDIR(os.lstat(directory).st_mode):
            return None
        queue = os.lstat(orders_out)
        ready = os.lstat(f"{orders_out}/{READY}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:  # of another user, or a cycle of links: does not affect the others
        _log.warning("cannot check a strategy, skipped: %s", error)
        return None
    if not stat.S_ISDIR(queue.st_mode) or not stat.S_ISREG(ready.st_mode):
        return None
    return _Identity((queue.st_dev, queue.st_ino), (ready.st_ino, ready.st_mtime_ns), watch)
