"""The snapshotter: follows a log in a process of its own and saves its books now and then.

It is a named reader like any other: it never delays the writer, and pins nothing. Killed anywhere,
its successor goes on: every file appears whole, and what it needs to begin again is noted after the
files it speaks of are on disk.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapewire.book.checked_lines import MAX_LINE_BYTES, seal, unseal
from tapewire.book.gaps import GapLedger
from tapewire.config import check_at_least, check_whole
from tapewire.errors import CorruptRecord, InvalidOption, SegmentMissing, TapewireError
from tapewire.protocol.json_file import load as load_bytes
from tapewire.queue import open_subscriber
from tapewire.replay import snapshots
from tapewire.replay._native import Engine
from tapewire.replay.names import Names
from tapewire.replay.playback import gaps_of
from tapewire.replay.retention import SnapshotShelf
from tapewire.replay.snapshots import SkippedFile
from tapewire.replay.start import begins_late, is_of_log, next_record

if TYPE_CHECKING:
    from tapewire.protocol.instruments import Instruments

__all__ = ["Every", "Round", "Snapshotter"]

STATE_FILE = "snapshotter.json"
STATE_VERSION = 1
WRITERS = 16  # files that are on their way to the disk at once
LOOK_SECONDS = 0.5  # how long it reads, or waits, before it looks after gaps and stop()
_log = logging.getLogger("tapewire.replay")


@dataclass(frozen=True)
class Every:
    """When to save the books: as soon as one of these is reached since the last time.

    Attributes:
        seconds: Of the tape's time, not of the clock on the wall.
        records: Of the log, whatever they are.
        bytes: Of the log.
        roll: At the first record of each segment.

    Example:
        >>> Every(records=10_000, roll=True)
        Every(seconds=None, records=10000, bytes=None, roll=True)
    """

    seconds: float | None = None
    records: int | None = None
    bytes: int | None = None
    roll: bool = False

    def __post_init__(self) -> None:
        check_at_least("seconds", self.seconds, 1e-9, optional=True)
        check_whole("records", self.records, 1, optional=True)
        check_whole("bytes", self.bytes, 1, optional=True)
        if (self.seconds, self.records, self.bytes, self.roll) == (None, None, None, False):
            raise InvalidOption("Every needs seconds, records, bytes or roll")


DEFAULT_EVERY = Every(seconds=10, records=10_000)


@dataclass
class Round:
    """What a snapshotter has done so far.

    Attributes:
        rounds: How often books were saved.
        written: Files written.
        removed: Files taken away by retention.
        records: Records read.
        events: Book events applied.
        gaps: How many gaps it has seen.
        last_seq: The last record read.
        clock_ns: The tape's clock.
        untrusted: Books that could not be saved the last time.
    """

    rounds: int = 0
    written: int = 0
    removed: int = 0
    records: int = 0
    events: int = 0
    gaps: int = 0
    last_seq: int | None = None
    clock_ns: int | None = None
    untrusted: int = 0


class Snapshotter:
    """Saves the books of a log by policy, and writes its gaps into the ledger beside it.

    Only books that can be trusted are saved; one that did not change since its last snapshot is
    saved again when the log has rolled to another segment, so that retention of the log never
    leaves it without one.

    Args:
        log: Folder of a queue.
        every: When to save.
        keep: How many snapshots of an instrument stay, the newest ones; None: all.
        max_bytes: Of all snapshots of the log together; the oldest go first.
        max_age: In seconds of the tape's time; older ones go.
        name: Of the reader: one snapshotter has it at a time.
        instruments: Names and scales; None takes the nearest `instruments.json`.

    The newest snapshot of an instrument never goes.

    Example:
        >>> import tapewire as tw
        >>> from tapewire import replay
        >>> tw.open_publisher(tmp / "book", segment_bytes=1 << 20).close()
        >>> replay.Snapshotter(tmp / "book", every=replay.Every(records=1000)).run(follow=False)
        Round(rounds=0, written=0, removed=0, records=0, events=0, gaps=0, last_seq=None, \
clock_ns=None, untrusted=0)
    """

    def __init__(
        self,
        log: str | os.PathLike[str],
        every: Every = DEFAULT_EVERY,
        keep: int | None = 100,
        max_bytes: int | None = None,
        max_age: float | None = None,
        *,
        name: str = "snapshotter",
        instruments: Instruments | None = None,
    ) -> None:
        if not isinstance(every, Every):
            raise TypeError(f"every must be an Every: every={every!r}")
        self.log = Path(log)
        self.every = every
        self.name = name
        self.findings: list[SkippedFile] = []
        self._shelf = SnapshotShelf(self.log, keep, max_bytes, max_age)
        self._names = Names(instruments, [self.log])
        self._ledger = GapLedger(self.log)
        self._stop = threading.Event()
        self._told_gaps = 0
        self._damage: str | None = None  # that it stands before

    def stop(self) -> None:
        """Have `run` end soon; another thread or a signal handler may call this."""
        self._stop.set()

    def run(self, follow: bool = True, on_round: Callable[[Round], None] | None = None) -> Round:
        """Go on where the last one stopped, to the end of the log or for ever.

        Args:
            follow: Wait for more at the end. False: save once more there, and return.
            on_round: Called after each time the books were saved.

        Raises:
            ReaderAlreadyActive: The log has a snapshotter of this name.
            ConcurrentUse: It has one of another name.
            FileNotFoundError: There is no such queue.
        """
        with (
            open_subscriber(self.log, self.name, start="earliest") as reader,
            snapshots.only_writer(self.log),
        ):
            snapshots.remove_temporary(self.log)
            self._remove_strangers(reader)
            self._shelf.look(self.findings)
            self._told_gaps = 0  # of the engine that is made now
            engine, note = self._begin(reader)
            begun = None if note is None else note["last_seq"]
            done = Round()
            state = _Since(engine, None if note is None else note["timestamp_ns"])
            while not self._stop.is_set():
                why = self._read(engine, state)
                self._tell_gaps(engine)
                at_end = why == "end"
                due = why not in ("end", "slice")
                last = at_end and not follow and state.has_news and engine.last_seq != begun
                if due or last:
                    self._save(engine, reader, done, again=engine.rolls != state.rolls)
                    state = _Since(engine)
                    if on_round is not None:
                        on_round(dataclasses.replace(done))
                if at_end and not follow:
                    break
                if at_end and self._damage is None:
                    reader.wait(LOOK_SECONDS)
                elif at_end:
                    self._stop.wait(LOOK_SECONDS)
            self._count(engine, done)
            return done

    def _read(self, engine: Engine, state: _Since) -> str:
        """As `Engine.run`; a damaged record with nothing right behind it is the end for now."""
        try:
            why = engine.run(**state.limits(self.every), seconds=LOOK_SECONDS)
        except (CorruptRecord, SegmentMissing) as error:
            if str(error) != self._damage:
                self._damage = str(error)
                _log.warning("the log ends with damage, waiting for more: %s", error)
                self.findings.append(SkippedFile(os.fspath(self.log), str(error)))
            return "end"
        self._damage = None
        return why

    # ---- beginning ------------------------------------------------------------------------------

    def _begin(self, reader: Any) -> tuple[Engine, dict[str, int] | None]:
        """An engine that stands where the predecessor's note says, and the note.

        It stands at the start, without one, where there is none or it cannot be followed.
        """
        engine = Engine(reader, self._names.of, on_gap="resync", skip_damaged=True)
        for instrument in self._names.instruments:
            engine.add(instrument)
        note = self._read_note(reader)
        resume = None if note is None else self._load_books(engine, note["resume_seq"])
        if note is None or resume is None:
            lost = begins_late(reader)
            if lost is not None:
                engine.lost_before(0, *lost)
            reader.seek_start()
            return engine, None
        reader.seek_seq(resume)
        record = next_record(reader)
        if record is not None:
            reader.seek_seq(record.seq)
            if record.seq > resume and not reader.sparse:
                engine.lost_before(0, resume, record.seq - 1)  # retention was faster than we were
        return engine, note

    def _load_books(self, engine: Engine, noted: int) -> int | None:
        """Begin with the newest snapshots that can be believed; the record to go on with.

        A snapshot older than the newest, which was damaged, needs what came after it; an instrument
        whose snapshots are all damaged needs the whole log: None.
        """
        resume: int | None = noted
        for venue_id, market_id in snapshots.markets(self.log):
            newest = snapshots.files(self.log, venue_id, market_id)
            instrument = self._names.instruments.by_id(venue_id, market_id)
            found = snapshots.latest_before(
                self.log, venue_id, market_id, instrument=instrument, findings=self.findings
            )
            if found is None:
                resume = None if newest else resume
                continue
            engine.warm(found, 0)
            if resume is not None and found.header["seq"] != newest[-1].seq:
                resume = min(resume, found.header["seq"] + 1)
        return resume

    def _remove_strangers(self, reader: Any) -> None:
        """Take away snapshots of records that this log does not have, or has otherwise.

        The log lost its end, by a power cut or a repair, which was saved already: their numbers are
        other records now, or will be. Left there, they would be the newest to retention.
        """
        for venue_id, market_id in snapshots.markets(self.log):
            for file in reversed(snapshots.files(self.log, venue_id, market_id)):
                try:
                    timestamp_ns = snapshots.info(file.path).ingest_end_ns
                except (TapewireError, OSError):
                    continue  # told of by whoever wants it
                if is_of_log(reader, file.seq, timestamp_ns) or _is_gone_at_front(reader, file.seq):
                    break  # and so are the older ones
                why = f"removed, its record is not in the log: seq={file.seq} [{file.path}]"
                snapshots.report(self.findings, file.path, why)
                snapshots.remove(file)

    def _read_note(self, reader: Any) -> dict[str, int] | None:
        """What the predecessor noted, when it speaks of this very log."""
        path = os.fspath(self.log / snapshots.FOLDER / STATE_FILE)
        try:
            note = _parse_note(load_bytes(path, MAX_LINE_BYTES))
        except FileNotFoundError:
            return None
        except (ValueError, TapewireError) as error:
            self._pass_over(path, str(error))
            return None
        reader.seek_seq(note["last_seq"])
        record = next_record(reader)
        same = record is not None and (
            record.seq > note["last_seq"] or record.timestamp_ns == note["timestamp_ns"]
        )
        if not same:
            self._pass_over(path, f"it is of another log: last_seq={note['last_seq']}")
            return None
        return note

    def _pass_over(self, path: str, why: str) -> None:
        _log.warning("snapshotter's note passed over, reading from the start: %s [%s]", why, path)
        self.findings.append(SkippedFile(path, why))

    # ---- saving ---------------------------------------------------------------------------------

    def _save(self, engine: Engine, reader: Any, done: Round, *, again: bool) -> None:
        """One round: files, gaps, then the note that relies on them, then retention."""
        seq = engine.last_seq
        assert seq is not None
        due = engine.to_save(changed_only=not again)
        with ThreadPoolExecutor(max(1, min(WRITERS, len(due)))) as pool:
            for begin in range(0, len(due), WRITERS * 4):  # so many books in memory at once
                some = due[begin : begin + WRITERS * 4]
                files = [engine.encode(index) for index in some]
                # A disk takes the syncs of many files in the time of a few.
                list(pool.map(lambda f: snapshots.write(self.log, f[0], f[1], seq, f[2]), files))
                for index, (venue_id, market_id, content) in zip(some, files, strict=True):
                    size, time_ns = len(content), engine.last_timestamp_ns
                    self._shelf.put(venue_id, market_id, seq, size, time_ns)
                    engine.saved(index)
                done.written += len(some)
        self._tell_gaps(engine)
        waiting = engine.rebuild_from()
        note = {
            "v": STATE_VERSION,
            "resume_seq": seq + 1 if waiting is None else min(waiting, seq + 1),
            "last_seq": seq,
            "timestamp_ns": engine.last_timestamp_ns,
        }
        snapshots.store_beside(self.log, STATE_FILE, seal(note))
        reader.commit()
        done.removed += self._shelf.retain(engine.clock_ns)
        done.rounds += 1
        self._count(engine, done)

    def _tell_gaps(self, engine: Engine) -> None:
        if engine.gap_changes != self._told_gaps:
            self._told_gaps = engine.gap_changes
            self._ledger.add(*gaps_of(engine))

    def _count(self, engine: Engine, done: Round) -> None:
        done.records, done.events = engine.records, engine.events
        done.last_seq, done.clock_ns = engine.last_seq, engine.clock_ns
        done.gaps = len(engine.gaps())
        done.untrusted = sum(not book.trusted for *_, book in engine.markets())

    def __repr__(self) -> str:
        return f"<Snapshotter of {os.fspath(self.log)!r} {self.every}>"


def _is_gone_at_front(reader: Any, seq: int) -> bool:
    """Whether the log, cut at its front, begins behind this record."""
    if not reader.seek_start():
        return False
    record = next_record(reader)
    return record is not None and record.seq > seq


class _Since:
    """What was read since the last round; `clock_ns`: when that was, if by a predecessor."""

    def __init__(self, engine: Engine, clock_ns: int | None = None) -> None:
        self._engine = engine
        self._records, self._bytes = engine.records, engine.bytes
        self._clock_ns = engine.clock_ns if clock_ns is None else clock_ns
        self.rolls = engine.rolls

    @property
    def has_news(self) -> bool:
        """Whether anything was read."""
        return self._engine.records != self._records

    def limits(self, every: Every) -> dict[str, Any]:
        """The arguments of `run` for what is left until the next round."""
        engine = self._engine
        if self._clock_ns is None and engine.clock_ns is not None:
            self._clock_ns = engine.clock_ns
        limits: dict[str, Any] = {"at_roll": every.roll}
        if every.records is not None:
            limits["records"] = every.records - (engine.records - self._records)
        if every.bytes is not None:
            limits["bytes"] = every.bytes - (engine.bytes - self._bytes)
        if every.seconds is not None and self._clock_ns is not None:
            limits["until_ns"] = self._clock_ns + int(every.seconds * 1e9)
        elif every.seconds is not None:
            limits["until_ns"] = -(2**63)  # the first record says when the tape begins
        return limits


def _parse_note(text: bytes) -> dict[str, int]:
    """The predecessor's note; ValueError says what is wrong with it."""
    note = unseal(text)
    if note.pop("v", None) != STATE_VERSION:
        raise ValueError("of another release")
    names = {"resume_seq", "last_seq", "timestamp_ns"}
    if set(note) != names or not all(type(n) is int and 0 <= n < 2**64 for n in note.values()):
        raise ValueError(f"the members must be {', '.join(sorted(names))}, each a whole number")
    return note
