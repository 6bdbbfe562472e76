"""LOBSTER's book of levels: the rows of the order book file, at the times of their messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire.ingest.formats.lobster_levels import LevelEvents
from tapewire.ingest.importer import Chunk
from tapewire.ingest.losses import Lost
from tapewire.protocol.market import BOOK_EVENT

if TYPE_CHECKING:
    from tapewire.ingest.formats.lobster_rows import OrderbookRows, PairedRows
    from tapewire.ingest.report import Report
    from tapewire.ingest.tables import TableBlock
    from tapewire.protocol.instruments import Instrument

__all__ = ["MARGIN", "LevelBook"]

_Array = np.ndarray[Any, Any]
_NEVER = np.iinfo(np.int64).max
# A row that is missing in one of the files may be noticed late, because the next steps fit by
# chance, and so may some steps in between. No row this close to a contradiction is shown.
MARGIN = 64


class LevelBook:
    """The book of one session, as events of levels.

    After the events of a row, the levels are those of the row. Where rows are rejected or
    contradict their messages a loss is reported, and the next row that is shown is a snapshot.
    """

    def __init__(
        self,
        rows: OrderbookRows,
        events: LevelEvents,
        instrument: Instrument,
        report: Report,
    ) -> None:
        self._rows = rows
        self._events = events
        self._instrument = instrument
        self._report = report
        self._undecided = rows.none
        self._latest_line = 0
        self._contradicted = np.zeros(0, np.int64)  # lines
        self._shown = rows.none  # the last row that is
        self._shown_line = 0

    def follow(self, messages: TableBlock, times_ns: _Array, last_line: int) -> Iterator[Chunk]:
        """The events of the next messages, which are in their file up to `last_line`."""
        for rows in self._rows.follow(messages, times_ns, last_line):
            self._take(rows)
            yield from self._decide(self._latest_line - MARGIN)

    def finish(self) -> Iterator[Chunk]:
        """The remaining events; if a file is damaged, there are none."""
        for rows in self._rows.rest():
            self._take(rows)
        if self._rows.unmatched:
            self._latest_line += 1
            self._contradicted = np.append(self._contradicted, self._latest_line)
        yield from self._decide(_NEVER)
        if self._shown_line < self._latest_line:
            self._lost_after(self._shown_line)

    def _take(self, rows: PairedRows) -> None:
        self._undecided = self._undecided.followed_by(rows)
        self._contradicted = np.concatenate([self._contradicted, rows.line[~rows.agrees]])
        if len(rows.line):
            self._latest_line = int(rows.line[-1])

    def _decide(self, up_to: int) -> Iterator[Chunk]:
        """Show those of the rows up to a line that nothing near them contradicts."""
        decided = self._undecided.line <= up_to
        rows = self._undecided.where(decided)
        if not len(rows.line):
            return
        self._undecided = self._undecided.where(~decided)
        lines = np.append(self._contradicted, _NEVER)
        nearest = lines[np.searchsorted(lines, rows.line - MARGIN)]
        shown = rows.where((rows.time_ns >= 0) & (nearest - rows.line > MARGIN))
        self._contradicted = lines[lines > rows.line[-1] - MARGIN][:-1]
        if len(shown.line):
            yield from self._show(shown)

    def _show(self, rows: PairedRows) -> Iterator[Chunk]:
        first = not len(self._shown.line)
        before = np.concatenate([(rows if first else self._shown).levels[:1], rows.levels[:-1]])
        before_line = np.concatenate([[self._shown_line], rows.line[:-1]])
        whole = rows.line != before_line + 1
        for line in before_line[whole].tolist():
            self._lost_after(line)
        whole[0] |= first
        self._shown = rows.where(slice(-1, None))
        self._shown_line = int(rows.line[-1])
        times_ns, payloads, lines = self._events.add(
            before, rows.levels, whole, rows.time_ns, rows.line
        )
        if payloads:
            yield Chunk(
                self._instrument.venue,
                self._instrument.symbol,
                "book",
                BOOK_EVENT,
                times_ns,
                payloads,
                lines,
                self._rows.source.index,
            )

    def _lost_after(self, line: int) -> None:
        self._report.lost(self._rows.source, Lost(line + 1, None))
