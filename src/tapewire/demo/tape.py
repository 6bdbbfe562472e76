"""Reading the end of a queue: how a process finds out what it had done before it was killed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from tapewire._native import Record
from tapewire.log import open_log

__all__ = ["last_record", "records", "records_from"]

_FIRST_LOOK = 256  # records from the end; doubled until what is sought is found


def records(path: str | os.PathLike[str], types: Iterable[int] | None = None) -> Iterator[Record]:
    """Every record that is there now; none where there is no queue yet."""
    return records_from(path, None, types)


def records_from(
    path: str | os.PathLike[str], seq: int | None, types: Iterable[int] | None = None
) -> Iterator[Record]:
    """Records from number `seq` on (None: from the first) that are there now."""
    if not is_queue(path):
        return
    with open_log(path, types=types) as log:
        if seq is not None:
            log.seek_seq(seq)
        yield from log


def is_queue(path: str | os.PathLike[str]) -> bool:
    """Whether a queue is there: control.meta comes last when one is made."""
    return os.path.exists(os.path.join(os.fspath(path), "control.meta"))


def last_record(
    path: str | os.PathLike[str],
    types: Iterable[int] | None = None,
    *,
    before: int | None = None,
) -> Record | None:
    """The last record of these types (with a number below `before`), looking back from the end.

    Reads what lies behind the record it finds and little more, however long the queue is.

    Example:
        >>> import tapewire as tw
        >>> with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        ...     _ = [writer.append(1 + (i == 5), b"%d" % i) for i in range(2_000)]
        >>> bytes(last_record(tmp / "q").payload), bytes(last_record(tmp / "q", {2}).payload)
        (b'1999', b'5')
    """
    if not is_queue(path):
        return None
    with open_log(path) as all_types:
        if not all_types.seek_end():
            pass  # at the end there is never a record behind: what counts is the number before it
    end = before if before is not None else _end(path)
    look = _FIRST_LOOK
    while True:
        first = max(0, end - look)
        found = None
        with open_log(path, types=types) as log:
            log.seek_seq(first)
            for record in log:
                if record.seq >= end:
                    break
                found = record
        if found is not None or first == 0:
            return found
        look *= 4
