"""Imports mutants of a capture and compares what their books show with the original.

The original is replayed without any code of the package: each feed is followed row by row, with
plain dicts. The same follower reads the mutant's rows and finds where they contradict each other or
the rules of the feed: from there on until the book is known again, the rows reveal the mutation. A
trusted state that differs from the original is wrong if the mutation was revealed, and hidden if
not: up to there, the mutant's rows are those of a possible capture.
"""

import bisect
import collections
import random
import shutil
from dataclasses import dataclass, field

from tapewire import ingest, replay
from tapewire.book.gaps import GapLedger
from tapewire.errors import CorruptSource, InvalidOption
from tests.mutation.mutants import mutate


@dataclass(frozen=True)
class Point:
    """The state of a book after a row, or after rows that are one event.

    Attributes:
        symbol: Whose book.
        key: What identifies the event in the log: a time or a sequence number.
        rows: The rows, as indexes in the original capture.
        state: Both sides, best price first.
        broken: Why the rows so far cannot be of a good capture; empty if they can.
        identity: The venue's own identity of the state, if it has one.
    """

    symbol: str
    key: object
    rows: tuple
    state: object
    broken: str = ""
    identity: object = None


@dataclass
class Followed:
    """What a follower found in the rows of a capture.

    Attributes:
        points: In the order in which the events are in the log.
        faults: What is invalid or missing, anywhere.
    """

    points: list = field(default_factory=list)
    faults: list = field(default_factory=list)


class Feed:
    """A format: how to make, alter, follow and import a capture."""

    format = ""
    venue = "*"
    stream = "book"
    options: dict = {}  # noqa: RUF012 - never changed

    def capture(self, rng):
        """The rows of a good capture."""
        raise NotImplementedError

    def write(self, directory, rows):
        """Write the files of these rows; returns their paths."""
        path = directory / "capture"
        path.write_bytes(b"".join(row.data + b"\n" for row in rows))
        return [path]

    def alter(self, rng, data):
        """An altered row, and what was altered in it."""
        raise NotImplementedError

    def follow(self, rows):
        """Follow the rows; returns `Followed`."""
        raise NotImplementedError

    def key(self, event):
        """The key of an event in the log; None if it is none of the capture's."""
        raise NotImplementedError


@dataclass
class Found:
    """What the sweep of one feed found.

    Attributes:
        equal: Trusted states equal to the original.
        untrusted: States that the book does not call trusted.
        hidden: Kind of mutation → trusted states that differ and that nothing reveals.
        wrong: Trusted states that differ although the rows reveal it, and other faults.
        refused: Mutants that were not imported to their end.
    """

    equal: int = 0
    untrusted: int = 0
    refused: int = 0
    hidden: collections.Counter = field(default_factory=collections.Counter)
    wrong: list = field(default_factory=list)

    def __str__(self):
        hidden = ", ".join(f"{kind} {n}" for kind, n in sorted(self.hidden.items()))
        return (
            f"equal={self.equal} untrusted={self.untrusted} refused={self.refused} "
            f"wrong={len(self.wrong)} hidden={sum(self.hidden.values())} ({hidden})"
        )


class Sweep:
    """Mutants of one capture of a feed."""

    def __init__(self, feed, directory, seed):
        self.feed = feed
        self.seed = seed
        self.found = Found()
        self._directory = directory
        self.rows = feed.capture(random.Random(f"{feed.format} {seed}"))
        followed = feed.follow(self.rows)
        assert not followed.faults, followed.faults[:3]
        self._expected = _Expected(followed.points)

    def run(self, mutants):
        """Import the original and `mutants` mutants of it."""
        self.judge(self.rows, "original", 0)
        assert not self.found.wrong, self.found.wrong[:3]
        for number in range(mutants):
            mutant = self.mutant(number)
            self.judge(mutant.rows, mutant.kind, number)
        return self.found

    def mutant(self, number):
        """The mutant with this number, always the same one."""
        rng = random.Random(f"{self.feed.format} {self.seed} {number}")
        return mutate(self.rows, rng, self.feed.alter)

    def judge(self, rows, kind, number):
        """Import these rows and compare each state of each book."""
        archive = self._directory / "archive"
        followed = self.feed.follow(rows)
        files = self.feed.write(self._directory, rows)
        try:
            clean = ingest.run(self.feed.format, files, archive, **self.feed.options).clean
        except (CorruptSource, InvalidOption):
            clean = False
            self.found.refused += 1
        if followed.faults and clean:
            self._wrong(kind, number, f"imported as clean, but {followed.faults[0]}")
        due = _Due(followed.points)
        for directory in sorted(archive.glob(f"v1/{self.feed.venue}/*")):
            logs = sorted(directory.glob(f"*/{self.feed.stream}/control.meta"))
            if logs:
                self._replay(directory.name, [log.parent for log in logs], due, kind, number)
        shutil.rmtree(archive, ignore_errors=True)

    def _replay(self, symbol, logs, due, kind, number):
        lost = False
        before = None
        with replay.Replay(logs, on_gap="resync") as steps:
            for step in steps:
                event = step.record.decode()
                if step.book is None or not step.book.trusted:
                    lost = lost or before is not None
                    self.found.untrusted += 1
                    due.skip(symbol, self.feed.key(event))
                    continue
                state = state_of(step.book)
                point = due.take(symbol, self.feed.key(event))
                if self._equal(symbol, point, state, before):
                    self.found.equal += 1
                elif point is not None and not point.broken:
                    self.found.hidden[kind] += 1
                else:
                    why = point.broken if point else "no row of it"
                    self._wrong(kind, number, f"{symbol} at {self.feed.key(event)}: {why}")
                before = state
        # A row of another day is in that day's log: update ids show a reader that it is missing.
        moved = kind == "alter local time" and self.feed.format.startswith("binance")
        if lost and not moved and not any(GapLedger(log).read() for log in logs):
            self._wrong(kind, number, f"{symbol}: no gap in the ledger")

    def _equal(self, symbol, point, state, before):
        if point is None:  # written by the import: a reset, or the book at the start of a log
            return state == before or self._expected.has(symbol, state)
        return state in self._expected.states(point)

    def _wrong(self, kind, number, why):
        self.found.wrong.append(f"seed={self.seed} mutant={number} {kind}: {why}")


class _Expected:
    """The states of the original."""

    def __init__(self, points):
        self._rows = collections.defaultdict(list)
        self._states = collections.defaultdict(list)
        self._parts = collections.defaultdict(list)
        self._by_identity = {}
        for point in points:
            for row in point.rows:
                self._parts[point.symbol, row].append(point.state)
            self._rows[point.symbol].append(point.rows[-1])
            self._states[point.symbol].append(point.state)
            if point.identity is not None:
                self._by_identity[point.symbol, point.identity] = point.state

    def has(self, symbol, state):
        """Whether a book has the state anywhere in the original."""
        return state == ((), ()) or state in self._states[symbol]

    def states(self, point):
        """The states that the original has at a point of a mutant."""
        made = [self._by_identity.get((point.symbol, point.identity))]
        row = point.rows[-1]
        parts = self._parts.get((point.symbol, row))
        if parts:
            return [*made, *parts]
        at = bisect.bisect_right(self._rows[point.symbol], row)
        return [*made, self._states[point.symbol][at - 1] if at else ((), ())]


class _Due:
    """The points of a mutant, by what identifies them in the log, in order."""

    def __init__(self, points):
        self._points = collections.defaultdict(collections.deque)
        for point in points:
            self._points[point.symbol, point.key].append(point)

    def skip(self, symbol, key):
        """Skip the point of an untrusted state; an incomplete snapshot is written as a diff."""
        if self.take(symbol, key) is None and isinstance(key, tuple):
            self.take(symbol, (*key[:-1], True))

    def take(self, symbol, key):
        """The next point with a key; the last one remains."""
        queue = self._points.get((symbol, key))
        if not queue:
            return None
        return queue.popleft() if len(queue) > 1 else queue[0]


def state_of(book):
    """Both sides of a book: price and size of each level, or price and orders."""
    if hasattr(book, "orders"):
        return tuple(
            tuple(
                (price, tuple(map(tuple, book.orders(side, price).tolist())))
                for price in levels["price"].tolist()
            )
            for side, levels in (("buy", book.bids()), ("sell", book.asks()))
        )
    return tuple(tuple(map(tuple, levels.tolist())) for levels in (book.bids(), book.asks()))
