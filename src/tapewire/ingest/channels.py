"""The numbers of a channel on a day: each once, and none missing in a file of all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tapewire.ingest.order_events import SEQ_BITS, OrderChunks, Symbols, channel_of, number_of

if TYPE_CHECKING:
    from tapewire.ingest.report import Report

__all__ = ["ChannelCheck"]

_Array = np.ndarray[Any, Any]


class ChannelCheck:
    """Passes on events but for those whose number came before; tells of numbers not there."""

    def __init__(
        self, venue: str, check_gaps: bool, symbols: Symbols, out: OrderChunks, report: Report
    ) -> None:
        self._venue = venue
        self._check_gaps = check_gaps
        self._symbols = symbols
        self._out = out
        self._report = report
        self._last = -1
        self._seen: dict[int, set[int]] = {}  # day and channel → its stocks so far

    def parts(self, events: _Array) -> Iterator[_Array]:
        """The events, cut where numbers are missing: what comes before a gap is given first."""
        keys = events["key"]
        before = np.concatenate(([self._last], keys[:-1]))
        again = keys == before
        if again.any():
            self._report.skipped["a number that came before"] += int(again.sum())
            events, keys, before = events[~again], keys[~again], before[~again]
        if len(events) == 0:
            return
        self._last = int(keys[-1])
        if not self._check_gaps:
            yield events
            return
        same_channel = (before >> SEQ_BITS == keys >> SEQ_BITS) & (before >= 0)
        cuts = np.flatnonzero(same_channel & (keys - before > 1)).tolist()
        start = 0
        for cut in cuts:
            if cut > start:
                yield self._noted(events[start:cut])
            self._gap(int(before[cut]), int(keys[cut]), int(events["ingest_ns"][cut]))
            start = cut
        yield self._noted(events[start:])

    def _noted(self, events: _Array) -> _Array:
        for key in np.unique(events["key"] >> SEQ_BITS).tolist():
            of_channel = events["symbol"][events["key"] >> SEQ_BITS == key]
            self._seen.setdefault(key, set()).update(np.unique(of_channel).tolist())
        return events

    def _gap(self, before: int, after: int, timestamp_ns: int) -> None:
        """Any stock of the channel may have been meant: the ledger of each one says so."""
        from tapewire.book.gaps import Gap

        for symbol in sorted(self._seen.get(before >> SEQ_BITS, ())):
            instrument = self._out.instrument(symbol)
            if instrument is not None:
                self._report.gap(
                    Gap(
                        kind="venue",
                        venue=self._venue,
                        symbol=instrument.symbol,
                        stream="book",
                        first=number_of(before) + 1,
                        last=number_of(after) - 1,
                        seq=0,
                        timestamp_ns=timestamp_ns,
                        cause=f"numbers of channel {channel_of(before)} are missing",
                        action="imported without them",
                    )
                )
