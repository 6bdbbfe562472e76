"""The archive logs that a process has open: at most so many, closed in order of last use."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Generic, TypeVar

from tapewire.archive.log_writer import LogWriter

__all__ = ["OpenLogs"]

_Key = TypeVar("_Key", bound=Hashable)
_Log = TypeVar("_Log", bound=LogWriter)


class OpenLogs(Generic[_Key, _Log]):
    """Logs by key, at most `most` of them open.

    A log is closed only when it is durable. If its sync fails, it stays open and dirty, and `sync`
    tries again, so that nothing is committed before every log is durable.

    Args:
        most: How many logs may be open; may be changed later.
        sync_threads: How many logs are synced at the same time.
    """

    def __init__(self, most: int, *, sync_threads: int = 1) -> None:
        self.most = most
        self._open: OrderedDict[_Key, tuple[_Log, float]] = OrderedDict()  # and when it was used
        self._pool = (
            ThreadPoolExecutor(sync_threads, "tapewire-archive-sync") if sync_threads > 1 else None
        )

    def __len__(self) -> int:
        return len(self._open)

    def get(self, key: _Key, open_log: Callable[[], _Log]) -> _Log:
        """The log of this key. If it is not open, another one may be closed, and it is opened."""
        if key in self._open:
            log, _ = self._open[key]
        else:
            while len(self._open) >= self.most:
                self.close_logs([next(iter(self._open))])
            log = open_log()
        self._open[key] = (log, time.monotonic())
        self._open.move_to_end(key)
        return log

    def sync(self) -> None:
        """Make everything appended so far durable."""
        self._each([log for log, _ in self._open.values() if log.dirty], lambda log: log.sync())

    def close_logs(self, keys: Iterable[_Key]) -> None:
        """Close the logs of these keys that are open; if a sync fails, all of them stay open."""
        keys = [key for key in keys if key in self._open]
        logs = [self._open[key][0] for key in keys]
        self._each([log for log in logs if log.dirty], lambda log: log.sync())
        for key in keys:
            del self._open[key]
        self._each(logs, lambda log: log.close())

    def close_idle(self, seconds: float) -> None:
        """Close the logs that were not used for so long."""
        before = time.monotonic() - seconds
        self.close_logs([key for key, (_, used) in self._open.items() if used < before])

    def close(self) -> None:
        """Sync and close every log, whatever fails. Closing twice is fine."""
        logs = [log for log, _ in self._open.values()]
        try:
            self._each(logs, lambda log: log.close())
        finally:
            self._open.clear()
            if self._pool is not None:
                self._pool.shutdown()

    def _each(self, logs: list[_Log], work: Callable[[_Log], None]) -> None:
        """Do this to every log; then raise the first error, if there was one."""
        attempt = partial(_error_of, work)
        pool = self._pool if len(logs) > 1 else None
        attempts = map(attempt, logs) if pool is None else pool.map(attempt, logs)
        for error in [error for error in attempts if error is not None]:
            raise error


def _error_of(work: Callable[[_Log], None], log: _Log) -> Exception | None:
    try:
        work(log)
    except Exception as error:  # raised when all logs had their turn
        return error
    return None
