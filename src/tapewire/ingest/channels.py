"""Events of channels in the order of their numbers, without duplicates; gaps are reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tapewire.ingest.channel_events import SEQ_BITS, ChannelChunks, channel_of, number_of
from tapewire.ingest.importer import Chunk
from tapewire.ingest.merging import Reader, merged

__all__ = ["ChannelCheck"]

_Array = np.ndarray[Any, Any]


class ChannelCheck:
    """Merges the events of files by channel and number, drops duplicates and reports gaps.

    Args:
        out: Makes the chunks; its options decide whether a missing number is a gap.
    """

    def __init__(self, out: ChannelChunks) -> None:
        self._out = out
        self._report = out.report
        self._last = -1
        self._seen: dict[int, set[int]] = {}  # day and channel → its stocks so far

    def chunks(
        self, readers: Sequence[Reader], others: Callable[[], Iterable[Chunk]] = tuple
    ) -> Iterator[Chunk]:
        """The chunks of all files in the order of the numbers; those of `others` in between."""
        for events in merged(readers, self._report):
            for part in self.parts(events):
                yield from self._out.chunks(part)
            yield from others()
        yield from others()

    def parts(self, events: _Array) -> Iterator[_Array]:
        """The events, split where numbers are missing: those before a gap are yielded first."""
        keys = events["key"]
        before = np.concatenate(([self._last], keys[:-1]))
        again = keys == before
        if again.any():
            self._report.skipped["duplicate number"] += int(again.sum())
            events, keys, before = events[~again], keys[~again], before[~again]
        if len(events) == 0:
            return
        self._last = int(keys[-1])
        if not self._out.options.check_gaps:
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
        """Report a gap in each stock of the channel: the missing events may be of any of them."""
        from tapewire.book.gaps import Gap

        for symbol in sorted(self._seen.get(before >> SEQ_BITS, ())):
            instrument = self._out.instrument(symbol)
            if instrument is not None:
                self._report.gap(
                    Gap(
                        kind="venue",
                        venue=self._out.venue,
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
