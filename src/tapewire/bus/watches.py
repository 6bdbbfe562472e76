"""Which inotify watch belongs to which strategy."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from tapewire._native import is_name
from tapewire.bus.inotify import (
    IN_IGNORED,
    IN_Q_OVERFLOW,
    ITSELF,
    NAMES,
    Inotify,
    OutOfWatches,
)
from tapewire.bus.layout import ORDERS_OUT
from tapewire.bus.markers import READY

__all__ = ["StrategyWatches"]

_log = logging.getLogger("tapewire.bus")

# Owners of watches that are no strategy's: the folder that holds the strategies, and while that is
# not there the nearest folder above it that is.
_ALL = ""
_ABOVE = "/"


class StrategyWatches:
    """Watches the folder of strategies and what makes each of them ready.

    Of a strategy that is ready, READY itself is watched and not the names in `orders_out`: leases
    that are renewed, segments that roll and go must not wake a router.

    Attributes:
        complete: Whether everything is watched; the kernel has limits.
    """

    def __init__(self) -> None:
        self.complete = True
        self._owner: dict[int, str] = {}  # by watch
        self._of: dict[str, set[int]] = {}  # the same, by owner
        self._inotify: Inotify | None = None
        self._warned = False
        try:
            self._inotify = Inotify()
        except OutOfWatches as error:
            self._limited(error)

    @property
    def descriptor(self) -> int | None:
        """Readable when something changed; None: there is no inotify."""
        return None if self._inotify is None else self._inotify.fileno()

    def close(self) -> None:
        """End all watches."""
        inotify, self._inotify = self._inotify, None
        if inotify is not None:
            inotify.close()

    def watch_all(self, folder: Path) -> None:
        """Watch the folder of strategies; `watch_strategy` for each of them is about to follow."""
        self.complete = self._inotify is not None
        if self._inotify is None:
            return
        above: list[int | None] = [None]
        try:
            while (watch := self._inotify.watch(folder)) is None:
                nearest = next((p for p in folder.parents if os.path.exists(p)), Path("/"))
                above.append(self._inotify.watch(f"{nearest}/."))  # a bus's root may be a link
                if above[-1] == above[-2]:
                    break  # nothing came between looking and watching
            self._hold(_ALL, watch)
        except OutOfWatches as error:
            self._limited(error)
        self._hold(_ABOVE, *above)

    def watch_strategy(self, strategy: str, folder: str) -> int | None:
        """Watch a strategy as it is now; the watch of its `orders_out`, if that is there."""
        if self._inotify is None:
            return None
        watch = self._inotify.watch
        queue = f"{folder}/{ORDERS_OUT}"
        ready = f"{queue}/{READY}"
        held: list[int | None] = []
        try:
            held.append(watch(folder))
            held.append(watch(ready, 0))
            # Not ready: tell of READY's coming. It may just have come, so it is asked for again.
            held.append(watch(queue, NAMES if held[1] is None else 0))
            if held[1] is None:
                held[1] = watch(ready, 0)
        except OutOfWatches as error:
            self._limited(error)
        self._hold(strategy, *held)
        return held[2] if len(held) > 2 else None

    def changed(self) -> set[str] | None:
        """Strategies to look at; None: anything may have changed."""
        if self._inotify is None:
            return set()
        strategies: set[str] = set()
        for event in self._inotify.read():
            if event.mask & IN_Q_OVERFLOW:
                return None
            owner = self._owner.get(event.wd)
            if event.mask & IN_IGNORED:
                self._owner.pop(event.wd, None)
            if owner is None:
                continue  # told before its watch was ended
            if owner == _ABOVE:
                return None
            if owner != _ALL:
                if event.name in ("", ORDERS_OUT, READY):
                    strategies.add(owner)
            elif event.mask & (ITSELF | IN_IGNORED):
                return None
            elif is_name(event.name):
                strategies.add(event.name)
        return strategies

    def _hold(self, owner: str, *watches: int | None) -> None:
        """From now on these are the owner's watches, and no others."""
        held = {watch for watch in watches if watch is not None}
        for watch in self._of.pop(owner, set()) - held:
            if self._owner.get(watch) == owner:  # else what it watches was renamed: another's now
                del self._owner[watch]
                if self._inotify is not None:
                    self._inotify.unwatch(watch)
        for watch in held:
            self._owner[watch] = owner
        if held:
            self._of[owner] = held

    def _limited(self, error: OutOfWatches) -> None:
        self.complete = False
        if not self._warned:
            self._warned = True
            _log.warning(
                "%s; new strategies are found by rescans alone (raise "
                "fs.inotify.max_user_watches or max_user_instances)",
                error,
            )
