"""The logs that a streaming query follows: found, checked, and held by pinned readers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from tapewire.errors import CorruptMetadata, InvalidOption, SegmentMissing
from tapewire.log import open_log
from tapewire.queue.status import QueueStatus, QueueWatch
from tapewire.scan.damaged import DAMAGE, seek_seq, skip_damage
from tapewire.scan.logs import LogRef, resolve
from tapewire.scan.options import ReadOptions
from tapewire.spark.reading.live_queues import refuse_live
from tapewire.spark.streaming.batch_limits import UnreadRange
from tapewire.spark.streaming.offsets import MAX_NEXT_SEQ
from tapewire.spark.streaming.pinned_readers import PinnedReaders

__all__ = ["FollowedLogs"]

_log = logging.getLogger("tapewire.spark")


class FollowedLogs:
    """The logs of a query, searched again with each micro-batch, each held by a pinned reader.

    Args:
        options: Options of the query.
        master: Spark's master; None if not known.
    """

    def __init__(self, options: ReadOptions, master: str | None) -> None:
        self._options = options
        self._master = master
        self._pins = None if options.reader is None else PinnedReaders(options.reader)
        self._watches: dict[str, QueueWatch] = {}
        self._reported: set[str] = set()

    def find(self) -> list[LogRef]:
        """The logs that exist now, including new days and new symbols.

        Raises:
            InvalidOption: A log is not a queue, or is live and workers may run elsewhere.
        """
        logs = resolve(self._options.paths, self._options)
        new = [log for log in logs if log.path not in self._watches]
        for log in new:
            if log.kind != "queue":
                raise InvalidOption(
                    f"only queues can be streamed: queue={log.name}, kind={log.kind}",
                    path=log.path,
                    hint="read it as a batch: spark.read",
                )
        refuse_live(new, self._options, self._master)
        return logs

    def hold(self, logs: Sequence[LogRef], begin: Mapping[str, int]) -> None:
        """Make retention keep the records from `begin` on; all records of logs not in `begin`.

        Logs of an archive have no retention and are not held.

        Raises:
            InvalidOption: The query has no option `reader`.
            ReaderAlreadyActive: Another query uses this reader name.
        """
        for log in logs:
            if log.date is not None or (self._pins is not None and self._pins.holds(log.name)):
                continue
            if self._pins is None:
                raise InvalidOption(
                    f"a query over a queue needs a reader name, so that retention waits for it: "
                    f"queue={log.name}",
                    path=log.path,
                    hint='give each query its own: option("reader", NAME); '
                    "`tapewire readers ls QUEUE` lists it",
                )
            self._pins.hold(log.name, log.path, begin.get(log.name, 0))

    def release(self, logs: Mapping[str, int]) -> None:
        """Allow retention of records below these sequence numbers."""
        if self._pins is not None:
            self._pins.release(logs)

    def look(self, log: LogRef) -> QueueStatus:
        """The current status of a log."""
        watch = self._watches.get(log.path)
        if watch is None:
            watch = self._watches[log.path] = QueueWatch(log.path)
        return watch.look()

    def ends(self) -> dict[str, int]:
        """For each log, the sequence number after the last record that the query may read now."""
        return {log.name: self._end_of(log, self.look(log), 0) for log in self.find()}

    def unread(self, begin: Mapping[str, int]) -> list[UnreadRange]:
        """The unread records of each log, from `begin` on, within the options. Holds all logs."""
        logs = self.find()
        self.hold(logs, begin)
        return [self.unread_of(log, self.look(log), begin.get(log.name)) for log in logs]

    def unread_of(self, log: LogRef, seen: QueueStatus, begin: int | None) -> UnreadRange:
        """The unread records of one log, from `begin` on; None: the log is new."""
        if seen.records is None and not seen.sparse and seen.last_seq is not None:
            raise InvalidOption(
                "the sequence numbers of this log restart, so they cannot be the position of a "
                f"query: queue={log.name}",
                path=log.path,
                hint="read it as a batch: spark.read",
            )
        first = self._first_of(log) if begin is None else max(begin, seen.first_available_seq or 0)
        end = self._end_of(log, seen, first)
        if end > MAX_NEXT_SEQ:
            raise InvalidOption(
                f"a sequence number does not fit BIGINT: queue={log.name}, seq={end - 1}",
                path=log.path,
                hint="end the range before it, with option seq_to",
            )
        self._check_segments(log, seen, first)
        if begin is not None:
            self.check_range(log, seen, begin, begin)
        # For `gaps`, a micro-batch must end after a record, not at a missing sequence number, so
        # that each gap is found in one piece.
        dense = not seen.sparse and self._options.view != "gaps"
        return UnreadRange(log.name, log.path, first, max(first, end), dense)

    def check_range(self, log: LogRef, seen: QueueStatus, begin: int, end: int) -> None:
        """Refuse a range of a checkpoint that the log does not contain.

        Raises:
            SegmentMissing: Records that the query had not read were retired.
            CorruptMetadata: The checkpoint is past the end of the log: it belongs to another one.
        """
        available = seen.first_available_seq
        if available is not None and available > begin and not seen.sparse:
            missing = SegmentMissing(
                f"records were retired before the query read them: queue={log.name}, "
                f"first_wanted={begin}, first_available={available}",
                path=log.path,
                hint="its pinned reader was removed, or an older checkpoint was restored; "
                'option("on_damage", "skip") continues with the records that exist',
            )
            missing.first_available_seq = available
            if self._options.on_damage == "raise":
                raise missing
            _log.warning("%s", missing)
        if seen.last_seq is not None and end > seen.last_seq + 1:
            raise CorruptMetadata(
                f"the checkpoint is past the end of the log: queue={log.name}, next_seq={end}, "
                f"last_seq={seen.last_seq}",
                path=log.path,
                hint="it belongs to another log of that name: start with a new checkpoint",
            )

    def _first_of(self, log: LogRef) -> int:
        """The sequence number at which reading a new log starts."""
        options = self._options
        low = options.seq_from or 0
        with open_log(log.path) as reader:
            if options.time_from is None:
                seek_seq(reader, low)
            else:
                reader.seek_time(options.time_from)
            while True:
                try:
                    record = reader.next()
                except DAMAGE as error:
                    if skip_damage(reader, error) is None:
                        return low
                else:
                    return low if record is None else max(low, record.seq)

    def _end_of(self, log: LogRef, seen: QueueStatus, first: int) -> int:
        """The sequence number after the last record that the query may read."""
        options = self._options
        end = first if seen.last_seq is None else seen.last_seq + 1
        if options.seq_to is not None:
            end = min(end, options.seq_to)
        if options.time_to is not None:
            with open_log(log.path) as reader:
                if reader.seek_time(options.time_to):
                    try:
                        record = reader.next()
                    except DAMAGE:
                        record = None  # wait until a valid record after the damage shows the time
                    end = first if record is None else min(end, record.seq)
        return end

    def _check_segments(self, log: LogRef, seen: QueueStatus, first: int) -> None:
        """Report unread segments that are damaged: no read reaches those at the end of a log."""
        next_first: int | None = None  # first sequence number of the segment after this one
        for segment in reversed(seen.segments):
            if segment.readable:
                next_first = segment.first_seq if segment.first_seq is not None else next_first
            elif next_first is None or next_first > first:
                damaged = CorruptMetadata(
                    f"an unread segment is damaged: queue={log.name}",
                    path=segment.path,
                    hint="run `tapewire verify` for details; "
                    'option("on_damage", "skip") continues with what can be read',
                )
                if self._options.on_damage == "raise":
                    raise damaged
                if segment.path not in self._reported:
                    self._reported.add(segment.path)
                    _log.warning("%s", damaged)

    def close(self) -> None:
        """Release the names of the pinned readers; their positions stay."""
        if self._pins is not None:
            self._pins.close()
