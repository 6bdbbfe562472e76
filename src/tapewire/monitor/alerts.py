"""Alerts: problems on a bus, each with a remedy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from tapewire.errors import InvalidOption

if TYPE_CHECKING:
    from tapewire.monitor.snapshot import Filesystem, QueueView, ReaderView

__all__ = ["ERROR_COUNTERS", "Alert", "AlertHistory", "Limits", "Observation", "find"]

Severity = Literal["info", "warning", "critical"]
_ORDER = {"critical": 0, "warning": 1, "info": 2}

# Counters of stats.meta that count errors, and what to do when one increases.
ERROR_COUNTERS = {
    "prealloc_errors": "check the free space and the permissions of the queue's directory",
    "seal_errors": "syncing to disk fails: check the kernel log",
    "flush_errors": "syncing to disk fails: check the kernel log",
    "index_errors": "seeks are slower, no data is lost: check the free space",
    "retention_errors": "a file could not be removed: check permissions of the queue's directory",
    "queue_full": "a limit is reached: speed up its readers, or raise max_bytes or max_segments",
    "disk_full": "free space on this filesystem; appends resume automatically",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits beyond which there is an alert.

    Attributes:
        writer_ttl: Seconds without a new heartbeat of a writer, which has one every 0.1 s.
        reader_ttl: Seconds without a new heartbeat of a reader, which has one every 1 s.
        lag_records: Lag of a reader in records.
        lag_bytes: Lag of a reader in bytes.
        lag_seconds: Lag of a reader in seconds, by the timestamps of the log.
        disk_warning: Used share of a filesystem for a warning.
        disk_critical: Used share of a filesystem for a critical alert.

    Example:
        >>> Limits(lag_seconds=0.5).lag_seconds
        0.5
    """

    writer_ttl: float = 2.0
    reader_ttl: float = 5.0
    lag_records: int = 1_000_000
    lag_bytes: int = 1 << 30
    lag_seconds: float = 10.0
    disk_warning: float = 0.90
    disk_critical: float = 0.97

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 < value < math.inf:
                raise InvalidOption(
                    f"{field.name} must be above 0 and finite: {field.name}={value!r}"
                )


@dataclass(frozen=True, slots=True)
class Observation:
    """A problem found in one sample, identified by its kind and place."""

    kind: str
    severity: Severity
    queue: str | None
    reader: str | None
    path: str | None  # of a filesystem or directory, if it is about one
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Alert(Observation):
    """An observation, and since when it has been made."""

    since_ns: int  # wall clock of the first sample that had it
    age: float  # seconds since then, on the monotonic clock


class AlertHistory:
    """Keeps since when each observation has been made, while it is made in every sample."""

    def __init__(self) -> None:
        self._since: dict[tuple[str | None, ...], tuple[int, float]] = {}

    def update(
        self, findings: Iterable[Observation], time_ns: int, now: float
    ) -> tuple[Alert, ...]:
        """Return the observations of a sample as alerts, the worst and then the oldest first."""
        before, self._since = self._since, {}
        alerts = []
        for found in findings:
            key = (found.kind, found.queue, found.reader, found.path)
            since_ns, since = self._since[key] = before.get(key, (time_ns, now))
            known = {field.name: getattr(found, field.name) for field in fields(found)}
            alerts.append(Alert(**known, since_ns=since_ns, age=now - since))
        alerts.sort(key=lambda alert: (_ORDER[alert.severity], alert.since_ns, alert.queue or ""))
        return tuple(alerts)


def find(
    queues: Iterable[QueueView],
    filesystems: Iterable[Filesystem],
    *,
    limits: Limits,
    was_alive: set[str],
    rising: dict[str, dict[str, int]],
    unlisted: dict[str, str],
) -> Iterator[Observation]:
    """Find all problems in a sample.

    Args:
        queues: The queues.
        filesystems: The filesystems of the queues.
        limits: The limits beyond which there is an alert.
        was_alive: Names of queues whose writer was seen alive; for these a closed writer is
            reported.
        rising: By queue, the error counters that increased recently, and by how much.
        unlisted: Directories that could not be listed, with the reason.
    """
    for path, why in unlisted.items():
        yield Observation(
            "directory_unreadable",
            "warning",
            None,
            None,
            path,
            f"cannot list the directory {path}: {why}",
            "queues in it are not shown: check its owner and permissions",
        )
    for disk in filesystems:
        yield from _disk(disk, limits)
    for queue in queues:
        yield from _queue(queue, limits, queue.name in was_alive, rising.get(queue.name, {}))
        for reader in queue.readers:
            yield from _reader(queue, reader, limits)


def _disk(disk: Filesystem, limits: Limits) -> Iterator[Observation]:
    if disk.used_share < limits.disk_warning:
        return
    yield Observation(
        "disk_nearly_full",
        "critical" if disk.used_share >= limits.disk_critical else "warning",
        None,
        None,
        disk.path,
        f"the filesystem at {disk.path} is {disk.used_share:.0%} full",
        "free space on it, or enable retention",
    )


def _queue(
    queue: QueueView, limits: Limits, was_alive: bool, rising: dict[str, int]
) -> Iterator[Observation]:
    def finding(kind: str, severity: Severity, text: str, remedy: str) -> Observation:
        return Observation(kind, severity, queue.name, None, None, f"{queue.name}: {text}", remedy)

    if queue.error is not None:
        yield finding("queue_unreadable", "critical", queue.error, "run: tapewire doctor")
        return
    writer = queue.writer
    if writer is not None and writer.state == "dead":
        yield finding(
            "writer_dead",
            "critical",
            f"the writer (pid {writer.pid}) ended without closing the queue",
            "start it again: it repairs the end of the log and continues there",
        )
    elif writer is not None and writer.state == "closed" and was_alive:
        yield finding(
            "writer_closed", "info", "the writer was closed", "start it if one should run"
        )
    elif writer is not None and writer.state == "stale":
        yield finding(
            "writer_stale",
            "critical",
            f"the writer (pid {writer.pid}) is alive, but its heartbeat has not changed for more "
            f"than {limits.writer_ttl:g} s",
            "it is stopped or hung, or the machine is overloaded: check the process",
        )
    if queue.problems:
        more = f" (and {len(queue.problems) - 1} more)" if len(queue.problems) > 1 else ""
        yield finding(
            "queue_problem", "warning", queue.problems[0] + more, "run: tapewire doctor, verify"
        )
    for counter, by in rising.items():
        yield finding(f"{counter}_rising", "warning", f"{counter} +{by}", ERROR_COUNTERS[counter])
    metrics = queue.metrics or {}
    for counter in ("damaged_spans", "gaps_found"):
        if metrics.get(counter):
            yield finding(
                counter,
                "warning",
                f"{counter}={metrics[counter]} when its writer was opened: data was lost",
                "run: tapewire verify",
            )


def _reader(queue: QueueView, reader: ReaderView, limits: Limits) -> Iterator[Observation]:
    def finding(kind: str, severity: Severity, text: str, remedy: str) -> Observation:
        where = f"{queue.name}: reader {reader.name} {text}"
        return Observation(kind, severity, queue.name, reader.name, None, where, remedy)

    if reader.state == "dead" and reader.pinned:
        yield finding(
            "reader_dead",
            "warning",
            "is not running, and pinned: no segment from its position on is deleted",
            "start it, or remove it: tapewire readers rm",
        )
    elif reader.state == "dead":
        caught_up = reader.lag_bytes == 0
        yield finding(
            "reader_dead",
            "info" if caught_up else "warning",
            "is not running" + (", caught up" if caught_up else ""),
            "start it, or remove it: tapewire readers rm",
        )
    elif reader.state == "stale":
        yield finding(
            "reader_stale",
            "critical",
            f"is alive, but its heartbeat has not changed for more than {limits.reader_ttl:g} s",
            "it is stopped or hung: check the process; retention may overtake it",
        )
    over = [
        f"{value:,.{digits}f} {unit} (limit {limit:,.{digits}f})"
        for value, limit, unit, digits in (
            (reader.lag_records or 0, limits.lag_records, "records", 0),
            (reader.lag_bytes, limits.lag_bytes, "bytes", 0),
            (reader.lag_seconds, limits.lag_seconds, "s", 1),
        )
        if value > limit
    ]
    if over:
        yield finding(
            "reader_lagging",
            "warning",
            "lags by " + ", ".join(over),
            "it is slower than the writer: give it a core, or reduce its work for each record",
        )
