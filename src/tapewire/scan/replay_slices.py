"""Slices of replayed views: the logs of each instrument cut by time, each slice warm-started.

A unit is one instrument with its logs: books and trades of consecutive days, replayed as one. A
slice ``[time_from, time_to)`` of it gives the same rows wherever the cuts are: `tapewire.replay`
begins at the latest snapshot before the time that the first row looks back to. Cuts just after
snapshots are the cheapest, so they are made there; without snapshots a unit is one slice.

Planning reads the beginnings, ends and indexes of logs, and the names of snapshots. A damaged
snapshot is found only when the slice is read; it costs time, but no rows.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tapewire.errors import InvalidOption, SegmentMissing, TapewireError
from tapewire.log import Record, open_log
from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.protocol.market import BookEvent, L3Type, decode
from tapewire.queue.status import status
from tapewire.replay import snapshots
from tapewire.replay.start import first_seq_after, next_record, warm_book
from tapewire.scan.instruments import given_instruments
from tapewire.scan.replay_units import LogUnit, runs_of
from tapewire.scan.slices import SLICE_BYTES, bytes_of

if TYPE_CHECKING:
    from tapewire.scan.logs import LogRef
    from tapewire.scan.options import ReadOptions

__all__ = [
    "ReplayLog",
    "ReplaySlice",
    "instruments_of",
    "latest_ns",
    "needed",
    "plan",
    "refuse_retired",
    "stream_options",
]

_NEVER = 2**63 - 1
# A slice is at least this many times as long as its look-back, unless `partitions` is given.
_LOOK_BACKS = 2


@dataclass(frozen=True)
class ReplayLog:
    """One log of a unit, as it was at planning time.

    Attributes:
        name: Name of the log.
        path: Absolute path.
        first_ns: Time of its first record.
        last_ns: The latest time in it.
        end: Sequence number after its last record, where reading ends; None if it is not known.
        reset_ns: If the log is an L3 book that begins with a reset, the time of the first order
            after it: from then on the book does not depend on other logs. Otherwise None.
        first_seq: Sequence number of its first record.
    """

    name: str
    path: str
    first_ns: int
    last_ns: int
    end: int | None
    reset_ns: int | None = None
    first_seq: int = 0


@dataclass(frozen=True)
class ReplaySlice:
    """The rows of one unit from `time_from` up to, but not including, `time_to`.

    Attributes:
        logs: The logs of the unit that may affect these rows.
        instrument: The instrument of the unit; None: all instruments in the logs.
        time_from: Nanoseconds; None: from the beginning.
        time_to: Nanoseconds; None: to the end.
        price_scale: Scale of prices as decimals: the largest of all instruments of the query.
        bytes: Approximate size of its logs in bytes.
    """

    logs: tuple[ReplayLog, ...]
    instrument: Instrument | None
    time_from: int | None
    time_to: int | None
    price_scale: int
    bytes: int = 0


def plan(
    options: ReadOptions,
    units: Sequence[LogUnit],
    wanted: int,
    look_back_ns: int,
    *,
    price_scale: int = 0,
    span_ns: int | None = None,
) -> list[ReplaySlice]:
    """Slices of all units, in the order of the units and of time.

    Args:
        options: The range, and `partitions` if it is given.
        units: What is replayed.
        wanted: Approximate number of slices.
        look_back_ns: How far back a row depends on events, apart from the book.
        price_scale: Scale of prices as decimals.
        span_ns: Cut at multiples of this time instead.
    """
    if (options.seq_from, options.seq_to) != (None, None):
        _refuse_many(options, units)
    states = [
        state for unit in units if (state := _UnitState.of(unit, options)).logs and state.length_ns
    ]
    total = sum(state.bytes for state in states) or 1
    found: list[ReplaySlice] = []
    for state in states:
        if span_ns is not None:
            cuts = state.cuts_of_span(span_ns)
        else:
            count = max(1, round(wanted * state.bytes / total))
            if options.partitions is None:
                count = max(count, state.bytes // SLICE_BYTES)
                if look_back_ns:
                    count = min(count, state.length_ns // (_LOOK_BACKS * look_back_ns))
            cuts = state.cuts(count, look_back_ns) if count > 1 else []
        found += state.slices(cuts, price_scale)
    return found


def _refuse_many(options: ReadOptions, units: Sequence[LogUnit]) -> None:
    for runs in runs_of(units):
        count = sum(len(unit.logs) for unit in runs)
        if count > 1:
            raise InvalidOption(
                "a range of sequence numbers needs a single log: "
                f"seq_from={options.seq_from}, seq_to={options.seq_to}, logs={count}",
                hint="give time_from and time_to for several logs",
            )


def stream_options(part: ReplaySlice, options: ReadOptions, look_back_ns: int) -> dict[str, Any]:
    """The arguments for opening a `RowStream` of this slice."""
    logs = needed(part, look_back_ns)
    kept = {} if options.seq_from is None else {"seq_from": options.seq_from}
    return {
        "logs": {log.name: log.path for log in logs},
        "symbols": None if part.instrument is None else [part.instrument],
        "instruments": instruments_of(part.instrument, options),
        "time_from": part.time_from,
        "time_to": part.time_to,
        "seq_to": {log.name: log.end for log in logs if log.end is not None},
        "on_gap": options.on_gap or "resync",
        "skip_damaged": options.on_damage == "skip",
        **kept,
    }


def instruments_of(instrument: Instrument | None, options: ReadOptions) -> Instruments | None:
    """The instruments that an executor needs; None: those of the files nearest to the logs."""
    if instrument is not None:
        return Instruments([instrument])
    return given_instruments(options)


def needed(part: ReplaySlice, look_back_ns: int) -> list[ReplayLog]:
    """The logs to open for a slice: those that reach back to the snapshot where it begins.

    All of them if there is no valid snapshot. For an L3 book, those back to the latest log that
    begins with a reset: whether a snapshot is valid depends on every log since then.
    """
    return _needed(part, look_back_ns)[0]


def refuse_retired(part: ReplaySlice, options: ReadOptions, look_back_ns: int) -> None:
    """Raise if a slice reads logs from their start and that was retired since it was planned.

    Call it when the logs are open: their readers report what is retired later.

    Raises:
        SegmentMissing: Records were retired, and damage is not skipped.
    """
    logs, from_start = _needed(part, look_back_ns)
    if not from_start or options.on_damage == "skip":
        return
    for log in logs:
        with open_log(log.path) as reader:
            first = next_record(reader)
        available = None if first is None else first.seq
        if available != log.first_seq:
            raise SegmentMissing(
                "records were retired after the read was planned: "
                f"first_wanted={log.first_seq}, first_available={available}",
                path=log.path,
                hint="keep them with a pinned reader, or read an archive",
            )


def _needed(part: ReplaySlice, look_back_ns: int) -> tuple[list[ReplayLog], bool]:
    """The logs, and whether they are read from their start because there is no snapshot."""
    logs = list(part.logs)
    one = part.instrument
    if part.time_from is None or one is None:
        return logs, True
    start_ns = part.time_from - look_back_ns
    since_ns: int | None = None
    if one.book_mode == "l3":
        resets = [
            log.first_ns for log in logs if log.reset_ns is not None and log.reset_ns < start_ns
        ]
        return [log for log in logs if not resets or log.last_ns >= max(resets)], False
    # From the latest log on: logs that end before a snapshot that was found have no later one.
    for log in sorted(logs, key=lambda each: each.last_ns, reverse=True):
        if since_ns is not None and log.last_ns < since_ns:
            break
        if log.first_ns >= start_ns:
            continue
        with open_log(log.path) as reader:
            if getattr(reader, "kind", None) != "queue":
                continue
            below = first_seq_after(reader, start_ns - 1)
            book = warm_book(reader, one.venue_id, one.market_id, below, instrument=one)
        if book is not None:
            since_ns = max(book.timestamp_ns, since_ns or 0)
    if since_ns is None:
        return logs, True
    return [log for log in logs if log.last_ns >= since_ns], False


@dataclass(frozen=True)
class _UnitState:
    """The logs of a unit as they are now."""

    unit: LogUnit
    options: ReadOptions
    logs: tuple[ReplayLog, ...]  # by their first times
    bytes: int
    books: tuple[_BookLog, ...]  # those of `logs` that have snapshots

    @classmethod
    def of(cls, unit: LogUnit, options: ReadOptions) -> _UnitState:
        seen = [state for log in unit.logs if (state := _state_of(log, unit, options)) is not None]
        seen.sort(key=lambda each: (each.log.first_ns, each.log.name))
        return cls(
            unit,
            options,
            tuple(each.log for each in seen),
            sum(each.bytes for each in seen),
            tuple(each for each in seen if each.snapshots),
        )

    @property
    def from_ns(self) -> int:
        first = self.logs[0].first_ns
        asked = self.options.time_from
        return first if asked is None else max(first, asked)

    @property
    def to_ns(self) -> int:
        last = max(log.last_ns for log in self.logs) + 1
        asked = self.options.time_to
        return last if asked is None else min(last, asked)

    @property
    def length_ns(self) -> int:
        return max(0, self.to_ns - self.from_ns)

    def cuts_of_span(self, span_ns: int) -> list[int]:
        first = self.from_ns // span_ns + 1
        return [at * span_ns for at in range(first, (self.to_ns - 1) // span_ns + 1)]

    def cuts(self, count: int, look_back_ns: int) -> list[int]:
        """Times in the range, at most `count` - 1, with similar numbers of book bytes between.

        Each is a snapshot's time plus the look-back: a slice that begins there starts from that
        snapshot and reads no more than it needs.
        """
        if (self.options.on_gap or "resync") != "resync" or self.unit.instrument is None:
            return []  # snapshots are of no use
        books = self.books
        if self.unit.instrument.book_mode == "l3":
            # Other logs lack the orders of the logs before them, and so do their snapshots.
            books = tuple(
                book for i, book in enumerate(books) if i == 0 or book.log.reset_ns is not None
            )
        places: list[float] = []
        marks: list[tuple[_BookLog, int]] = []
        low = high = before = 0.0
        for book in books:
            first, end = book.reach(self.options.time_from, self.options.time_to)
            low = before + first * book.bytes if first > 0 else low
            high = before + end * book.bytes if end > 0 else high
            places += [before + book.share(seq) * book.bytes for seq in book.snapshots]
            marks += [(book, seq) for seq in book.snapshots]
            before += book.bytes
        nearest: dict[int, None] = {}
        for i in range(1, count):
            at = low + (high - low) * i / count
            right = bisect.bisect_left(places, at)
            around = [place for place in (right - 1, right) if 0 <= place < len(places)]
            if around:
                nearest[min(around, key=lambda place: abs(places[place] - at))] = None
        times = {marks[i][0].time_after(marks[i][1]) for i in nearest}
        found = sorted(at + look_back_ns for at in times if at is not None)
        return [at for at in found if self.from_ns < at < self.to_ns]

    def slices(self, cuts: Sequence[int], price_scale: int) -> Iterator[ReplaySlice]:
        bounds = [self.options.time_from, *cuts, self.options.time_to]
        for time_from, time_to in itertools.pairwise(bounds):
            logs = self.logs
            if time_to is not None:
                # And the next log, which shows that there are later records: sampling points up to
                # `time_to` are rows of this slice.
                inside = sum(log.first_ns < time_to for log in logs)
                logs = logs[: inside + 1]
            size = self.bytes // (len(bounds) - 1)
            yield ReplaySlice(logs, self.unit.instrument, time_from, time_to, price_scale, size)


@dataclass(frozen=True)
class _BookLog:
    """A log, and the records after which its book was saved or reset, in ascending order."""

    log: ReplayLog
    bytes: int
    first_seq: int
    snapshots: tuple[int, ...]

    def share(self, seq: int) -> float:
        """The fraction of the log before a record."""
        if self.log.end is None or self.log.end <= self.first_seq:
            return 0.0
        return min(max((seq - self.first_seq) / (self.log.end - self.first_seq), 0.0), 1.0)

    def reach(self, time_from: int | None, time_to: int | None) -> tuple[float, float]:
        """The fraction of the log before each of the two times."""
        return self._before(time_from, 0.0), self._before(time_to, 1.0)

    def _before(self, time: int | None, unbounded: float) -> float:
        if time is None:
            return unbounded
        if time > self.log.last_ns:
            return 1.0
        if time <= self.log.first_ns:
            return 0.0
        with open_log(self.log.path) as reader:
            seq = first_seq_after(reader, time - 1)
        return 1.0 if seq is None else self.share(seq)

    def time_after(self, seq: int) -> int | None:
        """The first time for which the snapshot of this record is an earlier one."""
        with open_log(self.log.path) as reader:
            reader.seek_seq(seq)
            record = next_record(reader)
        return None if record is None else record.timestamp_ns + 1


def _state_of(log: LogRef, unit: LogUnit, options: ReadOptions) -> _BookLog | None:
    """A log as it is now; None if it is empty."""
    end: int | None = None
    last_ns, size = _NEVER, 0
    if log.kind == "queue":
        seen = status(log.path)
        size = bytes_of(seen)
        restarts = seen.records is None and not seen.sparse  # then the last `seq` means nothing
        if seen.last_seq is not None and not restarts:
            end = seen.last_seq + 1
        if seen.last_timestamp_ns is not None:
            last_ns = seen.last_timestamp_ns
    if options.seq_to is not None:
        end = options.seq_to if end is None else min(end, options.seq_to)
    with open_log(log.path) as reader:
        first = next_record(reader)
        if first is None:
            return None
        one = unit.instrument
        start = first.seq, first.timestamp_ns
        reset = None
        if one is not None and one.book_mode == "l3" and _is_reset(first, one):
            second = next_record(reader)
            if second is not None and _is_reset(second, one) is False:
                reset = second.seq, second.timestamp_ns
        last_ns = latest_ns(reader, max(last_ns, start[1]))
    seqs = [] if reset is None else [reset[0]]
    if one is not None and log.kind == "queue":
        files = snapshots.files(log.path, one.venue_id, one.market_id)
        seqs += [file.seq for file in files if end is None or file.seq < end]
    reset_ns = None if reset is None else reset[1]
    state = ReplayLog(log.name, log.path, start[1], last_ns, end, reset_ns, start[0])
    return _BookLog(state, size, start[0], tuple(seqs))


def _is_reset(record: Record, instrument: Instrument) -> bool | None:
    """Whether a record resets the instrument's L3 book; None if it is not an event of it."""
    try:
        event = decode(record)
    except TapewireError:
        return None  # reading the slice reports the damage
    ids = (instrument.venue_id, instrument.market_id)
    if not isinstance(event, BookEvent) or (event.venue_id, event.market_id) != ids:
        return None
    return None if event.order is None else event.order.event_type == L3Type.RESET


def latest_ns(reader: Any, last_ns: int) -> int:
    """The latest time in a log: that of its last record, unless a clock went back before it.

    Steps forward double until nothing is found, then halve: some dozens of seeks, however much of
    the log is later than its last record.
    """
    step, too_far = 1, False
    while step:
        record = None
        if last_ns + step < 2**63 and reader.seek_time(last_ns + step):
            record = next_record(reader)
        if record is not None and record.timestamp_ns >= last_ns + step:
            last_ns = record.timestamp_ns
        else:
            too_far = True
        step = step // 2 if too_far else 2 * step
    return last_ns
