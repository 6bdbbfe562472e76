"""Reads a slice: exactly its records, whatever the writer and retention do meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from tapewire.damage import SkippedDamage, message_of
from tapewire.errors import CorruptMetadata, CorruptRecord, SegmentMissing, TapewireError
from tapewire.log import Batch, Reader, open_log
from tapewire.scan.damaged import DAMAGE, UNREACHABLE, skip_damage

if TYPE_CHECKING:
    from tapewire.scan.columns import RowColumns
    from tapewire.scan.options import ReadOptions
    from tapewire.scan.slices import Slice

__all__ = ["BATCH_ROWS", "SliceDamage", "batches", "refuse_rows", "walk"]

BATCH_ROWS = 65536
_REMEDY = 'option("on_damage", "skip") skips the damage; the view gaps lists it'
_log = logging.getLogger("tapewire.spark")


class SliceDamage:
    """Raises damage, or skips it and reports what was skipped.

    Args:
        skip: Whether to skip.
        report: Called with each place that was skipped.
    """

    def __init__(
        self, skip: bool, report: Callable[[SkippedDamage], None] = lambda lost: None
    ) -> None:
        self._skip = skip
        self._report = report

    def passed(self, reader: Reader, error: TapewireError, first: int | None = None) -> bool:
        """Whether the reader is past the damage now and there is more to read."""
        if not self._skip:
            if isinstance(error, CorruptRecord):  # its own hint is for users of the reader
                error.hint = _REMEDY
            raise error
        lost = skip_damage(reader, error, first)
        self._report(lost or SkippedDamage(f"{message_of(error)} (no valid record follows)"))
        return lost is not None

    def sought(self, reader: Reader, seq: int) -> bool:
        """Seek; whether there is a record with this sequence number or a later one."""
        try:
            return reader.seek_seq(seq)
        except UNREACHABLE as error:
            return self.passed(reader, error, seq)

    def unreadable(self, error: CorruptMetadata) -> None:
        """A segment cannot be read, and no record after it is in the range."""
        if not self._skip:
            raise error
        _log.warning("damaged: %s", message_of(error))

    def missing(self, error: SegmentMissing, first: int, last: int) -> None:
        """Records were retired; the reader is past them already."""
        if not self._skip:
            raise error
        self._report(SkippedDamage(message_of(error), first, last))


def batches(
    part: Slice, options: ReadOptions, report: Callable[[SkippedDamage], None] | None = None
) -> Iterator[Batch]:
    """The records of a slice, in batches of at most 65,536 over the mapped segments.

    Args:
        part: The slice.
        options: With `on_damage`: whether damage raises or is skipped.
        report: Called with each damaged place that was skipped; None: a warning is logged.

    Raises:
        CorruptRecord: The slice is damaged.
        SegmentMissing: Records of it were retired after it was planned.
        GapDetected: Sequence numbers are missing in it.
    """
    name = part.log.name

    def warn(lost: SkippedDamage) -> None:
        _log.warning("damaged: %s: %s", name, lost.what)

    damage = SliceDamage(options.on_damage == "skip", report or warn)
    # Without a filter by type: looking for the next record of a rare type, a reader would run far
    # past the end of the slice, through records that may be damaged.
    with open_log(part.log.path) as reader:
        if part.count is not None:
            yield from _by_count(part, options, reader, damage)
        else:
            yield from _by_number(part, reader, damage)


def walk(reader: Reader, damage: SliceDamage, most: int | None = None) -> Iterator[Batch]:
    """Batches from here to the end, or of at most `most` records in total."""
    while most is None or most > 0:
        try:
            batch = reader.read_batch(BATCH_ROWS if most is None else min(BATCH_ROWS, most))
        except DAMAGE as error:
            if damage.passed(reader, error):
                continue
            return
        if len(batch) == 0:
            return
        most = None if most is None else most - len(batch)
        yield batch


def _by_number(part: Slice, reader: Reader, damage: SliceDamage) -> Iterator[Batch]:
    try:
        reader.seek_seq(part.seq_from)
    except UNREACHABLE as error:
        if not damage.passed(reader, error, part.seq_from):
            return
    else:
        if part.exact:
            _check_first(part, reader, damage)
            reader.seek_seq(part.seq_from)
    for batch in walk(reader, damage):
        end = int(np.searchsorted(batch.seq, np.uint64(part.seq_to)))
        if end:
            yield batch[:end]
        if end < len(batch) or int(batch.seq[end - 1]) + 1 == part.seq_to:
            return


def _by_count(
    part: Slice, options: ReadOptions, reader: Reader, damage: SliceDamage
) -> Iterator[Batch]:
    if options.time_from is not None:
        reader.seek_time(options.time_from)
    left = part.count or 0
    for batch in walk(reader, damage, part.count):
        left -= len(batch)
        if part.seq_from == 0 and part.seq_to >= 2**64:
            yield batch
            continue
        # Sequence numbers may restart anywhere: yield runs of those in the range.
        chosen = (batch.seq >= np.uint64(part.seq_from)) & (batch.seq <= np.uint64(part.seq_to - 1))
        edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
        for start, end in edges.reshape(-1, 2).tolist():
            yield batch[start:end]
    if left > 0:
        error = SegmentMissing(
            "records were retired after the read was planned: "
            f"records={part.count}, missing={left}",
            path=part.log.path,
            hint="keep them with a pinned reader, or read an archive",
        )
        damage.missing(error, 0, -1)  # their sequence numbers are not known


def _check_first(part: Slice, reader: Reader, damage: SliceDamage) -> None:
    """Check that the first record of the slice still exists."""
    try:
        record = reader.next()
    except DAMAGE:
        return  # `walk` will meet it
    if record is not None and record.seq == part.seq_from:
        return
    available = None if record is None else record.seq
    error = SegmentMissing(
        "records were retired after the read was planned: "
        f"first_wanted={part.seq_from}, first_available={available}",
        path=part.log.path,
        hint="keep them with a pinned reader, read an archive, or begin later with seq_from",
    )
    error.first_available_seq = available
    last = part.seq_to if available is None else min(available, part.seq_to)
    damage.missing(error, part.seq_from, last - 1)


def refuse_rows(error: TapewireError, rows: RowColumns, options: ReadOptions) -> None:
    """Raise for records that do not decode as their type; warn if damage is skipped."""
    refused = CorruptRecord(
        f"a record is not a message of its type: queue={rows.queue}, seq={rows.seq_of(0)}, "
        f"rows={rows.rows}: {message_of(error)}",
        hint='option("on_damage", "skip") leaves such records out, with a warning',
    )
    if options.on_damage == "raise":
        raise refused
    _log.warning("damaged: %s", message_of(refused))
