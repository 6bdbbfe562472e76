"""Replay: reads one or many logs in order of time and maintains the books."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tapewire.book.gaps import Gap
from tapewire.clock import to_ns
from tapewire.config import Seq, Time, check_at_least, check_whole
from tapewire.errors import InvalidOption
from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.replay._native import Engine, Step, empty_book
from tapewire.replay.names import Names
from tapewire.replay.snapshots import SkippedFile
from tapewire.replay.sources import Sources
from tapewire.replay.start import first_seq_after, time_range, warm_book

if TYPE_CHECKING:
    import os

    from tapewire.book import L2Book, L3Book
    from tapewire.clock import TimeLike
    from tapewire.replay.sources import Logs

    Book: TypeAlias = "L2Book | L3Book"

__all__ = ["PaceClock", "Replay", "book_at", "check_numbers", "gaps_of", "open_engine"]


class PaceClock(Protocol):
    """The clock of a paced replay; the module `time` is one."""

    def monotonic(self) -> float:
        """Return the time in seconds."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Wait for `seconds`."""
        ...


class Replay:
    """Reads one or many logs in order and maintains a book for each instrument.

    Records are ordered by time, then by the name of the log, then by sequence number: the same logs
    always give the same steps and books. The time of the replay is that of the records and never
    goes back.

    Args:
        logs: The path of a log, a list of paths (which are the names of the logs; for example the
            days of an archive), or a dict from name to log. Open readers are accepted: they are
            read from their position and not closed.
        symbols: Only these instruments, by symbol, ``venue:symbol`` or `Instrument`; None: all. For
            a symbol that several venues have, the venues in the paths of the logs are taken.
        time_from: Return steps from this time on. Earlier records are applied to the books.
        time_to: End before the first record with which the replay reaches this time.
        seq_from: For one log: return steps from this record on. Earlier records are applied.
        seq_to: For one log: end before the first record with this sequence number or a higher one.
            For many: a dict from the name of a log to the sequence number where it ends.
        on_gap: "resync": the book is untrusted until the next snapshot in the log; "quarantine":
            until its `release()`; "raise": raise `GapDetected`, and the next step continues.
        instruments: Names and scales; None takes the nearest `instruments.json` of each log.
        pace: Speed: 1.0 as recorded, 10.0 ten times as fast, None as fast as possible.
        snapshots: With `symbols` and `time_from` or `seq_from`: start after the latest earlier book
            snapshots if every instrument has one, instead of at the start. The steps are the same.
        skip_damaged: Skip damage as a gap instead of raising `CorruptRecord`.
        unknown: How an L3 book handles unknown orders: "ignore", "raise", "distrust".
        clock: The clock of a paced replay.

    Example:
        >>> import tapewire as tw
        >>> from tapewire import replay
        >>> from tapewire.protocol.instruments import Instrument, Instruments
        >>> from tapewire.protocol.market import l2_diff, l2_snapshot
        >>> btc = Instrument.of("binance", "BTCUSDT", price_scale=2, size_scale=3)
        >>> with tw.open_publisher(tmp / "book", segment_bytes=1 << 20) as writer:
        ...     first = l2_snapshot(btc, 1000, bids=[(10_000, 5)], asks=[(10_010, 7)], native_seq=1)
        ...     _ = writer.append(0x1000, first, timestamp_ns=1000)
        ...     second = l2_diff(btc, 2000, bids=[(10_005, 2)], asks=[], first=2, last=2, prev=1)
        ...     _ = writer.append(0x1000, second, timestamp_ns=2000)
        >>> with replay.Replay(tmp / "book", instruments=Instruments([btc])) as steps:
        ...     for step in steps:
        ...         print(step.symbol, step.timestamp_ns, step.book.best_bid.price)
        BTCUSDT 1000 10000
        BTCUSDT 2000 10005
    """

    def __init__(
        self,
        logs: Logs,
        symbols: Iterable[str | Instrument] | str | None = None,
        time_from: TimeLike | None = None,
        time_to: TimeLike | None = None,
        on_gap: str = "resync",
        instruments: Instruments | None = None,
        pace: float | None = None,
        snapshots: bool = True,
        *,
        seq_from: int | None = None,
        seq_to: int | Mapping[str, int] | None = None,
        skip_damaged: bool = False,
        unknown: str = "distrust",
        clock: PaceClock = time,
    ) -> None:
        if pace is not None:
            check_at_least("pace", pace, 0)
            if pace == 0:
                raise InvalidOption(f"pace must be above 0: pace={pace!r}")
        self.pace = pace
        self._clock = clock
        self.findings: list[SkippedFile] = []
        self._sources = Sources(logs)
        try:
            self._names = Names(instruments, self._sources.directories)
            self._engine = open_engine(
                self._sources,
                self._names,
                None if symbols is None else self._names.find(symbols),
                time_from=time_from,
                time_to=time_to,
                seq_from=seq_from,
                seq_to=seq_to,
                on_gap=on_gap,
                snapshots=snapshots,
                skip_damaged=skip_damaged,
                unknown=unknown,
                findings=self.findings,
            )
        except BaseException:
            self._sources.close()
            raise

    def __iter__(self) -> Iterator[Step]:
        return self._engine if self.pace is None else self._paced(self._engine)

    def _paced(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Delay the steps: each by its time since the first one, divided by `pace`."""
        assert self.pace is not None
        begun: tuple[float, int] | None = None
        for step in steps:
            if begun is None:
                begun = (self._clock.monotonic(), step.clock_ns)
            due = begun[0] + (step.clock_ns - begun[1]) / 1e9 / self.pace
            early = due - self._clock.monotonic()
            if early > 0:
                self._clock.sleep(early)
            yield step

    def follow(self, timeout: float | None = None) -> Iterator[Step]:
        """Iterate and wait for more; end after `timeout` seconds without one, or at `time_to`."""
        steps = self._follow(timeout)
        return steps if self.pace is None else self._paced(steps)

    def _follow(self, timeout: float | None) -> Iterator[Step]:
        while True:
            step = self._engine.next(follow=True)
            if step is not None:
                yield step
            elif self._engine.finished or not self._engine.wait(timeout):
                return

    def run(self, seconds: float | None = None) -> str:
        """Process the remaining records without returning steps, natively and without the GIL.

        Returns:
            "end", or "slice" if `seconds` passed before the end.
        """
        return self._engine.run(seconds=seconds)

    @property
    def books(self) -> dict[tuple[str, str], Book]:
        """The books by ``(venue, symbol)``, the same objects as in the steps."""
        return {(venue, symbol): book for _, _, venue, symbol, book in self._engine.markets()}

    @property
    def gaps(self) -> list[Gap]:
        """The gaps found so far, and how each was handled."""
        return gaps_of(self._engine)

    def hash(self) -> str:
        """Return the XXH3-128 of the ids and hashes of all books; equal for equal records."""
        return self._engine.hash()

    @property
    def records(self) -> int:
        """Records read so far, including those of other instruments."""
        return self._engine.records

    @property
    def events(self) -> int:
        """Book events applied so far."""
        return self._engine.events

    @property
    def clock_ns(self) -> int | None:
        """The time of the replay: the highest timestamp so far; None before the first record."""
        return self._engine.clock_ns

    @property
    def closed(self) -> bool:
        """Whether the replay is closed."""
        closed: bool = self._sources.reader.closed
        return closed

    def close(self) -> None:
        """Close the logs that the replay opened; the books remain. A second call has no effect."""
        self._sources.close()

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"records={self.records} events={self.events}"
        return f"<Replay of {self._sources!r} {state}>"


def gaps_of(engine: Engine, stream: str = "book") -> list[Gap]:
    """Return the gaps that an engine has found."""
    return [
        Gap(kind, venue, symbol, stream, first, last, seq, max(timestamp_ns, 0), cause, action)
        for kind, venue, symbol, first, last, seq, timestamp_ns, cause, action, _ in engine.gaps()
    ]


def check_numbers(
    sources: Sources, seq_from: int | None, seq_to: int | Mapping[str, int] | None
) -> None:
    """Raise `InvalidOption` for sequence numbers that are out of range or of no known log."""
    names = [source.name for source in sources.each]
    ends = seq_to if isinstance(seq_to, Mapping) else {}
    for name, seq in ends.items():
        check_whole(f"seq_to[{name!r}]", seq, 0, 2**64 - 1)
        if name not in names:
            raise InvalidOption(f"seq_to has an unknown log: seq_to={name!r}, logs={names!r}")
    for name, single in (("seq_from", seq_from), ("seq_to", seq_to)):
        if isinstance(single, Mapping):
            continue
        check_whole(name, single, 0, 2**64 - 1, optional=True)
        if single is not None and len(names) > 1:
            raise InvalidOption(
                f"{name} needs a single log: {name}={single}, logs={len(names)}",
                hint="use time_from and time_to for several logs",
            )


def open_engine(
    sources: Sources,
    names: Names,
    wanted: list[Instrument] | None,
    *,
    time_from: TimeLike | None = None,
    time_to: TimeLike | None = None,
    seq_from: int | None = None,
    seq_to: int | Mapping[str, int] | None = None,
    on_gap: str = "resync",
    snapshots: bool = True,
    skip_damaged: bool = False,
    unknown: str = "distrust",
    findings: list[SkippedFile] | None = None,
) -> Engine:
    """Make an engine over these logs and position them; the arguments are those of `Replay`.

    Snapshots are used only for "resync": they do not contain whether a book was quarantined, or
    had raised, before `time_from`.
    """
    from_ns, end_ns = time_range(time_from, time_to)
    check_numbers(sources, seq_from, seq_to)
    found = [] if findings is None else findings
    books = {}
    is_late = from_ns is not None or seq_from is not None
    if snapshots and on_gap == "resync" and wanted and is_late:
        books = sources.warm_books(wanted, from_ns, seq_from, found)
    lost = sources.move_to_start(books)
    ends = dict(seq_to) if isinstance(seq_to, Mapping) else {}
    end_seq = ends.get(sources.each[0].name) if isinstance(seq_to, Mapping) else seq_to
    engine = Engine(
        sources.join(ends),
        names.of,
        on_gap=on_gap,
        unknown=unknown,
        only_added=wanted is not None,
        skip_damaged=skip_damaged,
        show_from_ns=from_ns,
        show_from_seq=seq_from,
        end_ns=end_ns,
        end_seq=end_seq if len(sources.each) == 1 else None,
    )
    for one in names.instruments if wanted is None else wanted:
        engine.add(one)
    for index, book in books.values():
        engine.warm(book.snapshot, index)
    for index, (first, last) in lost.items():
        engine.lost_before(index, first, last)
    return engine


def book_at(
    log: str | os.PathLike[str],
    symbol: str | Instrument,
    when: TimeLike | Seq | Time,
    instruments: Instruments | None = None,
    *,
    snapshots: bool = True,
    findings: list[SkippedFile] | None = None,
) -> Book:
    """Return the book of an instrument as it was at a time, or after a record.

    It includes every record before the position of ``reader.seek_time(time + 1)``. The replay
    starts from the latest earlier snapshot or, without one, at the start of the log. Damage on the
    way makes the book untrusted until the next snapshot in the log; see `distrust_reason`.

    Args:
        log: Directory of the log.
        symbol: The instrument, by symbol, ``venue:symbol`` or as `Instrument`. If several venues
            have the symbol, the venue in the path of the log is taken.
        when: A time, or ``tw.Seq(n)``: after record `n`.
        instruments: Names and scales; None takes the log's nearest `instruments.json`.
        snapshots: False: replay from the start of the log, for comparison.
        findings: A list to which skipped snapshots are added, with the reason.

    Returns:
        The book; empty if the log has no event for it.

    Raises:
        UnknownInstrument: No instrument has this symbol, or several have it and none is the venue
            in the path.
    """
    sources = Sources(log)
    try:
        reader = sources.each[0].reader
        names = Names(instruments, sources.directories)
        (instrument,) = names.find(symbol)
        end_ns = end_seq = None
        if isinstance(when, Seq):
            end_seq = when.seq + 1 if when.seq < 2**64 - 1 else None
        else:
            at = when.timestamp_ns if isinstance(when, Time) else to_ns(when)
            # Both limits: records appended meanwhile to a live log may be later than that time.
            end_seq, end_ns = first_seq_after(reader, at), at + 1 if at < 2**63 - 1 else None
        book = None
        if snapshots and reader.kind == "queue":
            ids = (instrument.venue_id, instrument.market_id)
            book = warm_book(reader, *ids, end_seq, findings, instrument=instrument)
        books = {instrument: (0, book)} if book else {}
        lost = sources.move_to_start(books)
        # Without `end_seq` the replay ends at the current end of the log.
        engine = Engine(
            sources.join(),
            names.of,
            only_added=True,
            skip_damaged=True,
            end_ns=end_ns,
            end_seq=end_seq,
        )
        engine.add(instrument)
        if book:
            engine.warm(book.snapshot, 0)
        for first, last in lost.values():
            engine.lost_before(0, first, last)
        engine.run()
        for *_, found in engine.markets():
            return found
        return empty_book(instrument)
    finally:
        sources.close()
