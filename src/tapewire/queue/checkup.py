"""What is wrong with a queue from outside, what to do about it, and doing it where that is safe."""

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

__all__ = ["CheckupRules", "QueueFinding", "examine", "mend"]


@dataclass(frozen=True)
class CheckupRules:
    """From when on something is a finding.

    Attributes:
        reader_ttl: A reader that nobody holds is dead when it has been silent for so many seconds.
        max_lag_bytes: A reader that is further behind lags.
    """

    reader_ttl: float = 0.0
    max_lag_bytes: int = 10 << 30

    def __post_init__(self) -> None:
        check_at_least("reader_ttl", self.reader_ttl, 0)
        check_at_least("max_lag_bytes", self.max_lag_bytes, 0)


@dataclass(frozen=True)
class QueueFinding:
    """One thing that is not as it should be.

    Attributes:
        queue: Path of the queue.
        kind: What it is: "sync-failed", "stale-lock", "temporary-file", "unsealed-segment",
            "dead-reader", "dead-pinned-reader", "lagging-reader", "stale-marks", "problem", and as
            notes "retention-candidates" and "damaged-copies".
        subject: The file, reader or segment it is about.
        message: What was seen.
        remedy: What to do.
        mendable: `mend` can do it.
        note: Worth knowing, nothing to be done.
        heartbeat_ns: Of the reader it is about, so that one that came back is left alone.
    """

    queue: str
    kind: str
    subject: str
    message: str
    remedy: str
    mendable: bool = False
    note: bool = False
    heartbeat_ns: int | None = None


def examine(seen: QueueStatus, rules: CheckupRules = CheckupRules()) -> list[QueueFinding]:  # noqa: B008
    """Everything that is wrong with a queue, and notes; each once.

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
        QueueFinding(
            seen.path, "problem", "", line, "see what `tapewire verify` and `tapewire repair` say"
        )
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
                "start the writer again; or clear its name from the lock",
                mendable=True,
            )
        )
    found += [
        QueueFinding(
            seen.path,
            "temporary-file",
            os.path.basename(path),
            f"a killed writer left it half-made: {os.path.basename(path)}",
            "start the writer again; or remove the file",
            mendable=True,
        )
        for path in seen.temporary_files
    ]
    found += [
        QueueFinding(
            seen.path,
            "unsealed-segment",
            str(segment.id),
            f"segment {segment.id} is not sealed, and the log goes on to segment "
            f"{seen.end_segment}",
            "start the writer again; or let `tapewire repair` seal it",
            mendable=True,
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
                f"marked by {' and '.join(marks)}, but nobody writes it",
                "start its process again; or remove the marks",
                mendable=True,
            )
        )
    return found


def _holder_lives(lease: dict[str, Any] | None) -> bool:
    """Whether the process that a LEASE names runs: it may be about to open the writer."""
    pid, ticks = (lease or {}).get("pid"), (lease or {}).get("start_time_ticks")
    if type(pid) is not int or type(ticks) is not int or not 0 < pid < 1 << 31:
        return False
    return process_start_ticks(pid) == ticks


def _is_dead(reader: ReaderStatus, rules: CheckupRules) -> bool:
    # At 0 the lock alone decides, whatever the clock says.
    silent = reader.heartbeat_age > rules.reader_ttl
    return not reader.alive and (silent or rules.reader_ttl == 0)


def _of_reader(seen: QueueStatus, reader: ReaderStatus, rules: CheckupRules) -> list[QueueFinding]:
    lag = "unknown" if reader.lag_records is None else f"{reader.lag_records:,} records"
    silent = f"silent for {reader.heartbeat_age:,.0f} s, lag {lag}"
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
                "start it again; or forget it and its position",
                mendable=True,
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
                "make it faster, or seek it to the end",
            )
        ]
    return []


def _notes(seen: QueueStatus) -> list[QueueFinding]:
    notes = []
    # As retention itself: without any reader nothing is known to be done with.
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
                f"recovery has mended segments and kept them as they were: {names}",
                "look into them or remove them",
                note=True,
            )
        )
    return notes


def mend(finding: QueueFinding) -> list[str]:
    """Do what a mendable finding asks for, holding the lock of the dead meanwhile; what was done.

    Raises:
        WriterAlreadyActive: The queue has got a writer since.
        ReaderAlreadyActive: The reader has come back.
    """
    if finding.kind == "dead-reader":
        try:
            removed = remove_reader(finding.queue, finding.subject, finding.heartbeat_ns)
        except StorageError as error:
            if isinstance(error, FileNotFoundError):
                return [f"reader '{finding.subject}' is gone already"]
            raise
        if not removed:
            return [f"reader '{finding.subject}' has come back since: left alone"]
        return [f"forgot reader '{finding.subject}'"]
    if finding.kind == "unsealed-segment":
        return list(repair(finding.queue).actions)
    with Upkeep(finding.queue) as upkeep:
        if finding.kind == "stale-lock":
            upkeep.clear_owner()
            return ["cleared the killed writer's name from writer.lock"]
        if finding.kind == "temporary-file":
            return [f"removed {os.path.basename(p)}" for p in upkeep.remove_temporary_files()]
        if finding.kind == "stale-marks":
            if _holder_lives(status(finding.queue).lease):
                return ["who left the marks has come back since: left alone"]
            for name in ("READY", "LEASE"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(finding.queue, name))
            return [f"removed {finding.subject}"]
    raise ValueError(f"this cannot be mended: kind={finding.kind!r}")
