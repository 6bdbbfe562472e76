"""The logs of a replay: opened, positioned, and merged into one reader."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tapewire._native import CursorReader
from tapewire.bus import FanInReader
from tapewire.errors import InvalidOption
from tapewire.log import Reader, open_log
from tapewire.replay.start import (
    WarmBook,
    first_seq_after,
    missing_at_start,
    move_past,
    next_record,
    warm_book,
)

if TYPE_CHECKING:
    from tapewire.protocol.instruments import Instrument
    from tapewire.replay.snapshots import SkippedFile

    Log: TypeAlias = "str | os.PathLike[str] | Reader"
    Logs: TypeAlias = "Log | Iterable[Log] | Mapping[str, Log]"
    # For each instrument: the index of its source, and the book.
    WarmBooks: TypeAlias = "dict[Instrument, tuple[int, WarmBook]]"

__all__ = ["Source", "Sources"]

BOOK_EVENT = 0x1000


class Source(NamedTuple):
    """One log of a replay."""

    name: str
    reader: Any
    own: bool  # opened here: may be moved, and is closed with the replay


class Sources:
    """One log or many, as passed to `Replay`.

    Attributes:
        each: The logs, in order.
        reader: One reader over all of them, after `join`.
    """

    def __init__(self, logs: Logs) -> None:
        self._close = contextlib.ExitStack()
        self.each: list[Source] = []
        self.reader: Any = None
        with contextlib.ExitStack() as opened:
            for name, log in _named(logs):
                own = isinstance(log, str | os.PathLike)
                reader: Any = log
                if isinstance(log, str | os.PathLike):
                    reader = opened.enter_context(open_log(log))
                self.each.append(Source(name, reader, own))
            self._close = opened.pop_all()
        if not self.each:
            raise InvalidOption("no log given: logs is empty")

    @property
    def directories(self) -> list[str]:
        """The directories of those logs that have one."""
        paths = [getattr(source.reader, "path", None) for source in self.each]
        return [path for path in paths if isinstance(path, str) and os.path.isdir(path)]

    def warm_books(
        self,
        wanted: list[Instrument],
        from_ns: int | None,
        from_seq: int | None,
        findings: list[SkippedFile],
    ) -> WarmBooks:
        """Return the latest earlier snapshot of each instrument; empty unless all have one."""
        found: WarmBooks = {}
        for index, source in enumerate(self.each):
            if not source.own or source.reader.kind != "queue":
                continue
            below = from_seq
            if from_ns is not None:
                at = first_seq_after(source.reader, from_ns - 1)
                below = min((seq for seq in (at, from_seq) if seq is not None), default=None)
            for instrument in wanted:
                book = warm_book(
                    source.reader,
                    instrument.venue_id,
                    instrument.market_id,
                    below,
                    findings,
                    instrument=instrument,
                )
                before = found.get(instrument)
                if book and (before is None or before[1].timestamp_ns < book.timestamp_ns):
                    found[instrument] = (index, book)
        if any(self._lacks_orders(index, book) for index, book in found.values()):
            return {}
        return found if len(found) == len(wanted) else {}

    def _lacks_orders(self, index: int, book: WarmBook) -> bool:
        """Whether another log may hold orders of this book: a snapshot covers only its own log.

        Price levels start again with each snapshot in a log, and every log has its own; orders
        continue from one log to the next.
        """
        if book.snapshot.header["book_mode"] != "l3":
            return False
        return any(
            _first_book_event_ns(source) <= book.timestamp_ns
            for other, source in enumerate(self.each)
            if other != index
        )

    def move_to_start(self, books: WarmBooks) -> dict[int, tuple[int, int]]:
        """Move each log that was opened here past the snapshots, or to its start.

        Returns:
            By index, the ``(first, last)`` records missing at the front of logs read from there.
        """
        lost = {}
        since_ns = min((book.timestamp_ns for _, book in books.values()), default=0)
        for index, source in enumerate(self.each):
            if not source.own:
                continue
            warm = [book.seq for where, book in books.values() if where == index]
            if warm and all(where == index for where, _ in books.values()):
                move_past(source.reader, min(warm))
            elif books:
                source.reader.seek_time(since_ns)
            elif source.reader.kind == "queue" and (gone := missing_at_start(source.reader)):
                lost[index] = gone
            else:
                source.reader.seek_start()
        return lost

    def join(self, ends: Mapping[str, int] | None = None) -> Any:
        """Return one reader over all logs: a `FanInReader`, in the order of `each`, if many.

        Args:
            ends: For many logs: name to the sequence number where the log ends.
        """
        if len(self.each) == 1:
            self.reader = self.each[0].reader
        else:
            self.reader = self._close.enter_context(FanInReader())
            for source in self.each:
                end = None if ends is None else ends.get(source.name)
                self.reader.add(source.name, source.reader, seq_to=end)
        return self.reader

    def close(self) -> None:
        """Close the logs that were opened here. A second call has no effect."""
        self._close.close()

    def __repr__(self) -> str:
        names = ", ".join(source.name for source in self.each)
        return names if len(names) <= 60 else f"{len(self.each)} logs"


def _first_book_event_ns(source: Source) -> float:
    """Return the time of the log's first book event; infinity if it has none."""
    if not source.own:
        return -math.inf  # the reader is the caller's and must not be moved
    with open_log(source.reader.path, types=[BOOK_EVENT]) as reader:
        record = next_record(reader)
    return math.inf if record is None else record.timestamp_ns


def _normalized(path: str) -> str:
    """Return one name for a log however its path is written: names order equal times."""
    return os.path.abspath(path) if os.path.isdir(path) else path


def _named(logs: Logs) -> list[tuple[str, Log]]:
    if isinstance(logs, str | os.PathLike | CursorReader):
        logs = [logs]
    if isinstance(logs, Mapping):
        return list(logs.items())
    named: list[tuple[str, Any]] = []
    for index, log in enumerate(logs):
        path = log if isinstance(log, str | os.PathLike) else getattr(log, "path", f"log {index}")
        named.append((_normalized(os.fspath(path)), log))
    names = [name for name, _ in named]
    if len(set(names)) != len(names):
        raise InvalidOption(f"duplicate log: logs={names}")
    return named
