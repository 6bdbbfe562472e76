"""Where a replay starts: at the start of a log, or after the latest valid snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tapewire.clock import to_ns
from tapewire.errors import (
    CorruptMetadata,
    CorruptRecord,
    GapDetected,
    InvalidOption,
    SegmentMissing,
)
from tapewire.log import Record
from tapewire.replay import snapshots
from tapewire.replay.snapshots import SkippedFile

if TYPE_CHECKING:
    from tapewire.clock import TimeLike
    from tapewire.protocol.instruments import Instrument
    from tapewire.replay._native import Snapshot

__all__ = [
    "WarmBook",
    "first_seq_after",
    "is_of_log",
    "missing_at_start",
    "move_past",
    "next_record",
    "time_range",
    "warm_book",
]


class WarmBook(NamedTuple):
    """A snapshot that matches its log."""

    snapshot: Snapshot
    seq: int
    timestamp_ns: int


def time_range(
    time_from: TimeLike | None, time_to: TimeLike | None
) -> tuple[int | None, int | None]:
    """Convert both to nanoseconds.

    Raises:
        InvalidOption: The range ends before it begins.
    """
    from_ns = None if time_from is None else to_ns(time_from)
    end_ns = None if time_to is None else to_ns(time_to)
    if from_ns is not None and end_ns is not None and end_ns < from_ns:
        raise InvalidOption(
            f"time_to must not be before time_from: time_from={time_from}, time_to={time_to}"
        )
    return from_ns, end_ns


def next_record(reader: Any) -> Record | None:
    """Return the next record, skipping damage; None at the end."""
    while True:
        try:
            record: Record | None = reader.next()
            return record
        except GapDetected:
            continue  # raised once; the record comes next
        except (CorruptRecord, CorruptMetadata, SegmentMissing):
            if reader.skip_damaged().bytes == 0:
                return None


def first_seq_after(reader: Any, timestamp_ns: int) -> int | None:
    """Return the first record at which the log is later than this time; None if there is none."""
    if not -(2**63) - 1 <= timestamp_ns < 2**63 - 1 or not reader.seek_time(timestamp_ns + 1):
        return None
    record = next_record(reader)
    return None if record is None else record.seq


def is_of_log(reader: Any, seq: int, timestamp_ns: int) -> bool:
    """Whether a snapshot of this record and time is of this log.

    It is if the record exists with that time, or if the log starts with the next record, retention
    having removed this one. Moves the reader.
    """
    reader.seek_seq(seq)
    record = next_record(reader)
    if record is None or record.seq > seq + 1:
        return False
    return record.seq == seq + 1 or record.timestamp_ns == timestamp_ns


def warm_book(
    reader: Any,
    venue_id: int,
    market_id: int,
    below_seq: int | None,
    findings: list[SkippedFile] | None = None,
    *,
    instrument: Instrument | None = None,
) -> WarmBook | None:
    """Return the latest snapshot of this log before record `below_seq`, or None."""
    below = below_seq
    while below is None or below > 0:
        last = None if below is None else below - 1
        found = snapshots.latest_before(
            reader.path, venue_id, market_id, seq=last, instrument=instrument, findings=findings
        )
        if found is None:
            return None
        seq, timestamp_ns = found.header["seq"], found.header["ingest_end_ns"]
        if is_of_log(reader, seq, timestamp_ns):
            return WarmBook(found, seq, timestamp_ns)
        path = snapshots.path_of(reader.path, venue_id, market_id, seq)
        why = f"the log does not have its record: seq={seq}, ingest_ts_ns_end={timestamp_ns}"
        snapshots.report(findings, path, f"{why} [{path.parent}]")
        below = seq
    return None


def move_past(reader: Any, seq: int) -> tuple[int, int] | None:
    """Move a reader past a record that was read before.

    It reads the record, so that a gap after it is detected as by any other reader; a seek to the
    next record would skip the gap silently.

    Returns:
        ``(first, last)`` of the missing records if the record itself and later ones are gone.
    """
    reader.seek_seq(seq)
    record = next_record(reader)
    if record is not None and record.seq == seq:
        return None
    reader.seek_seq(seq + 1)
    if record is None or record.seq == seq + 1 or (reader.kind == "queue" and reader.sparse):
        return None
    return seq + 1, record.seq - 1


def missing_at_start(reader: Any) -> tuple[int, int] | None:
    """Return ``(first, last)`` of the records that retention removed from a queue, or None."""
    if reader.kind != "queue" or reader.sparse:
        return None
    if not reader.seek_start():
        return None
    record = next_record(reader)
    reader.seek_start()
    if record is None or record.seq == 0:
        return None
    from tapewire.queue import status

    seen = status(reader.path)
    if seen.segments and seen.segments[0].id == 0:
        return None  # nothing was retired: what is lost is damaged, and the reader will report it
    return (seen.first_seq, record.seq - 1) if seen.first_seq < record.seq else None
