"""The snapshotter: follows a log in a separate process and saves its books periodically.

It is an ordinary named reader: it never delays the writer and is not pinned. If it is killed, the
next one resumes: files appear atomically, and the state file is written after the snapshots that it
refers to are on disk.
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
from tapewire.replay.retention import SnapshotRetention
from tapewire.replay.snapshots import SkippedFile
from tapewire.replay.start import is_of_log, missing_at_start, next_record

if TYPE_CHECKING:
    from tapewire.protocol.instruments import Instruments

__all__ = ["Every", "Round", "Snapshotter"]

STATE_FILE = "snapshotter.json"
STATE_VERSION = 1
WRITERS = 16  # files that are written to disk concurrently
POLL_SECONDS = 0.5  # maximum time of reading or waiting between checks for gaps and stop()
_log = logging.getLogger("tapewire.replay")


@dataclass(frozen=True)
class Every:
    """When to save the books: as soon as one of these limits is reached since the last time.

    Attributes:
        seconds: Seconds by the timestamps of the log, not by the wall clock.
        records: Records of the log, of any type.
        bytes: Bytes of the log.
        roll: Save at the first record of each segment.

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
        rounds: How often the books were saved.
        written: Files written.
        removed: Files removed by retention.
        records: Records read.
        events: Book events applied.
        gaps: Gaps found.
        last_seq: The last record read.
        clock_ns: The highest timestamp read.
        untrusted: Books that were untrusted the last time, and not saved.
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
    """Saves the books of a log periodically, and adds its gaps to the gap ledger.

    Only trusted books are saved. A book that has not changed since its last snapshot is saved again
    when the log has rolled to another segment, so that retention of the log never removes the
    record of its only snapshot.

    Args:
        log: Directory of a queue.
        every: When to save.
        keep: Snapshots to keep for each instrument, the newest; None: all.
        max_bytes: Limit of all snapshots of the log; the oldest are removed first.
        max_age: Maximum age in seconds, by the timestamps of the log.
        name: Name of the reader; only one snapshotter can have it at a time.
        instruments: Names and scales; None takes the nearest `instruments.json`.

    The newest snapshot of an instrument is never removed.

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
        self._retention = SnapshotRetention(self.log, keep, max_bytes, max_age)
        self._names = Names(instruments, [self.log])
        self._ledger = GapLedger(self.log)
        self._stop = threading.Event()
        self._saved_gap_changes = 0
        self._damage: str | None = None  # at which it waits

    def stop(self) -> None:
        """Make `run` end soon; may be called from another thread or a signal handler."""
        self._stop.set()

    def run(self, follow: bool = True, on_round: Callable[[Round], None] | None = None) -> Round:
        """Continue after the last run, to the end of the log or until stopped.

        Args:
            follow: Wait for more at the end. False: save once more at the end and return.
            on_round: Called whenever the books have been saved.

        Raises:
            ReaderAlreadyActive: The log has a snapshotter with this name.
            ConcurrentUse: The log has a snapshotter with another name.
            FileNotFoundError: The queue does not exist.
        """
        with (
            open_subscriber(self.log, self.name, start="earliest") as reader,
            snapshots.only_writer(self.log),
        ):
            snapshots.remove_temporary(self.log)
            self._remove_foreign_snapshots(reader)
            self._retention.load(self.findings)
            self._saved_gap_changes = 0  # the engine is new
            engine, note = self._begin(reader)
            begun = None if note is None else note["last_seq"]
            done = Round()
            state = _Since(engine, None if note is None else note["timestamp_ns"])
            while not self._stop.is_set():
                why = self._read(engine, state)
                self._save_gaps(engine)
                at_end = why == "end"
                due = why not in ("end", "slice")
                last = at_end and not follow and state.has_records and engine.last_seq != begun
                if due or last:
                    self._save(engine, reader, done, again=engine.rolls != state.rolls)
                    state = _Since(engine)
                    if on_round is not None:
                        on_round(dataclasses.replace(done))
                if at_end and not follow:
                    break
                if at_end and self._damage is None:
                    reader.wait(POLL_SECONDS)
                elif at_end:
                    self._stop.wait(POLL_SECONDS)
            self._count(engine, done)
            return done

    def _read(self, engine: Engine, state: _Since) -> str:
        """Call `Engine.run`; damage that no valid record follows yet counts as the end."""
        try:
            why = engine.run(**state.limits(self.every), seconds=POLL_SECONDS)
        except (CorruptRecord, SegmentMissing) as error:
            if str(error) != self._damage:
                self._damage = str(error)
                _log.warning("the log ends with damage, waiting for records: %s", error)
                self.findings.append(SkippedFile(os.fspath(self.log), str(error)))
            return "end"
        self._damage = None
        return why

    # ---- beginning ------------------------------------------------------------------------------

    def _begin(self, reader: Any) -> tuple[Engine, dict[str, int] | None]:
        """Return an engine positioned by the state file of the last run, and that state.

        Without a usable state file, the engine is at the start of the log and the state None.
        """
        engine = Engine(reader, self._names.of, on_gap="resync", skip_damaged=True)
        for instrument in self._names.instruments:
            engine.add(instrument)
        note = self._read_note(reader)
        resume = None if note is None else self._load_books(engine, note["resume_seq"])
        if note is None or resume is None:
            lost = missing_at_start(reader)
            if lost is not None:
                engine.lost_before(0, *lost)
            reader.seek_start()
            return engine, None
        reader.seek_seq(resume)
        record = next_record(reader)
        if record is not None:
            reader.seek_seq(record.seq)
            if record.seq > resume and not reader.sparse:
                engine.lost_before(0, resume, record.seq - 1)  # removed by retention
        return engine, note

    def _load_books(self, engine: Engine, noted: int) -> int | None:
        """Load the newest valid snapshots; return the record to continue with.

        If the newest snapshot of an instrument is damaged, the records after an older one are read
        again; if all of them are, the complete log is, and the result is None.
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

    def _remove_foreign_snapshots(self, reader: Any) -> None:
        """Remove snapshots of records that the log does not have, or that differ in it.

        A log can lose records at its end, by a power failure or a repair, after they were included
        in a snapshot. Their sequence numbers are or will be those of other records, and retention
        would take the snapshots for the newest.
        """
        for venue_id, market_id in snapshots.markets(self.log):
            for file in reversed(snapshots.files(self.log, venue_id, market_id)):
                try:
                    timestamp_ns = snapshots.info(file.path).ingest_end_ns
                except (TapewireError, OSError):
                    continue  # reported when it is needed
                if is_of_log(reader, file.seq, timestamp_ns) or _is_retired(reader, file.seq):
                    break  # so are the older ones
                why = f"removed, the log does not have its record: seq={file.seq} [{file.path}]"
                snapshots.report(self.findings, file.path, why)
                snapshots.remove(file)

    def _read_note(self, reader: Any) -> dict[str, int] | None:
        """Read the state file of the last run; None if there is none or it is of another log."""
        path = os.fspath(self.log / snapshots.DIRECTORY / STATE_FILE)
        try:
            note = _parse_note(load_bytes(path, MAX_LINE_BYTES))
        except FileNotFoundError:
            return None
        except (ValueError, TapewireError) as error:
            self._skip_note(path, str(error))
            return None
        reader.seek_seq(note["last_seq"])
        record = next_record(reader)
        same = record is not None and (
            record.seq > note["last_seq"] or record.timestamp_ns == note["timestamp_ns"]
        )
        if not same:
            self._skip_note(path, f"it is of another log: last_seq={note['last_seq']}")
            return None
        return note

    def _skip_note(self, path: str, why: str) -> None:
        _log.warning("state file ignored, reading from the start: %s [%s]", why, path)
        self.findings.append(SkippedFile(path, why))

    # ---- saving ---------------------------------------------------------------------------------

    def _save(self, engine: Engine, reader: Any, done: Round, *, again: bool) -> None:
        """Save once: files, gaps, then the state file that relies on them, then retention."""
        seq = engine.last_seq
        assert seq is not None
        due = engine.to_save(changed_only=not again)
        with ThreadPoolExecutor(max(1, min(WRITERS, len(due)))) as pool:
            for begin in range(0, len(due), WRITERS * 4):  # limits the books in memory
                some = due[begin : begin + WRITERS * 4]
                files = [engine.encode(index) for index in some]
                # A disk syncs many files at once in the time of a few.
                list(pool.map(lambda f: snapshots.write(self.log, f[0], f[1], seq, f[2]), files))
                for index, (venue_id, market_id, content) in zip(some, files, strict=True):
                    size, time_ns = len(content), engine.last_timestamp_ns
                    self._retention.add(venue_id, market_id, seq, size, time_ns)
                    engine.saved(index)
                done.written += len(some)
        self._save_gaps(engine)
        waiting = engine.rebuild_from()
        note = {
            "v": STATE_VERSION,
            "resume_seq": seq + 1 if waiting is None else min(waiting, seq + 1),
            "last_seq": seq,
            "timestamp_ns": engine.last_timestamp_ns,
        }
        snapshots.store_beside(self.log, STATE_FILE, seal(note))
        reader.commit()
        done.removed += self._retention.retain(engine.clock_ns)
        done.rounds += 1
        self._count(engine, done)

    def _save_gaps(self, engine: Engine) -> None:
        if engine.gap_changes != self._saved_gap_changes:
            self._saved_gap_changes = engine.gap_changes
            self._ledger.add(*gaps_of(engine))

    def _count(self, engine: Engine, done: Round) -> None:
        done.records, done.events = engine.records, engine.events
        done.last_seq, done.clock_ns = engine.last_seq, engine.clock_ns
        done.gaps = len(engine.gaps())
        done.untrusted = sum(not book.trusted for *_, book in engine.markets())

    def __repr__(self) -> str:
        return f"<Snapshotter of {os.fspath(self.log)!r} {self.every}>"


def _is_retired(reader: Any, seq: int) -> bool:
    """Whether retention has removed this record: the log starts after it."""
    if not reader.seek_start():
        return False
    record = next_record(reader)
    return record is not None and record.seq > seq


class _Since:
    """What was read since the books were last saved; `clock_ns`: the time of that, if known."""

    def __init__(self, engine: Engine, clock_ns: int | None = None) -> None:
        self._engine = engine
        self._records, self._bytes = engine.records, engine.bytes
        self._clock_ns = engine.clock_ns if clock_ns is None else clock_ns
        self.rolls = engine.rolls

    @property
    def has_records(self) -> bool:
        """Whether any record was read."""
        return self._engine.records != self._records

    def limits(self, every: Every) -> dict[str, Any]:
        """Return the arguments of `run` up to the next time the books are saved."""
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
            limits["until_ns"] = -(2**63)  # stop after the first record, whose time is the start
        return limits


def _parse_note(text: bytes) -> dict[str, int]:
    """Parse the state file; an invalid one raises ValueError."""
    note = unseal(text)
    if note.pop("v", None) != STATE_VERSION:
        raise ValueError("the file has another version")
    names = {"resume_seq", "last_seq", "timestamp_ns"}
    if set(note) != names or not all(type(n) is int and 0 <= n < 2**64 for n in note.values()):
        raise ValueError(f"the members must be {', '.join(sorted(names))}, each an integer")
    return note
