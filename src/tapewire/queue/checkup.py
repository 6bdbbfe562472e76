"""Find problems of a queue from outside, suggest remedies, and apply those that are safe."""

from __future__ import annotations

import contextlib
import os
import shlex
from dataclasses import dataclass
from typing import Any

from tapewire._native import process_start_ticks
from tapewire.config import check_at_least
from tapewire.errors import StorageError
from tapewire.queue._native import Upkeep, remove_reader
from tapewire.queue.repair import repair
from tapewire.queue.status import QueueStatus, ReaderStatus, status

__all__ = ["CheckupRules", "QueueFinding", "apply_remedy", "examine"]


@dataclass(frozen=True)
class CheckupRules:
    """Thresholds of the findings.

    Attributes:
        reader_ttl: Seconds without a heartbeat after which a reader that no process holds is dead.
        max_lag_bytes: Lag above which a reader is reported.
    """

    reader_ttl: float = 0.0
    max_lag_bytes: int = 10 << 30

    def __post_init__(self) -> None:
        check_at_least("reader_ttl", self.reader_ttl, 0)
        check_at_least("max_lag_bytes", self.max_lag_bytes, 0)


@dataclass(frozen=True)
class QueueFinding:
    """One problem of a queue, or a note.

    Attributes:
        queue: Path of the queue.
        kind: One of "sync-failed", "stale-lock", "temporary-file", "unsealed-segment",
            "dead-reader", "dead-pinned-reader", "lagging-reader", "stale-marks", "problem"; of
            notes "retention-candidates" and "damaged-copies".
        subject: The file, reader or segment it is about.
        message: What was found.
        remedy: What to do.
        fixable: Whether `apply_remedy` can apply the remedy.
        note: For information; nothing needs to be done.
        heartbeat_ns: Last heartbeat of the reader, to detect that it has come back since.
    """

    queue: str
    kind: str
    subject: str
    message: str
    remedy: str
    fixable: bool = False
    note: bool = False
    heartbeat_ns: int | None = None


def examine(seen: QueueStatus, rules: CheckupRules = CheckupRules()) -> list[QueueFinding]:  # noqa: B008
    """List the problems of a queue, then the notes.

    Example:
        >>> import tapewire as tw
        >>> from tapewire.queue.checkup import examine
        >>> from tapewire.queue.status import status
        >>> tw.open_publisher(tmp / "q", segment_bytes=1 << 20).close()
        >>> (tmp / "q" / "000000001.q.tmp").touch()
        >>> [finding.kind for finding in examine(status(tmp / "q"))]
        ['temporary-file']
    """
    found = [
        QueueFinding(seen.path, "problem", "", line, "run `tapewire verify` or `tapewire repair`")
        for line in seen.problems
    ]
    if seen.sync_errno:
        found.append(_failed_sync(seen))
    if not seen.writer.alive:
        found += _left_by_writer(seen)
    for reader in seen.readers:
        found += _of_reader(seen, reader, rules)
    return found + _notes(seen)


def _failed_sync(seen: QueueStatus) -> QueueFinding:
    since = (
        "the checkpoint"
        if seen.checkpoint is None
        else "segment {}, offset {}".format(*seen.checkpoint)
    )
    return QueueFinding(
        seen.path,
        "sync-failed",
        "control.meta",
        f"a sync failed: {os.strerror(seen.sync_errno)}, errno={seen.sync_errno}; records since "
        f"{since} may not be on disk",
        "check the disk and its free space, then close and open the writer: its first flush_sync "
        "writes them again",
    )


def _left_by_writer(seen: QueueStatus) -> list[QueueFinding]:
    found = []
    if seen.writer.killed:
        found.append(
            QueueFinding(
                seen.path,
                "stale-lock",
                "writer.lock",
                f"the writer was killed: pid={seen.writer.pid}, epoch={seen.writer.epoch}",
                "start the writer again; or remove its name from the lock",
                fixable=True,
            )
        )
    found += [
        QueueFinding(
            seen.path,
            "temporary-file",
            os.path.basename(path),
            f"a killed writer left an unfinished file: {os.path.basename(path)}",
            "start the writer again; or remove the file",
            fixable=True,
        )
        for path in seen.temporary_files
    ]
    found += [
        QueueFinding(
            seen.path,
            "unsealed-segment",
            str(segment.id),
            f"segment {segment.id} is not sealed, but the log continues to segment "
            f"{seen.end_segment}",
            "start the writer again; or seal it with `tapewire repair`",
            fixable=True,
        )
        for segment in seen.segments
        if segment.readable and not segment.sealed and segment.id < seen.end_segment
    ]
    there = (("READY", seen.ready), ("LEASE", seen.lease is not None))
    marks = [name for name, is_there in there if is_there]
    if marks and not _holder_lives(seen.lease):
        found.append(
            QueueFinding(
                seen.path,
                "stale-marks",
                " ".join(marks),
                f"marked by {' and '.join(marks)}, but no process writes it",
                "start its process again; or remove the marks",
                fixable=True,
            )
        )
    return found


def _holder_lives(lease: dict[str, Any] | None) -> bool:
    """Whether the process named in LEASE is running: it may be about to open the writer."""
    pid, ticks = (lease or {}).get("pid"), (lease or {}).get("start_time_ticks")
    if type(pid) is not int or type(ticks) is not int or not 0 < pid < 1 << 31:
        return False
    return process_start_ticks(pid) == ticks


def _is_dead(reader: ReaderStatus, rules: CheckupRules) -> bool:
    # At 0 the lock alone decides, regardless of the clock.
    silent = reader.heartbeat_age > rules.reader_ttl
    return not reader.alive and (silent or rules.reader_ttl == 0)


def _of_reader(seen: QueueStatus, reader: ReaderStatus, rules: CheckupRules) -> list[QueueFinding]:
    lag = "unknown" if reader.lag_records is None else f"{reader.lag_records:,} records"
    silent = f"no heartbeat for {reader.heartbeat_age:,.0f} s, lag {lag}"
    if _is_dead(reader, rules) and reader.pinned:
        return [
            QueueFinding(
                seen.path,
                "dead-pinned-reader",
                reader.name,
                f"pinned reader '{reader.name}' is not running ({silent}); retention waits for it",
                "start it again; or "
                f"`tapewire readers rm {shlex.quote(seen.path)} {reader.name} --yes`",
            )
        ]
    if _is_dead(reader, rules):
        return [
            QueueFinding(
                seen.path,
                "dead-reader",
                reader.name,
                f"reader '{reader.name}' is not running ({silent})",
                "start it again; or remove it and its position",
                fixable=True,
                heartbeat_ns=reader.heartbeat_ns,
            )
        ]
    if reader.lag_bytes > rules.max_lag_bytes:
        return [
            QueueFinding(
                seen.path,
                "lagging-reader",
                reader.name,
                f"reader '{reader.name}' lags by {reader.lag_bytes:,} bytes, {lag}",
                "make it faster, or move it to the end with seek_end()",
            )
        ]
    return []


def _notes(seen: QueueStatus) -> list[QueueFinding]:
    notes = []
    # As in retention: without a reader no record is known to be processed.
    floor = min([*(r.segment for r in seen.readers), seen.end_segment]) if seen.readers else 0
    spare = [segment for segment in seen.segments if segment.id < floor]
    if spare:
        notes.append(
            QueueFinding(
                seen.path,
                "retention-candidates",
                f"{spare[0].id}..{spare[-1].id}",
                f"{len(spare)} segments, {sum(s.bytes for s in spare):,} bytes, that every "
                "reader has committed past",
                "a writer with retention=tw.Retention() removes them",
                note=True,
            )
        )
    if seen.damaged_copies:
        names = ", ".join(map(os.path.basename, seen.damaged_copies))
        notes.append(
            QueueFinding(
                seen.path,
                "damaged-copies",
                names,
                f"recovery has repaired segments and kept copies of the originals: {names}",
                "inspect or remove them",
                note=True,
            )
        )
    return notes


def apply_remedy(finding: QueueFinding) -> list[str]:
    """Apply the remedy of a fixable finding under the dead process's lock; return what was done.

    Raises:
        WriterAlreadyActive: A writer has opened the queue since.
        ReaderAlreadyActive: The reader is running again.
    """
    if finding.kind == "dead-reader":
        try:
            removed = remove_reader(finding.queue, finding.subject, finding.heartbeat_ns)
        except StorageError as error:
            if isinstance(error, FileNotFoundError):
                return [f"reader '{finding.subject}' no longer exists"]
            raise
        if not removed:
            return [f"reader '{finding.subject}' has been running since: not removed"]
        return [f"removed reader '{finding.subject}'"]
    if finding.kind == "unsealed-segment":
        return list(repair(finding.queue).actions)
    with Upkeep(finding.queue) as upkeep:
        if finding.kind == "stale-lock":
            upkeep.clear_owner()
            return ["removed the killed writer's name from writer.lock"]
        if finding.kind == "temporary-file":
            return [f"removed {os.path.basename(p)}" for p in upkeep.remove_temporary_files()]
        if finding.kind == "stale-marks":
            if _holder_lives(status(finding.queue).lease):
                return ["the process that left the marks is running again: not removed"]
            for name in ("READY", "LEASE"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(finding.queue, name))
            return [f"removed {finding.subject}"]
    raise ValueError(f"no automatic remedy: kind={finding.kind!r}")
