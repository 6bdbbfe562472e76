"""Read a log from end to end and record everything that is damaged or missing."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tapewire.errors import (
    CorruptMetadata,
    CorruptRecord,
    GapDetected,
    MappingLost,
    Overrun,
    SegmentMissing,
    StorageError,
    TapewireError,
    UnsupportedVersion,
)
from tapewire.log import kind_of, open_log

if TYPE_CHECKING:
    from tapewire.log import Batch, Reader
    from tapewire.queue import QueueStatus

__all__ = ["DamagedPlace", "Verdict", "Verification"]

# Beyond this number, places are counted but not listed: a hostile log has millions.
_LISTED_MOST = 1000
# A directory, a link or a pipe; or an I/O error of the disk.
_NOT_A_FILE = (errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.EIO)
_LAG_UNKNOWN = "its lag in records is unknown"


@dataclass(frozen=True)
class DamagedPlace:
    """A damaged place, and what was lost there."""

    what: str
    file: str | None
    offset: int | None
    bytes: int | None = None
    first_lost: int | None = None
    last_lost: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as a dict, for JSON."""
        return dataclasses.asdict(self)


@dataclass
class Verdict:
    """The result of reading a log completely."""

    log: str
    kind: str
    records: int = 0
    payload_bytes: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    earliest_ns: int | None = None  # of the records' times
    latest_ns: int | None = None
    complete: bool = True
    damaged_places: int = 0
    gaps_found: int = 0
    restarts_found: int = 0
    damage: list[DamagedPlace] = field(default_factory=list)
    gaps: list[DamagedPlace] = field(default_factory=list)
    restarts: list[tuple[int, int, int]] = field(
        default_factory=list
    )  # after how many records, from, to
    problems: list[str] = field(default_factory=list)  # none of them loses a record
    retired: int = 0  # how often retention removed the segment to read next

    @property
    def intact(self) -> bool:
        """Whether every record that got a sequence number exists and is valid."""
        return self.complete and not self.damaged_places and not self.gaps_found


class Verification:
    """Reads one log completely: use it in a `with` block, `run` it, then call `verdict`."""

    def __init__(self, log: str) -> None:
        self._reader: Reader = open_log(log)
        kind = kind_of(log)
        self._queue: QueueStatus | None = None
        if kind == "queue":
            from tapewire.queue import status

            log = os.path.abspath(log)
            self._queue = status(log)
        self._verdict = Verdict(log, kind)
        self._skipped_segments: set[int] = set()

    @property
    def total_bytes(self) -> int | None:
        """The final value of `run`; None if it is unknown."""
        if self._queue is None or not self._queue.segments:
            return None
        return self._distance((self._queue.end_segment, self._queue.end_offset))

    def _distance(self, place: tuple[int, int]) -> int:
        assert self._queue is not None
        first = self._queue.segments[0].id if self._queue.segments else 0
        return (place[0] - first) * self._queue.segment_bytes + place[1]

    def run(self) -> Iterator[int]:
        """Read all records; yield the progress in bytes after each batch."""
        while True:
            try:
                batch = self._reader.read_batch()
                # At the end, wait() detects a record whose commit word was lost.
                if len(batch) == 0 and not ("wait" in self._reader.caps and self._reader.wait(0)):
                    return
            except GapDetected as error:
                self._note_gap(error)
                continue
            except Overrun as error:
                self._note(DamagedPlace(error.message, error.path, error.offset))
                continue
            except (
                CorruptRecord,
                SegmentMissing,
                CorruptMetadata,
                UnsupportedVersion,
                MappingLost,
            ) as error:
                if not self._pass(error):
                    return
                continue
            except StorageError as error:
                # Not a regular file in the place of a segment. A denied permission is not damage.
                if error.errno not in _NOT_A_FILE:
                    raise
                if not self._pass(error):
                    return
                continue
            self._count(batch)
            yield self._progress()
            if self._has_reached_the_end():
                return

    def _progress(self) -> int:
        if self._queue is None:
            return self._verdict.payload_bytes
        position = self._reader.position
        assert isinstance(position, tuple)
        return self._distance((position[0], position[1]))

    def _has_reached_the_end(self) -> bool:
        """A writer may append faster than this reads: stop at the end as of the beginning."""
        if self._queue is None or not self._queue.writer.alive:
            return False
        return self._progress() >= self._distance((self._queue.end_segment, self._queue.end_offset))

    def _count(self, batch: Batch) -> None:
        if len(batch) == 0:
            return
        verdict = self._verdict
        numbers = batch.seq
        if verdict.last_seq is not None and int(numbers[0]) <= verdict.last_seq:
            self._note_restart(verdict.records, verdict.last_seq, int(numbers[0]))
        self._find_falls(numbers)
        if verdict.first_seq is None:
            verdict.first_seq = int(numbers[0])
        verdict.last_seq = int(numbers[-1])
        earliest, latest = int(batch.timestamp_ns.min()), int(batch.timestamp_ns.max())
        known = verdict.earliest_ns, verdict.latest_ns
        verdict.earliest_ns = earliest if known[0] is None else min(known[0], earliest)
        verdict.latest_ns = latest if known[1] is None else max(known[1], latest)
        verdict.records += len(batch)
        verdict.payload_bytes += batch.payload_bytes

    def _find_falls(self, numbers: np.ndarray[Any, np.dtype[np.uint64]]) -> None:
        for i in np.flatnonzero(numbers[1:] <= numbers[:-1]).tolist():
            self._note_restart(self._verdict.records + i + 1, int(numbers[i]), int(numbers[i + 1]))

    def _note_restart(self, records: int, before: int, after: int) -> None:
        self._verdict.restarts_found += 1
        if len(self._verdict.restarts) < _LISTED_MOST:
            self._verdict.restarts.append((records, before, after))

    def _note_gap(self, error: GapDetected) -> None:
        self._verdict.gaps_found += 1
        if len(self._verdict.gaps) < _LISTED_MOST:
            lost = error.first, error.last
            place = DamagedPlace(error.message, error.path, error.offset, None, *lost)
            self._verdict.gaps.append(place)

    def _note(self, place: DamagedPlace) -> None:
        self._verdict.damaged_places += 1
        if len(self._verdict.damage) < _LISTED_MOST:
            self._verdict.damage.append(place)

    def _pass(self, error: TapewireError) -> bool:
        """Continue after a damaged place. False: no valid record follows it."""
        if isinstance(error, SegmentMissing) and self._was_retired():
            self._verdict.retired += 1
            self._reader.seek_start()
            return True
        try:
            skipped = self._reader.skip_damaged()
        except TapewireError:
            skipped = None
        if skipped is not None and skipped.bytes:
            lost = skipped.first_seq, skipped.last_seq
            self._note(DamagedPlace(error.message, error.path, error.offset, skipped.bytes, *lost))
            self._verdict.complete = self._verdict.complete and not self._is_past_all()
            return True
        self._note(DamagedPlace(error.message, error.path, error.offset))
        if self._enter_next_readable_segment():
            return True
        self._verdict.complete = False
        return False

    def _is_past_all(self) -> bool:
        """Whether no valid record was found after the last damaged segment."""
        if self._queue is None:
            return False
        here = self._reader.position
        assert isinstance(here, tuple)
        return all(segment.id < here[0] for segment in self._queue.segments)

    def _was_retired(self) -> bool:
        """Whether retention has passed this reader: then nothing is damaged."""
        if self._queue is None:
            return False
        from tapewire.queue import status

        segments = status(self._queue.path).segments
        here = self._reader.position
        assert isinstance(here, tuple)
        return bool(segments) and segments[0].id > here[0]

    def _enter_next_readable_segment(self) -> bool:
        """Move past a segment with a damaged header, which the reader cannot enter."""
        if self._queue is None:
            return False
        here = self._reader.position
        assert isinstance(here, tuple)
        damaged = [s.id for s in self._queue.segments if not s.readable and s.id > here[0]]
        if not damaged or damaged[0] in self._skipped_segments:
            return False
        self._skipped_segments.add(damaged[0])
        for segment in self._queue.segments:
            if segment.id > damaged[0] and segment.first_seq is not None:
                try:
                    return self._reader.seek_seq(segment.first_seq)
                except TapewireError:
                    return False
        return False

    def verdict(self) -> Verdict:
        """Return the findings of `run`, and problems outside the records."""
        if self._queue is not None:
            from tapewire.queue._native import wrong_indexes

            # A reader that was overtaken has lost its place; the log has not lost a record.
            problems = [line for line in self._queue.problems if _LAG_UNKNOWN not in line]
            if self._queue.segment_bytes:
                problems += wrong_indexes(self._queue.path)
            self._verdict.problems = problems
        return self._verdict

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Verification {self._verdict.log!r} records={self._verdict.records}>"
