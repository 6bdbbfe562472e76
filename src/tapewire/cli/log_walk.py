"""Reading a log for a command: past damage, and its last records without reading all of it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from tapewire.damage import DAMAGE, message_of, skip_damage
from tapewire.errors import SegmentMissing
from tapewire.log import Reader, Record

__all__ = [
    "first_seq",
    "last_records",
    "last_seq",
    "seek_near",
    "walk",
]

Report = Callable[[str], None]

# A damaged end stays until a writer opens the queue and repairs it: how often a follower retries.
_DAMAGED_END_RETRY_SECONDS = 0.05
# How long a follower waits between two calls of `idle`.
_IDLE_SECONDS = 1.0


def walk(
    reader: Reader,
    report: Report,
    *,
    follow: bool = False,
    idle: Callable[[], None] = lambda: None,
) -> Iterator[Record]:
    """Yield every record from the reader's position on; with `follow`, wait for more, endlessly.

    Damage is reported and skipped. `idle` is called before each wait, at least once a second.
    """
    stuck = False
    while True:
        try:
            record = reader.next()
            if record is None and follow:
                idle()
                reader.wait(_IDLE_SECONDS)
        except DAMAGE as error:
            passed = skip_damage(reader, error)
            if passed is not None:
                report(passed.what)
            elif not stuck:
                report(f"{message_of(error)} (no valid record follows)")
            stuck = passed is None
            if stuck and not follow:
                return
            if stuck:
                idle()
                time.sleep(_DAMAGED_END_RETRY_SECONDS)
            continue
        stuck = False
        if record is not None:
            yield record
        elif not follow:
            return


def seek_near(reader: Reader, seq: int) -> None:
    """Seek to the first record with at least this `seq`; to the start if segments are missing.

    In that case records before `seq` come first, and the walk reports what is missing.
    """
    try:
        reader.seek_seq(seq)
    except SegmentMissing:
        reader.seek_start()


def first_seq(reader: Reader) -> int | None:
    """`seq` of the first record; None if there is none or it is damaged. Moves the reader."""
    if not reader.seek_start():
        return None
    try:
        record = reader.next()
    except DAMAGE:
        return None
    return None if record is None else record.seq


def last_seq(reader: Reader) -> int | None:
    """`seq` of the last record, found by seeking alone; None if there is none or it is unknown.

    It is unknown if a segment is missing or the end of the log is damaged.

    `seek_seq(n)` returns whether a record with at least `n` exists: the last sequence number is
    the largest `n` for which it does, found with 2 log2(n) seeks. Moves the reader.
    """
    try:
        last = _gallop(reader)
    except SegmentMissing:
        return None
    # A seek that meets damage returns true for every number, since any record may follow it.
    return None if last == 2**64 - 1 else last


def _gallop(reader: Reader) -> int | None:
    low = first_seq(reader) or 0
    if not reader.seek_seq(low):
        low = 0  # a log whose sequence numbers have started again
        if not reader.seek_seq(low):
            return None
    step = 1
    while low + step < 2**64 and reader.seek_seq(low + step):
        low += step
        step *= 2
    while step > 1:
        step //= 2
        if low + step < 2**64 and reader.seek_seq(low + step):
            low += step
    return low


def last_records(
    reader: Reader, count: int, wanted: Callable[[Record], bool], report: Report
) -> deque[Record]:
    """The last `count` records that are `wanted`; leaves the reader after the last one it read.

    Goes back from the end by `count` sequence numbers, and by eight times as many each time these
    were not enough. A log that cannot seek by sequence number is read from its start.
    """
    kept: deque[Record] = deque(maxlen=count)
    if count == 0:
        reader.seek_end()
        return kept
    first = last = None
    if "seek_seq" in reader.caps:
        first, last = first_seq(reader), last_seq(reader)
    span = count
    while True:
        complete = first is None or last is None or last - span < first
        if complete or last is None:
            reader.seek_start()
        else:
            seek_near(reader, last - span + 1)
        kept.clear()
        damage: list[str] = []
        for record in walk(reader, damage.append):
            if wanted(record):
                kept.append(record)
            if not complete and last is not None and record.seq >= last:
                break
        if complete or len(kept) == count:
            for line in damage:
                report(line)
            return kept
        span *= 8
