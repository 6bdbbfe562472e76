"""Where a replay begins: at the start of a log, or behind the latest snapshot that holds."""

from __future__ import annotations

from pathlib import Path
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
    "begins_late",
    "first_seq_after",
    "is_of_log",
    "next_record",
    "stand_behind",
    "time_range",
    "warm_book",
]


class WarmBook(NamedTuple):
    """A snapshot that fits its log."""

    snapshot: Snapshot
    seq: int
    timestamp_ns: int


def time_range(
    time_from: TimeLike | None, time_to: TimeLike | None
) -> tuple[int | None, int | None]:
    """Both in nanoseconds.

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
    """The record that the reader stands before, past what is damaged; None at the end."""
    while True:
        try:
            record: Record | None = reader.next()
            return record
        except GapDetected:
            continue  # told once; the record comes next
        except (CorruptRecord, CorruptMetadata, SegmentMissing):
            if reader.skip_damaged().bytes == 0:
                return None


def first_seq_after(reader: Any, timestamp_ns: int) -> int | None:
    """Number of the first record at which the tape is later than this; None when it never was."""
    if not -(2**63) - 1 <= timestamp_ns < 2**63 - 1 or not reader.seek_time(timestamp_ns + 1):
        return None
    record = next_record(reader)
    return None if record is None else record.seq


def is_of_log(reader: Any, seq: int, timestamp_ns: int) -> bool:
    """Whether a snapshot of this record and time is of this very log.

    It is when its record is there with that time, or when the log, cut at its front, begins right
    behind it. Moves the reader.
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
    """The latest snapshot of a record below this number, of this very log; None without one."""
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
        path = Path(reader.path) / "snapshots" / str(venue_id) / str(market_id)
        why = f"its record is not in the log: seq={seq}, ingest_ts_ns_end={timestamp_ns}"
        snapshots.report(findings, path / f"snapshot_{seq}.bin", f"{why} [{path}]")
        below = seq
    return None


def stand_behind(reader: Any, seq: int) -> tuple[int, int] | None:
    """Put a reader behind a record that was read before.

    It gets there by reading that record, so that it meets what is missing behind it as any other
    reader does: a seek to the next one would pass over that without a word.

    Returns:
        ``(first, last)`` of what is gone where the record itself is gone, and more behind it.
    """
    reader.seek_seq(seq)
    record = next_record(reader)
    if record is not None and record.seq == seq:
        return None
    reader.seek_seq(seq + 1)
    if record is None or record.seq == seq + 1 or (reader.kind == "queue" and reader.sparse):
        return None
    return seq + 1, record.seq - 1


def begins_late(reader: Any) -> tuple[int, int] | None:
    """``(first, last)`` of the records that a queue has lost at its front, by retention."""
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
        return None  # nothing was retired: what is lost is damaged, and reading comes to it
    return (seen.first_seq, record.seq - 1) if seen.first_seq < record.seq else None
