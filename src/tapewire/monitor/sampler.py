"""Samples all queues of a bus and derives rates, ages and alerts from successive samples."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from tapewire.errors import TapewireError
from tapewire.monitor.alerts import ERROR_COUNTERS, AlertHistory, Limits, find
from tapewire.monitor.snapshot import (
    Filesystem,
    QueueView,
    ReaderView,
    Snapshot,
    State,
    WriterView,
    printable,
)
from tapewire.queue.status import QueueStatus, QueueWatch, ReaderStatus, find_queues

__all__ = ["Watch"]

# How long an alert for an error counter is shown after the counter increased.
ERRORS_SHOWN_SECONDS = 60.0

_T = TypeVar("_T")


class _StatusSource(Protocol):
    def look(self) -> QueueStatus: ...


class _Changes(Generic[_T]):
    """How long a value has not changed, on the monotonic clock.

    A jump of the wall clock, with which heartbeats are stamped, does not affect the age.
    """

    def __init__(self, value: _T, now: float) -> None:
        self._value = value
        self._since = now

    def age(self, value: _T, now: float) -> float:
        if value != self._value:
            self._value, self._since = value, now
        return now - self._since


class _Rate:
    """Growth of a counter per second between two samples; None if unknown."""

    def __init__(self) -> None:
        self._before: tuple[float, int] | None = None

    def at(self, value: int | None, now: float) -> float | None:
        before, self._before = self._before, None if value is None else (now, value)
        if before is None or value is None or now <= before[0] or value < before[1]:
            return None  # the first sample, no value, or a new log
        return (value - before[1]) / (now - before[0])


class _ReaderHistory:
    def __init__(self, status: ReaderStatus, now: float, keep: int) -> None:
        self.heartbeat = _Changes(status.heartbeat_ns, now)
        self.rate = _Rate()
        self.samples: deque[tuple[float, int | None, int, float]] = deque(maxlen=keep)

    def view(self, status: ReaderStatus, now: float, limits: Limits) -> ReaderView:
        age = self.heartbeat.age(status.heartbeat_ns, now)
        return ReaderView(
            name=printable(status.name),
            state=_state(status.alive, age, limits.reader_ttl),
            pinned=status.pinned,
            next_seq=status.next_seq,
            lag_records=status.lag_records,
            lag_bytes=status.lag_bytes,
            lag_segments=status.lag_segments,
            lag_seconds=status.lag_seconds,
            records_per_second=self.rate.at(status.next_seq, now),
            heartbeat_age=age,
        )


class _ErrorCounters:
    """The error counters that increased in the last minute, and by how much."""

    def __init__(self, metrics: dict[str, int]) -> None:
        self._last = metrics
        self._risen: dict[str, tuple[int, float]] = {}

    def rising(self, metrics: dict[str, int], now: float) -> dict[str, int]:
        for counter in ERROR_COUNTERS:
            by = metrics.get(counter, 0) - self._last.get(counter, 0)
            if by > 0:  # a new writer starts at 0
                self._risen[counter] = (self._risen.get(counter, (0, 0.0))[0] + by, now)
        self._last = metrics
        self._risen = {
            counter: (by, at)
            for counter, (by, at) in self._risen.items()
            if now - at < ERRORS_SHOWN_SECONDS
        }
        return {counter: by for counter, (by, _) in self._risen.items()}


class _QueueHistory:
    """The earlier samples of a queue, and what is derived from them."""

    def __init__(self, name: str, path: str, source: _StatusSource, keep: int) -> None:
        self.name = name
        self.path = path
        self.source = source
        self.readers: dict[str, _ReaderHistory] = {}
        self.samples: deque[tuple[float, float | None, float | None]] = deque(maxlen=keep)
        self.rising: dict[str, int] = {}
        self.writer_was_alive = False
        self._keep = keep
        self._heartbeat: _Changes[tuple[int, int]] | None = None
        self._records = _Rate()
        self._bytes = _Rate()
        self._errors: _ErrorCounters | None = None

    def sample(self, now: float, uptime: float, limits: Limits) -> QueueView:
        try:
            status = self.source.look()
        except (TapewireError, OSError) as error:
            return QueueView(name=self.name, path=printable(self.path), error=printable(str(error)))
        view = self._view(status, now, limits)
        self.samples.append((uptime, view.records_per_second, view.bytes_per_second))
        for status_of_reader, reader in zip(status.readers, view.readers, strict=True):
            self.readers[status_of_reader.name].samples.append(
                (uptime, reader.lag_records, reader.lag_bytes, reader.lag_seconds)
            )
        return view

    def _view(self, status: QueueStatus, now: float, limits: Limits) -> QueueView:
        metrics = status.metrics
        # The position counts every byte, with padding and headers, and increases over rolls. If the
        # end was not found there is none: the next sample would count the complete log as new.
        unknown = status.last_seq is None and status.problems
        position = status.end_segment * status.segment_bytes + status.end_offset
        return QueueView(
            name=self.name,
            path=printable(self.path),
            sparse=status.sparse,
            ready=status.ready,
            segment_bytes=status.segment_bytes,
            segments=len(status.segments),
            disk_bytes=status.disk_bytes,
            first_available_seq=status.first_available_seq,
            last_seq=status.last_seq,
            last_timestamp_ns=status.last_timestamp_ns,
            records=status.records,
            records_per_second=self._records.at(_count(status), now),
            bytes_per_second=self._bytes.at(None if unknown else position, now),
            writer=self._writer(status, now, limits),
            readers=self._readers(status, now, limits),
            metrics=metrics,
            problems=tuple(printable(problem) for problem in status.problems),
        )

    def _writer(self, status: QueueStatus, now: float, limits: Limits) -> WriterView:
        writer = status.writer
        if self._heartbeat is None:
            self._heartbeat = _Changes((writer.epoch, writer.heartbeat_ns), now)
        age = self._heartbeat.age((writer.epoch, writer.heartbeat_ns), now)
        self.writer_was_alive |= writer.alive
        if status.metrics is not None:
            self._errors = self._errors or _ErrorCounters(status.metrics)
            self.rising = self._errors.rising(status.metrics, now)
        state = _state(writer.alive, age, limits.writer_ttl)
        if state == "dead" and not writer.killed:
            state = "closed"
        return WriterView(state, writer.pid, writer.epoch, age)

    def _readers(self, status: QueueStatus, now: float, limits: Limits) -> tuple[ReaderView, ...]:
        before, self.readers = self.readers, {}
        for reader in status.readers:
            self.readers[reader.name] = before.get(reader.name) or _ReaderHistory(
                reader, now, self._keep
            )
        return tuple(
            self.readers[reader.name].view(reader, now, limits) for reader in status.readers
        )


def _count(status: QueueStatus) -> int | None:
    """Return a count that increases by 1 with each record; None if unknown."""
    if status.sparse:  # sequence numbers skip; the writer's count is at most 100 ms old
        return (status.metrics or {}).get("records")
    if status.last_seq is not None:
        return status.last_seq + 1
    return status.first_seq if status.records == 0 else None


def _state(alive: bool, heartbeat_age: float, ttl: float) -> State:
    if not alive:
        return "dead"
    return "stale" if heartbeat_age > ttl else "live"


class Watch:
    """Watches all queues below a root, without writing to them and without a thread.

    Rates, ages and alerts are derived from successive samples, so the first sample has no rates.
    The age of a heartbeat is the time during which its value has not changed, on this process's
    monotonic clock. Several threads may use one watch.

    Args:
        root: The directory of a bus, or one queue.
        limits: The limits beyond which there is an alert.
        history: Number of samples kept for plots.

    Example:
        >>> import tapewire as tw
        >>> with tw.open_publisher(tmp / "md", segment_bytes=1 << 20) as writer:
        ...     _ = writer.append(1, b"a"), writer.append(1, b"b")
        ...     snapshot = Watch(tmp).sample()
        >>> (queue,) = snapshot.queues
        >>> queue.name, queue.last_seq, queue.writer.state
        ('md', 1, 'live')

    Raises:
        FileNotFoundError: The directory does not exist.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        limits: Limits | None = None,
        history: int = 300,
        _find: Callable[[str, Callable[[OSError], object]], list[str]] = find_queues,
        _watch: Callable[[str], _StatusSource] = QueueWatch,
        _clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.root = os.path.abspath(root)
        if not os.path.isdir(self.root):
            raise FileNotFoundError(2, "no such directory", self.root)
        self.limits = limits or Limits()
        self._keep = history
        self._find = _find
        self._watch = _watch
        self._clock = _clock
        self._began = _clock()
        self._queues: dict[str, _QueueHistory] = {}  # by path
        self._alerts = AlertHistory()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Watch({self.root!r}, queues={len(self._queues)})"

    def sample(self) -> Snapshot:
        """Sample all queues now; new ones are added, removed ones dropped.

        Raises:
            FileNotFoundError: The root no longer exists.
        """
        with self._lock:
            return self._sample()

    def _sample(self) -> Snapshot:
        began = self._clock()
        time_ns = time.time_ns()
        unlisted: list[OSError] = []
        paths = self._find(self.root, unlisted.append)  # if it raises, the histories are kept
        before, self._queues = self._queues, {}
        for path in paths:
            self._queues[path] = before.get(path) or _QueueHistory(
                self._name(path, paths), path, self._watch(path), self._keep
            )
        uptime = began - self._began
        # The clock is read for each queue: 50 samples take a while, and rates depend on the time.
        queues = tuple(
            queue.sample(self._clock(), uptime, self.limits) for queue in self._queues.values()
        )
        filesystems = self._filesystems()
        findings = find(
            queues,
            filesystems,
            limits=self.limits,
            was_alive={q.name for q in self._queues.values() if q.writer_was_alive},
            rising={q.name: q.rising for q in self._queues.values()},
            unlisted={printable(str(e.filename)): e.strerror or "" for e in unlisted},
        )
        return Snapshot(
            root=printable(self.root),
            time_ns=time_ns,
            uptime=uptime,
            look_seconds=self._clock() - began,
            queues=queues,
            filesystems=filesystems,
            alerts=self._alerts.update(findings, time_ns, began),
        )

    def history(self) -> dict[str, Any]:
        """Return the samples so far as columns, by queue and reader, as values for JSON.

        Each queue has ``uptime``, ``records_per_second``, ``bytes_per_second`` and ``readers``;
        each reader ``uptime``, ``lag_records``, ``lag_bytes`` and ``lag_seconds``.
        """
        with self._lock:
            return {
                queue.name: {
                    **_columns(queue.samples, ("uptime", "records_per_second", "bytes_per_second")),
                    "readers": {
                        printable(name): _columns(
                            reader.samples, ("uptime", "lag_records", "lag_bytes", "lag_seconds")
                        )
                        for name, reader in queue.readers.items()
                    },
                }
                for queue in self._queues.values()
            }

    def lag_history(self, queue: str, reader: str) -> list[int]:
        """Return the lags of a reader in bytes, oldest first; empty for an unknown reader."""
        with self._lock:
            for history in self._queues.values():
                if history.name == queue:
                    for name, of_reader in history.readers.items():
                        if printable(name) == reader:
                            return [lag_bytes for _, _, lag_bytes, _ in of_reader.samples]
        return []

    def _name(self, path: str, paths: list[str]) -> str:
        name = os.path.relpath(path, self.root)
        own = os.path.basename(self.root)
        # The name of the root, unless a queue below it has that name: names are keys.
        if name == "." and own and os.path.join(self.root, own) not in paths:
            name = own
        return printable(name)

    def _filesystems(self) -> tuple[Filesystem, ...]:
        found: dict[int, Filesystem] = {}
        for path in self._queues:
            try:
                device = os.stat(path).st_dev
                if device in found:
                    continue
                blocks = os.statvfs(path)
            except OSError:  # removed meanwhile; the next sample will not have it
                continue
            found[device] = Filesystem(
                printable(_mount_point(path)),
                blocks.f_blocks * blocks.f_frsize,
                blocks.f_bavail * blocks.f_frsize,
            )
        return tuple(found.values())


def _mount_point(path: str) -> str:
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def _columns(rows: deque[tuple[Any, ...]], names: tuple[str, ...]) -> dict[str, list[Any]]:
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}
