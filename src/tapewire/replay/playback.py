"""Replay: the records of one or many logs in the order of the tape, and the books they make."""

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
    """What a paced replay measures and waits by; the module `time` is one."""

    def monotonic(self) -> float:
        """Seconds."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Wait so long."""
        ...


class Replay:
    """Goes through one log or many as one tape, and keeps a book for each instrument.

    The order is that of time, then of the logs' names, then of their numbers: the same logs give
    the same steps and the same books each time. The clock is the tape's.

    Args:
        logs: A log by its path, a list of them (whose names are their paths: a log for each day is
            one such list), or a dict from name to log. Open readers are taken too: they are read
            from where they stand, and are not closed.
        symbols: Only these instruments, by symbol, ``venue:symbol`` or `Instrument`; None: all. A
            symbol that several venues have is that of the venues in the logs' own paths.
        time_from: Show what comes at this time of the tape or later. What came before is applied.
        time_to: End in front of the first record at which the tape reaches this time.
        seq_from: Of one log: show what comes from this record on. What came before is applied.
        seq_to: Of one log: end in front of the first record with this number or a higher one. Of
            many, a dict from the name of a log to such a number: as if it ended there.
        on_gap: "resync": the book waits, untrusted, for a snapshot on the tape; "quarantine": for
            its `release()`; "raise": `GapDetected`, and the next step goes on.
        instruments: Names and scales; None takes the nearest `instruments.json` of each log.
        pace: How fast: 1.0 as it was recorded, 10.0 ten times as fast, None as fast as possible.
        snapshots: With `symbols` and `time_from` or `seq_from`: begin behind the latest snapshots
            before that, where every instrument has one, instead of at the start. The steps are the
            same.
        skip_damaged: Pass over what is damaged, as a gap, instead of raising `CorruptRecord`.
        unknown: What an L3 book does about orders it does not know: "ignore", "raise", "distrust".
        clock: What a paced replay waits by.

    Example:
        >>> import tapewire as tw
        >>> from tapewire import replay
        >>> from tapewire.protocol.instruments import Instrument, Instruments
        >>> from tapewire.protocol.market import l2_diff, l2_snapshot
        >>> btc = Instrument.of("binance", "BTCUSDT", price_scale=2, size_scale=3)
        >>> with tw.open_publisher(tmp / "book", segment_bytes=1 << 20) as tape:
        ...     first = l2_snapshot(btc, 1000, bids=[(10_000, 5)], asks=[(10_010, 7)], native_seq=1)
        ...     _ = tape.append(0x1000, first, timestamp_ns=1000)
        ...     second = l2_diff(btc, 2000, bids=[(10_005, 2)], asks=[], first=2, last=2, prev=1)
        ...     _ = tape.append(0x1000, second, timestamp_ns=2000)
        >>> with replay.Replay(tmp / "book", instruments=Instruments([btc])) as tape:
        ...     for step in tape:
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
        unknown: str = "ignore",
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
            self._names = Names(instruments, self._sources.folders)
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
        """The same steps, none before its time: the tape's, counted from the first one."""
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
        """The same, and waits for more; ends after `timeout` seconds without, or at `time_to`."""
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
        """Go through what is left without showing it, natively and without the GIL.

        Returns:
            "end", or "slice" when `seconds` have passed before.
        """
        return self._engine.run(seconds=seconds)

    @property
    def books(self) -> dict[tuple[str, str], Book]:
        """The books: ``(venue, symbol)`` to the same object that steps show."""
        return {(venue, symbol): book for _, _, venue, symbol, book in self._engine.markets()}

    @property
    def gaps(self) -> list[Gap]:
        """What was missing so far, with what became of it."""
        return gaps_of(self._engine)

    def hash(self) -> str:
        """XXH3-128 over the ids and hashes of all books: the same tape gives the same."""
        return self._engine.hash()

    @property
    def records(self) -> int:
        """Records read so far, those of other instruments included."""
        return self._engine.records

    @property
    def events(self) -> int:
        """Book events applied so far."""
        return self._engine.events

    @property
    def clock_ns(self) -> int | None:
        """The tape's clock: the highest time so far; None before the first record."""
        return self._engine.clock_ns

    @property
    def closed(self) -> bool:
        """Whether the replay is closed."""
        closed: bool = self._sources.reader.closed
        return closed

    def close(self) -> None:
        """Close the logs that were opened here. Books stay as they are. Closing twice is fine."""
        self._sources.close()

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"records={self.records} events={self.events}"
        return f"<Replay of {self._sources!r} {state}>"


def gaps_of(engine: Engine, stream: str = "book") -> list[Gap]:
    """What an engine found missing."""
    return [
        Gap(kind, venue, symbol, stream, first, last, seq, max(timestamp_ns, 0), cause, action)
        for kind, venue, symbol, first, last, seq, timestamp_ns, cause, action, _ in engine.gaps()
    ]


def check_numbers(
    sources: Sources, seq_from: int | None, seq_to: int | Mapping[str, int] | None
) -> None:
    """Refuse numbers of records that no record can have, or of which nobody knows whose."""
    names = [source.name for source in sources.each]
    ends = seq_to if isinstance(seq_to, Mapping) else {}
    for name, seq in ends.items():
        check_whole(f"seq_to[{name!r}]", seq, 0, 2**64 - 1)
        if name not in names:
            raise InvalidOption(f"seq_to names no log of these: seq_to={name!r}, logs={names!r}")
    for name, single in (("seq_from", seq_from), ("seq_to", seq_to)):
        if isinstance(single, Mapping):
            continue
        check_whole(name, single, 0, 2**64 - 1, optional=True)
        if single is not None and len(names) > 1:
            raise InvalidOption(
                f"records are numbered in one log: {name}={single}, logs={len(names)}",
                hint="give time_from and time_to where there are many",
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
    unknown: str = "ignore",
    findings: list[SkippedFile] | None = None,
) -> Engine:
    """An engine over these logs, which stand where it begins; the arguments are those of `Replay`.

    A book that was quarantined, or had raised, before `time_from` is not known to snapshots: they
    serve for "resync" alone.
    """
    from_ns, end_ns = time_range(time_from, time_to)
    check_numbers(sources, seq_from, seq_to)
    found = [] if findings is None else findings
    books = {}
    is_late = from_ns is not None or seq_from is not None
    if snapshots and on_gap == "resync" and wanted and is_late:
        books = sources.warm_books(wanted, from_ns, seq_from, found)
    lost = sources.place(books)
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
    for place, book in books.values():
        engine.warm(book.snapshot, place)
    for place, (first, last) in lost.items():
        engine.lost_before(place, first, last)
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
    """The book of an instrument as it was at a time, or behind a record.

    It holds every record at which the tape was not yet later than that time: just those in front of
    which ``reader.seek_time(time + 1)`` stands. It begins with the latest snapshot before and
    replays from there; without snapshots, from the start of the log. Damage on the way makes the
    book untrusted, as `distrust_reason` says, until the tape brings a snapshot.

    Args:
        log: Folder of the log.
        symbol: The instrument, by symbol, ``venue:symbol`` or as `Instrument`. A symbol that
            several venues have is that of the venue in the log's own path.
        when: A time, or ``tw.Seq(n)``: behind record `n`.
        instruments: Names and scales; None takes the log's nearest `instruments.json`.
        snapshots: False replays from the start of the log, to compare.
        findings: Gets the snapshots that were passed over, and why.

    Returns:
        The book. Without an event of it on the tape: an empty one.

    Raises:
        UnknownInstrument: No instrument has this symbol, or several have it and the path does not
            tell which.
    """
    sources = Sources(log)
    try:
        reader = sources.each[0].reader
        names = Names(instruments, sources.folders)
        (instrument,) = names.find(symbol)
        end_ns = end_seq = None
        if isinstance(when, Seq):
            end_seq = when.seq + 1 if when.seq < 2**64 - 1 else None
        else:
            at = when.timestamp_ns if isinstance(when, Time) else to_ns(when)
            # Both: what a live log gets meanwhile may be later than that time.
            end_seq, end_ns = first_seq_after(reader, at), at + 1 if at < 2**63 - 1 else None
        book = None
        if snapshots and reader.kind == "queue":
            ids = (instrument.venue_id, instrument.market_id)
            book = warm_book(reader, *ids, end_seq, findings, instrument=instrument)
        books = {instrument: (0, book)} if book else {}
        lost = sources.place(books)
        # A live log goes on: without a number to end at, the end is what is there now.
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
