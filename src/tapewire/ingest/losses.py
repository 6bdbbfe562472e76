"""Marks in the streams of books where something of the source is missing or was rejected.

What is missing may have changed a book. A loss event is written where it would have been, so that
every reader of the log sees an untrusted book from there on. Where the place is not known exactly,
the mark is at its earliest possible place, and again after each event up to the last possible one
from which the book could be trusted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tapewire.ingest.event_fields import BOOK_MODE, EVENT_TYPE, UPDATE_LAST
from tapewire.ingest.importer import Chunk
from tapewire.protocol.market import (
    BOOK_EVENT,
    BookEvent,
    EventType,
    l2_diff,
    loss,
)

if TYPE_CHECKING:
    from tapewire.protocol.instruments import Instrument

__all__ = ["Losses", "Lost", "begins_book"]

_Array = np.ndarray[Any, Any]

# Above these counts, losses are joined: a book stays untrusted between them.
MAX_EXACT = 1 << 16  # of a file
MAX_PENDING = 1 << 10  # of a stream, when the records around them are not written yet


class Lost(NamedTuple):
    """Something missing before a line of a file, or lines that were rejected.

    Attributes:
        line: The line.
        symbol: The directory name of the only symbol whose book it can have changed; None: any.
        cause: The name of a `LossCause`.
        first: The first missing sequence number of the feed; 0 if unknown.
        last: The last one.
        through: The last line, if it is not `line`.
    """

    line: int
    symbol: str | None
    cause: str = "rejected"
    first: int = 0
    last: int = 0
    through: int = 0

    @property
    def end(self) -> int:
        """The last line."""
        return max(self.line, self.through)

    def joined(self, other: Lost) -> Lost:
        """This loss and another one of the same file, and all lines between them."""
        symbol = self.symbol if self.symbol == other.symbol else None
        line = min(self.line, other.line)
        return Lost(line, symbol, self.cause, through=max(self.end, other.end))


class _Span(NamedTuple):
    """The loss is before record `start` of a chunk, or a later one up to `stop`."""

    start: int
    stop: int
    lost: Lost


@dataclass
class _Followed:
    """One stream of a book: how far it is written.

    Attributes:
        sources: The files that its records are from.
        merged: Whether they are read at the same time, not one after the other.
        taken: Of each file, how many of its losses are in `pending`, or were.
        pending: Losses, each with its file, up to the first record after them.
        latest_ns: The time of the last record.
        doubted: Whether a loss was written, and nothing since that ends it.
    """

    symbol: str
    book_mode: int
    sources: set[int] = field(default_factory=set)
    merged: bool = False
    taken: dict[int, int] = field(default_factory=dict)
    pending: list[tuple[int, Lost]] = field(default_factory=list)
    latest_ns: int | None = None
    doubted: bool = False


class Losses:
    """What an import lost, until the books are marked that it may have changed."""

    def __init__(self) -> None:
        self._lost: dict[int, list[Lost]] = {}  # by the index of the file
        self._shared: dict[int, int] = {}  # how many of them a stream may have taken
        self._streams: dict[tuple[str, str, str], _Followed] = {}
        self._sources: set[int] = set()  # files with records of a book

    def add(self, source: int, lost: Lost) -> None:
        """Add a loss in a file, before the records around it are written."""
        entries = self._lost.setdefault(source, [])
        if len(entries) > self._shared.get(source, 0):
            before = entries[-1]
            next_line = before[1:5] == lost[1:5] and lost.line == before.end + 1
            if (next_line and lost.cause == "rejected") or len(entries) >= MAX_EXACT:
                entries[-1] = before.joined(lost)
                return
        entries.append(lost)

    def forget(self, stream: tuple[str, str, str]) -> None:
        """A loss was not written: the log has the records around it from before."""
        followed = self._streams.get(stream)
        if followed is not None:
            followed.doubted = False

    def marked(self, chunk: Chunk, instrument: Instrument | None) -> Iterator[Chunk]:
        """The chunk, with a loss wherever something is missing before one of its records."""
        if instrument is None or chunk.type_id != BOOK_EVENT or not chunk.stream.startswith("book"):
            yield chunk
            return
        key = (chunk.venue, chunk.symbol, chunk.stream)
        followed = self._streams.get(key)
        if followed is None:
            followed = _Followed(chunk.symbol, _book_mode(chunk.payloads[0]))
            self._streams[key] = followed
        places = self._places(chunk, followed)
        start = 0
        for place in sorted(places):
            if place > start:
                yield chunk.part(start, place)
                followed.latest_ns = int(chunk.timestamps_ns[place - 1])
                followed.doubted = _doubted_after(chunk, start, place, followed.doubted)
                start = place
            if not followed.doubted:
                if followed.latest_ns is None:
                    followed.latest_ns = int(chunk.timestamps_ns[place])
                yield _loss_chunk(chunk, instrument, followed, places[place])
        if start < len(chunk):
            followed.doubted = _doubted_after(chunk, start, len(chunk), followed.doubted)
            followed.latest_ns = int(chunk.timestamps_ns[-1])
            yield chunk.part(start, len(chunk)) if start else chunk

    def ends(
        self, cause: str, instrument_of: Callable[[str, str], Instrument | None]
    ) -> Iterator[Chunk]:
        """The losses after the last records of streams.

        With another cause than "rejected", every stream of a book ends with one.
        """
        for (venue, symbol, stream), followed in self._streams.items():
            self._take(followed)
            lost = [
                entry
                for source, entry in followed.pending
                if self._concerns(followed, source, entry)
            ]
            if cause != "rejected":
                lost.append(Lost(0, None, cause))
            if lost and not followed.doubted:
                instrument = instrument_of(venue, symbol)
                assert instrument is not None, "its stream has records"
                empty = Chunk(venue, symbol, stream, BOOK_EVENT, [], [])
                yield _loss_chunk(empty, instrument, followed, lost[-1])

    def _take(self, followed: _Followed) -> None:
        """Add new losses that the stream may have to the pending ones."""
        for source, lost in self._lost.items():
            start = followed.taken.get(source, 0)
            if start == len(lost):
                continue
            followed.taken[source] = self._shared[source] = len(lost)
            of_it = (None, followed.symbol)
            followed.pending += [(source, entry) for entry in lost[start:] if entry.symbol in of_it]
        if len(followed.pending) > MAX_PENDING:
            joined: dict[int, Lost] = {}
            for source, entry in followed.pending:
                known = joined.get(source)
                joined[source] = entry if known is None else known.joined(entry)
            followed.pending = list(joined.items())

    def _concerns(self, followed: _Followed, source: int, lost: Lost) -> bool:
        """Whether a loss may have changed the book, by its file alone.

        A row of an unknown symbol belongs to any book of its file; if the file has no other rows of
        books, to any book at all.
        """
        if lost.symbol == followed.symbol or followed.merged or source in followed.sources:
            return True
        return source not in self._sources

    def _places(self, chunk: Chunk, followed: _Followed) -> dict[int, Lost]:
        """What is missing before which records of the chunk."""
        sources = np.asarray(chunk.sources)
        present: set[int] = set(np.unique(sources).tolist())
        followed.sources |= present
        followed.merged = followed.merged or not isinstance(chunk.sources, int)
        self._sources |= present
        self._take(followed)
        if not followed.pending:
            return {}
        sources = np.broadcast_to(sources, len(chunk))
        rows = {source: _Rows(chunk, np.flatnonzero(sources == source)) for source in present}
        spans: list[_Span] = []
        still = []
        for source, lost in followed.pending:
            # Whether it is after a record of a later chunk.
            known_later = chunk.next_lines.get(source, lost.line) < lost.line
            later = known_later or (not followed.merged and chunk.last_lines is None)
            span, passed = None, False
            if source in rows:
                span, passed = rows[source].find(lost, later)
            elif followed.merged and not later:
                span = _Span(0, len(chunk), lost)
            elif not followed.merged and min(present) > source:
                passed = True
                if self._concerns(followed, source, lost):
                    span = _Span(0, 0, lost)
            if span is not None:
                spans.append(span)
            if not passed:
                still.append((source, lost))
        followed.pending = still
        places: dict[int, Lost] = {}
        for start, stop, lost in spans:
            places.setdefault(start, lost)
            for ending in _endings(chunk, start, stop).tolist() if stop > start else ():
                places.setdefault(start + ending + 1, lost)
        return places


class _Rows:
    """The records of a chunk that are from one file; `at` is where they are in the chunk."""

    def __init__(self, chunk: Chunk, at: _Array) -> None:
        self._chunk = chunk
        self._at = at
        assert chunk.lines is not None, "a book's records have lines"
        self._own_lines = np.asarray(chunk.lines)[at]
        self._lines = np.maximum.accumulate(self._own_lines)
        self._last_lines = None if chunk.last_lines is None else chunk.last_lines[at]

    def find(self, lost: Lost, later: bool) -> tuple[_Span | None, bool]:
        """Where something is missing, and whether a record of the chunk comes after it.

        Args:
            lost: The loss.
            later: If its line is after those of all records, it is in a later chunk. Otherwise it
                may be before records of this one that are from other files.
        """
        before = int(np.searchsorted(self._lines, lost.line))
        after = int(np.searchsorted(self._lines, lost.end))
        if self._last_lines is not None and not (before == len(self._at) and later):
            return self._within_events(lost, before, after)
        own = np.flatnonzero(self._own_lines == lost.end)
        if len(own):  # directly before this record
            place = int(self._at[own[0]])
            return _Span(place, place, lost), True
        if not np.array_equal(self._own_lines, self._lines):
            # Not in the order of the lines: it may be anywhere.
            return _Span(0, len(self._chunk), lost), False
        if before == len(self._at) and later:
            return None, False
        start = int(self._at[before - 1]) + 1 if before else 0
        passed = after < len(self._at)
        stop = int(self._at[after]) if passed else len(self._chunk)
        return _Span(start, stop, lost), passed

    def _within_events(self, lost: Lost, before: int, after: int) -> tuple[_Span, bool]:
        """The same for events of several rows, none of which is complete without a rejected row.

        A row between the last row of an event and the first one of the next may belong to either.
        A snapshot that lacks a row must not end the doubt.
        """
        assert self._last_lines is not None
        count = len(self._at)
        follows = after == 0 or lost.end > self._last_lines[after - 1]
        for i in range(max(before - 1, 0), min(after + follows, count)):
            _downgrade(self._chunk, int(self._at[i]))
        start = int(self._at[before - 1]) if before else 0
        return _Span(start, start, lost), after < count


def _downgrade(chunk: Chunk, index: int) -> None:
    """Make an incomplete snapshot a diff of the same levels."""
    payload = bytes(chunk.payloads[index])
    if payload[EVENT_TYPE] != EventType.SNAPSHOT:
        return
    event = BookEvent.decode(payload)
    diff = l2_diff(
        event,
        event.ingest_ts_ns,
        bids=event.bids,
        asks=event.asks,
        exchange_ns=event.exchange_ts_ns,
        native_seq=event.native_seq,
        stream_id=event.stream_id,
    )
    assert isinstance(chunk.payloads, list), "grouped events are bytes"
    chunk.payloads[index] = diff


def _loss_chunk(chunk: Chunk, instrument: Instrument, followed: _Followed, lost: Lost) -> Chunk:
    assert followed.latest_ns is not None, "a stream has records before its losses"
    followed.doubted = True
    time_ns = followed.latest_ns
    payload = loss(
        instrument,
        time_ns,
        lost.cause,
        first=lost.first,
        last=lost.last,
        book_mode=followed.book_mode,
    )
    return dataclasses.replace(
        chunk, timestamps_ns=[time_ns], payloads=[payload], lines=None, sources=0, last_lines=None
    )


def _book_mode(payload: Any) -> int:
    return bytes(memoryview(payload).cast("B")[: BOOK_MODE + 1])[BOOK_MODE]


def _types(chunk: Chunk, start: int, stop: int) -> _Array:
    """The event types of some records."""
    rows = chunk.payloads[start:stop]
    if isinstance(rows, np.ndarray):
        flat = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
        return flat[:, EVENT_TYPE]
    return np.array([row[EVENT_TYPE] for row in rows], np.uint8)


def _endings(chunk: Chunk, start: int, stop: int) -> _Array:
    """The records, counted from `start`, after which a book can be trusted again."""
    types = _types(chunk, start, stop)
    ending = np.isin(types, (EventType.SNAPSHOT, EventType.RESET))
    if not isinstance(chunk.payloads, np.ndarray):
        # A diff with update ids shows whether one before it is missing.
        for i in np.flatnonzero(types == EventType.DIFF).tolist():
            row = chunk.payloads[start + i]
            ending[i] = row[BOOK_MODE] == 0 and any(row[UPDATE_LAST : UPDATE_LAST + 8])
    return np.flatnonzero(ending)


def _doubted_after(chunk: Chunk, start: int, stop: int, doubted: bool) -> bool:
    """Whether a book is in doubt after these records, if it is before them."""
    losses = np.flatnonzero(_types(chunk, start, stop) == EventType.LOSS)
    if not doubted and not len(losses):
        return False
    endings = _endings(chunk, start, stop)
    return not len(endings) or (len(losses) > 0 and bool(endings[-1] < losses[-1]))


def begins_book(chunk: Chunk) -> bool:
    """Whether the first record is a reset or a snapshot, so that nothing before it matters."""
    return bool(np.isin(_types(chunk, 0, 1), (EventType.SNAPSHOT, EventType.RESET)).all())
