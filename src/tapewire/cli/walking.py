"""Reading any log for a person: the last records without reading all, and past what is damaged."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from tapewire.damage import DAMAGE, pass_damage, said
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

# A damaged end stays until a writer opens the queue and mends it: how often a follower looks.
_MENDED_YET_SECONDS = 0.05
# How long a follower waits before it looks whether the log itself is still there.
_STILL_THERE_SECONDS = 1.0


def walk(
    reader: Reader,
    report: Report,
    *,
    follow: bool = False,
    idle: Callable[[], None] = lambda: None,
) -> Iterator[Record]:
    """Every record from here on; with `follow`, waits for more and never ends by itself.

    What is damaged is reported and skipped. `idle` is called before each wait, at least once a
    second.
    """
    stuck = False
    while True:
        try:
            record = reader.next()
            if record is None and follow:
                idle()
                reader.wait(_STILL_THERE_SECONDS)
        except DAMAGE as error:
            told = pass_damage(reader, error)
            if told is not None:
                report(told.what)
            elif not stuck:
                report(f"{said(error)} (nothing right behind it)")
            stuck = told is None
            if stuck and not follow:
                return
            if stuck:
                idle()
                time.sleep(_MENDED_YET_SECONDS)
            continue
        stuck = False
        if record is not None:
            yield record
        elif not follow:
            return


def seek_near(reader: Reader, seq: int) -> None:
    """To the first record with at least this number; to the start where segments are missing there.

    Then records before it come first, and the walk tells what is missing.
    """
    try:
        reader.seek_seq(seq)
    except SegmentMissing:
        reader.seek_start()


def first_seq(reader: Reader) -> int | None:
    """Number of the first record; None when there is none or it is damaged. Moves the reader."""
    if not reader.seek_start():
        return None
    try:
        record = reader.next()
    except DAMAGE:
        return None
    return None if record is None else record.seq


def last_seq(reader: Reader) -> int | None:
    """Number of the last record, by seeking alone; None when there is none or it cannot be known.

    A segment may be gone, or the end of the log damaged.

    `seek_seq(n)` says whether any record has at least number `n`: the last number is the
    largest for which it does, found in twice its logarithm of seeks. Moves the reader.
    """
    try:
        last = _gallop(reader)
    except SegmentMissing:
        return None
    # A seek that comes to damage says yes to every number: what is behind it may be of that one.
    return None if last == 2**64 - 1 else last


def _gallop(reader: Reader) -> int | None:
    low = first_seq(reader) or 0
    if not reader.seek_seq(low):
        low = 0  # a log whose numbers have begun again
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
    """The last `count` records that are `wanted`; the reader stands behind the last one looked at.

    Goes back from the end by as many numbers as records are wanted, and by eight times as many each
    time those were not enough; a log that cannot seek by number is read from its start.
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
        whole = first is None or last is None or last - span < first
        if whole or last is None:
            reader.seek_start()
        else:
            seek_near(reader, last - span + 1)
        kept.clear()
        damage: list[str] = []
        for record in walk(reader, damage.append):
            if wanted(record):
                kept.append(record)
            if not whole and last is not None and record.seq >= last:
                break
        if whole or len(kept) == count:
            for line in damage:
                report(line)
            return kept
        span *= 8
