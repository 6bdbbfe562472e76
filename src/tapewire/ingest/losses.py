"""Marks in the streams of books where something of the source is missing or was rejected.

What is missing may have changed a book. A loss event is written where it would have been, so that
every reader of the log sees an untrusted book from there on.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tapewire.ingest.importer import Chunk
from tapewire.protocol.market import (
    BOOK_EVENT,
    HEADER_DTYPE,
    BookEvent,
    EventType,
    l2_diff,
    loss,
)

if TYPE_CHECKING:
    from tapewire.protocol.instruments import Instrument

__all__ = ["Losses", "Lost", "begins_book"]

_Array = np.ndarray[Any, Any]
_EVENT_TYPE = int(HEADER_DTYPE.fields["event_type"][1])  # type: ignore[index]
_BOOK_MODE = int(HEADER_DTYPE.fields["book_mode"][1])  # type: ignore[index]
_UPDATE_LAST = HEADER_DTYPE.itemsize + 8  # of a diff of levels


class Lost(NamedTuple):
    """Something missing before a line of a file, or that line itself.

    Attributes:
        line: The line.
        symbol: The directory name of the only symbol whose book it can have changed; None: any.
        cause: The name of a `LossCause`.
        first: The first missing sequence number of the feed; 0 if unknown.
        last: The last one.
    """

    line: int
    symbol: str | None
    cause: str = "rejected"
    first: int = 0
    last: int = 0


@dataclass
class _Followed:
    """One stream of a book: how far it is written.

    Attributes:
        checked: Of each file of the stream, how many of its losses are marked.
        latest_ns: The time of the last record.
        doubted: Whether a loss was written, and nothing since that ends it.
    """

    book_mode: int
    checked: dict[int, int] = field(default_factory=dict)
    latest_ns: int | None = None
    doubted: bool = False


class Losses:
    """What an import lost, until the books are marked that it may have changed."""

    def __init__(self) -> None:
        self._lost: dict[int, list[Lost]] = {}  # by the index of the file
        self._streams: dict[tuple[str, str, str], _Followed] = {}

    def add(self, source: int, lost: Lost) -> None:
        """Add a loss in a file, before the records around it are written."""
        entries = self._lost.setdefault(source, [])
        if not entries or entries[-1].line <= lost.line:
            entries.append(lost)
            return
        # Streams wait for the lines in their order: those they have passed stay first.
        passed = max((each.checked.get(source, 0) for each in self._streams.values()), default=0)
        bisect.insort(entries, lost, passed, key=lambda entry: entry.line)

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
        followed = self._streams.setdefault(key, _Followed(_book_mode(chunk.payloads[0])))
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
            lost = [
                entry
                for source, checked in followed.checked.items()
                for entry in self._lost.get(source, [])[checked:]
                if entry.symbol in (None, symbol)
            ]
            if cause != "rejected":
                lost.append(Lost(0, None, cause))
            if lost and not followed.doubted:
                instrument = instrument_of(venue, symbol)
                assert instrument is not None, "its stream has records"
                empty = Chunk(venue, symbol, stream, BOOK_EVENT, [], [])
                yield _loss_chunk(empty, instrument, followed, lost[-1])

    def _places(self, chunk: Chunk, followed: _Followed) -> dict[int, Lost]:
        """What is missing before which records of the chunk."""
        places: dict[int, Lost] = {}
        if not self._lost and isinstance(chunk.sources, int):
            followed.checked.setdefault(chunk.sources, 0)
            return places
        sources = np.broadcast_to(np.asarray(chunk.sources), len(chunk))
        for source in np.unique(sources).tolist():
            followed.checked.setdefault(source, 0)
        for source, lost in self._lost.items():
            checked = followed.checked.get(source)
            if checked is None:  # no record of the stream is from that file
                mine = [entry for entry in lost if entry.symbol == chunk.symbol]
                if mine:
                    followed.checked[source] = len(lost)
                    places.setdefault(0, mine[0])
                continue
            at = np.flatnonzero(sources == source)
            lines = None if chunk.lines is None else np.asarray(chunk.lines)[at]
            # Of one file, the order of lines is that of records: later losses wait for theirs. Of
            # several merged files, the place of a later line is unknown: it counts from here on.
            of_one_file = len(followed.checked) == 1 or (
                isinstance(chunk.sources, int) and chunk.sources == source
            )
            wait = of_one_file and lines is not None
            last = int(lines.max()) if lines is not None and len(lines) else -1
            taken = []
            while checked < len(lost) and not (wait and lost[checked].line > last):
                if lost[checked].symbol in (None, chunk.symbol):
                    taken.append(lost[checked])
                checked += 1
            followed.checked[source] = checked
            if taken:
                _add_places(places, chunk, at, lines, taken)
            if wait and chunk.grouped:
                # The next one may be a row of the last event, whose first row is before it.
                mine = [entry for entry in lost[checked:] if entry.symbol in (None, chunk.symbol)]
                if mine:
                    places.setdefault(int(at[-1]), mine[0])
                    _downgrade(chunk, int(at[-1]))
        return places


def _add_places(
    places: dict[int, Lost], chunk: Chunk, at: _Array, lines: _Array | None, taken: list[Lost]
) -> None:
    """Find what is missing before which records; `at`: those of one file, `lines`: their lines."""
    if lines is None or len(lines) == 0:
        places.setdefault(0, taken[0])
        return
    numbers = [entry.line for entry in taken]
    counts = np.searchsorted(np.maximum.accumulate(lines), numbers).tolist()
    if not chunk.grouped:
        for count, entry in zip(counts, taken, strict=True):
            places.setdefault(int(at[count - 1]) + 1 if count else 0, entry)
        return
    # A rejected row may belong to the event before it or, if it is next to its first row, to the
    # one after it. Neither is complete: a snapshot among them must not end the doubt.
    rejected = set(numbers)
    for count, entry in zip(counts, taken, strict=True):
        places.setdefault(int(at[max(count - 1, 0)]), entry)
        if count:
            _downgrade(chunk, int(at[count - 1]))
        if count < len(lines) and rejected.issuperset(range(entry.line, int(lines[count]))):
            _downgrade(chunk, int(at[count]))


def _downgrade(chunk: Chunk, index: int) -> None:
    """Make an incomplete snapshot a diff of the same levels."""
    payload = bytes(chunk.payloads[index])
    if payload[_EVENT_TYPE] != EventType.SNAPSHOT:
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
        chunk, timestamps_ns=[time_ns], payloads=[payload], lines=None, sources=0, grouped=False
    )


def _book_mode(payload: Any) -> int:
    return bytes(memoryview(payload).cast("B")[: _BOOK_MODE + 1])[_BOOK_MODE]


def _types(chunk: Chunk, start: int, stop: int) -> _Array:
    """The event types of some records."""
    rows = chunk.payloads[start:stop]
    if isinstance(rows, np.ndarray):
        flat = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
        return flat[:, _EVENT_TYPE]
    return np.array([row[_EVENT_TYPE] for row in rows], np.uint8)


def _doubted_after(chunk: Chunk, start: int, stop: int, doubted: bool) -> bool:
    """Whether a book is in doubt after these records, if it is before them."""
    types = _types(chunk, start, stop)
    decisive = types[np.isin(types, (EventType.SNAPSHOT, EventType.RESET, EventType.LOSS))]
    if len(decisive):
        return bool(decisive[-1] == EventType.LOSS)
    if not doubted or isinstance(chunk.payloads, np.ndarray):
        return doubted
    # A diff with update ids shows whether one before it is missing.
    return not any(
        row[_BOOK_MODE] == 0
        and row[_EVENT_TYPE] == EventType.DIFF
        and any(row[_UPDATE_LAST : _UPDATE_LAST + 8])
        for row in chunk.payloads[start:stop]
    )


def begins_book(chunk: Chunk) -> bool:
    """Whether the first record is a reset or a snapshot, so that nothing before it matters."""
    return bool(np.isin(_types(chunk, 0, 1), (EventType.SNAPSHOT, EventType.RESET)).all())
