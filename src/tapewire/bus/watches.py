"""The inotify watches of strategies."""

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

# Owners of other watches: the directory of the strategies, and while it does not exist its nearest
# existing parent.
_ALL = ""
_ABOVE = "/"


class StrategyWatches:
    """Watches the directory of strategies, and READY of each strategy.

    If a strategy is ready, READY itself is watched instead of the entries of `orders_out`, so that
    renewed leases and rolled or deleted segments do not wake a router.

    Attributes:
        complete: Whether everything is watched; False if a limit of the kernel is reached.
    """

    def __init__(self) -> None:
        self.complete = True
        self._owner: dict[int, str] = {}  # by watch
        self._by_owner: dict[str, set[int]] = {}
        self._inotify: Inotify | None = None
        self._warned = False
        try:
            self._inotify = Inotify()
        except OutOfWatches as error:
            self._limited(error)

    @property
    def descriptor(self) -> int | None:
        """Readable when something changed; None without inotify."""
        return None if self._inotify is None else self._inotify.fileno()

    def close(self) -> None:
        """End all watches."""
        inotify, self._inotify = self._inotify, None
        if inotify is not None:
            inotify.close()

    def watch_all(self, directory: Path) -> None:
        """Watch the directory of strategies; call `watch_strategy` for each strategy next."""
        self.complete = self._inotify is not None
        if self._inotify is None:
            return
        above: list[int | None] = [None]
        try:
            while (watch := self._inotify.watch(directory)) is None:
                nearest = next((p for p in directory.parents if os.path.exists(p)), Path("/"))
                above.append(self._inotify.watch(f"{nearest}/."))  # the root of a bus may be a link
                if above[-1] == above[-2]:
                    break  # nothing was created between the check and the watch
            self._assign(_ALL, watch)
        except OutOfWatches as error:
            self._limited(error)
        self._assign(_ABOVE, *above)

    def watch_strategy(self, strategy: str, directory: str) -> int | None:
        """Watch a strategy in its current state; return the watch of its `orders_out`, or None."""
        if self._inotify is None:
            return None
        watch = self._inotify.watch
        queue = f"{directory}/{ORDERS_OUT}"
        ready = f"{queue}/{READY}"
        held: list[int | None] = []
        try:
            held.append(watch(directory))
            held.append(watch(ready, 0))
            # If not ready, watch for READY. It may just have been created, so check it again.
            held.append(watch(queue, NAMES if held[1] is None else 0))
            if held[1] is None:
                held[1] = watch(ready, 0)
        except OutOfWatches as error:
            self._limited(error)
        self._assign(strategy, *held)
        return held[2] if len(held) > 2 else None

    def strategies(self) -> set[str]:
        """Return the watched strategies, including those removed while events were lost."""
        return self._by_owner.keys() - {_ALL, _ABOVE}

    def changed(self) -> set[str] | None:
        """Return the strategies to check; None if anything may have changed."""
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
                continue  # an event from before the watch ended
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

    def _assign(self, owner: str, *watches: int | None) -> None:
        """Make these the only watches of the owner."""
        held = {watch for watch in watches if watch is not None}
        for watch in self._by_owner.pop(owner, set()) - held:
            if self._owner.get(watch) == owner:  # else the path was renamed and has another owner
                del self._owner[watch]
                if self._inotify is not None:
                    self._inotify.unwatch(watch)
        for watch in held:
            self._owner[watch] = owner
        if held:
            self._by_owner[owner] = held

    def _limited(self, error: OutOfWatches) -> None:
        self.complete = False
        if not self._warned:
            self._warned = True
            _log.warning(
                "%s; only rescans find new strategies (raise "
                "fs.inotify.max_user_watches or max_user_instances)",
                error,
            )
