"""What the logs of a streaming query have that it has not read."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from tapewire.errors import CorruptMetadata, InvalidOption, SegmentMissing
from tapewire.log import open_log
from tapewire.queue.status import QueueStatus, QueueWatch
from tapewire.scan.damaged import DAMAGE, pass_damage, seek_seq
from tapewire.scan.logs import LogRef, resolve
from tapewire.scan.options import ReadOptions
from tapewire.spark.reading.live_queues import refuse_live
from tapewire.spark.streaming.limits import Ahead
from tapewire.spark.streaming.offsets import SEQ_MOST
from tapewire.spark.streaming.pinned import PinnedReaders

__all__ = ["FollowedLogs"]

_log = logging.getLogger("tapewire.spark")


class FollowedLogs:
    """The logs of a query: looked for again and again, each held by a pinned reader.

    Args:
        options: Of the query.
        master: Spark's; None when it is not known.
    """

    def __init__(self, options: ReadOptions, master: str | None) -> None:
        self._options = options
        self._master = master
        self._pins = None if options.reader is None else PinnedReaders(options.reader)
        self._watches: dict[str, QueueWatch] = {}
        self._told: set[str] = set()

    def find(self) -> list[LogRef]:
        """The logs there are now, new days and new symbols among them.

        Raises:
            InvalidOption: One is no queue; or is live, and workers may be elsewhere.
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
        """Have retention wait for all that comes from `begin` on; of new logs, for everything.

        Logs of an archive have no retention, and are not held.

        Raises:
            InvalidOption: The query has not named itself.
            ReaderAlreadyActive: Another query has this name.
        """
        for log in logs:
            if log.date is not None or (self._pins is not None and self._pins.holds(log.name)):
                continue
            if self._pins is None:
                raise InvalidOption(
                    f"a query over a queue needs a name, so that retention waits for it: "
                    f"queue={log.name}",
                    path=log.path,
                    hint='give it one that is its own: option("reader", NAME); '
                    "`tapewire readers ls QUEUE` shows it",
                )
            self._pins.hold(log.name, log.path, begin.get(log.name, 0))

    def release(self, logs: Mapping[str, int]) -> None:
        """Let go what is below these numbers."""
        if self._pins is not None:
            self._pins.release(logs)

    def look(self, log: LogRef) -> QueueStatus:
        """A log as it is now."""
        watch = self._watches.get(log.path)
        if watch is None:
            watch = self._watches[log.path] = QueueWatch(log.path)
        return watch.look()

    def ends(self) -> dict[str, int]:
        """Of each log, the number behind the last record that there is to read now."""
        return {log.name: self._end_of(log, self.look(log), 0) for log in self.find()}

    def ahead(self, begin: Mapping[str, int]) -> list[Ahead]:
        """What each log has behind `begin`, within the range of the options; all are held."""
        logs = self.find()
        self.hold(logs, begin)
        return [self.ahead_of(log, self.look(log), begin.get(log.name)) for log in logs]

    def ahead_of(self, log: LogRef, seen: QueueStatus, begin: int | None) -> Ahead:
        """What one log has behind `begin`; None: it is new."""
        if seen.records is None and not seen.sparse and seen.last_seq is not None:
            raise InvalidOption(
                f"the numbers of this log begin again, and cannot say how far a query has come: "
                f"queue={log.name}",
                path=log.path,
                hint="read it as a batch: spark.read",
            )
        first = self._first_of(log) if begin is None else max(begin, seen.first_available_seq or 0)
        end = self._end_of(log, seen, first)
        if end > SEQ_MOST:
            raise InvalidOption(
                f"a number of this log does not fit BIGINT: queue={log.name}, seq={end - 1}",
                path=log.path,
                hint="end in front of it: seq_to",
            )
        self._check_segments(log, seen, first)
        if begin is not None:
            self.check_range(log, seen, begin, begin)
        # A gap is told whole: a micro-batch ends behind a record, not within what is missing.
        dense = not seen.sparse and self._options.view != "gaps"
        return Ahead(log.name, log.path, first, max(first, end), dense)

    def check_range(self, log: LogRef, seen: QueueStatus, begin: int, end: int) -> None:
        """Refuse a range that the log has not: what a checkpoint says is checked by the log.

        Raises:
            SegmentMissing: What the query had still to read was retired.
            CorruptMetadata: The checkpoint is ahead of the log: it is of another one.
        """
        there = seen.first_available_seq
        if there is not None and there > begin and not seen.sparse:
            missing = SegmentMissing(
                f"records were retired before the query read them: queue={log.name}, "
                f"first_wanted={begin}, first_there={there}",
                path=log.path,
                hint="its pinned reader was removed, or an old checkpoint put back; "
                'option("on_damage", "skip") goes on with what is there',
            )
            missing.first_available_seq = there
            if self._options.on_damage == "raise":
                raise missing
            _log.warning("%s", missing)
        if seen.last_seq is not None and end > seen.last_seq + 1:
            raise CorruptMetadata(
                f"the checkpoint is ahead of the log: queue={log.name}, next={end}, "
                f"last={seen.last_seq}",
                path=log.path,
                hint="it is of another log of that name: begin with a new checkpoint",
            )

    def _first_of(self, log: LogRef) -> int:
        """Number from which a new log is read."""
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
                    if pass_damage(reader, error) is None:
                        return low
                else:
                    return low if record is None else max(low, record.seq)

    def _end_of(self, log: LogRef, seen: QueueStatus, first: int) -> int:
        """Number behind the last record that there is to read."""
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
                        record = None  # in the range of nobody, until what comes behind is seen
                    end = first if record is None else min(end, record.seq)
        return end

    def _check_segments(self, log: LogRef, seen: QueueStatus, first: int) -> None:
        """Tell of segments that cannot be read: at the end of a log, nobody would come to them."""
        behind = None  # number of the first record behind the segment
        for segment in reversed(seen.segments):
            if segment.readable:
                behind = segment.first_seq if segment.first_seq is not None else behind
            elif behind is None or behind > first:
                damaged = CorruptMetadata(
                    f"a segment that is still to be read is damaged: queue={log.name}",
                    path=segment.path,
                    hint="`tapewire verify` says more; "
                    'option("on_damage", "skip") goes on with what can be read',
                )
                if self._options.on_damage == "raise":
                    raise damaged
                if segment.path not in self._told:
                    self._told.add(segment.path)
                    _log.warning("%s", damaged)

    def close(self) -> None:
        """Give the names of the pinned readers free; their positions stay."""
        if self._pins is not None:
            self._pins.close()
