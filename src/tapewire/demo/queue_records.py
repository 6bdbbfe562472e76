"""Records of a queue: how a process finds out what it had done before it was killed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from tapewire.files import is_queue
from tapewire.log import Reader, Record, open_log

__all__ = ["last_record", "records"]

_FIRST_SPAN = 256  # sequence numbers back from the end; four times as many until it is found


def records(
    path: str | os.PathLike[str], types: Iterable[int] | None = None, *, start: int = 0
) -> Iterator[Record]:
    """The records of a queue from `seq` `start` to its end; none if there is no queue yet."""
    if not is_queue(path):
        return
    with open_log(path, types=types) as log:
        log.seek_seq(start)
        yield from log


def last_record(
    path: str | os.PathLike[str], types: Iterable[int] | None = None, *, before: int | None = None
) -> Record | None:
    """The last record of these types (with a `seq` below `before`), searched from the end.

    Reads little more than the records after it, however long the queue is.

    Example:
        >>> import tapewire as tw
        >>> with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        ...     _ = [writer.append(1 + (i == 5), b"%d" % i) for i in range(2_000)]
        >>> bytes(last_record(tmp / "q").payload), bytes(last_record(tmp / "q", {2}).payload)
        (b'1999', b'5')
        >>> last_record(tmp / "q", {2}, before=5) is None
        True
    """
    if not is_queue(path):
        return None
    types = None if types is None else set(types)
    with open_log(path) as log:
        end = _end(log)
    end = end if before is None else min(before, end)
    span = _FIRST_SPAN
    while True:
        first = max(0, end - span)
        found = None
        for record in records(path, types, start=first):
            if record.seq >= end:
                break
            found = record
        if found is not None or first == 0:
            return found
        span *= 4


def _end(log: Reader) -> int:
    """One more than the last `seq`. Some record has at least `low`, and none at least `high`."""
    low, high = 0, 1
    while log.seek_seq(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if log.seek_seq(middle):
            low = middle
        else:
            high = middle
    return high
