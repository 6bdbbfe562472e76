"""Events of channels in the order of their numbers, without duplicates; gaps are reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tapewire.ingest.channel_events import SEQ_BITS, ChannelChunks, number_of
from tapewire.ingest.importer import Chunk
from tapewire.ingest.losses import Lost
from tapewire.ingest.merging import Reader, merged

__all__ = ["ChannelCheck"]

_Array = np.ndarray[Any, Any]

# A channel is complete if nearly all of its numbers follow each other; with fewer it is unknown.
MIN_STEPS = 100
MIN_COMPLETE = 0.9


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
        self._complete: dict[int, int] = {}  # day and channel → its first number, if complete
        out.from_first = self._from_first

    def chunks(
        self, readers: Sequence[Reader], others: Callable[[], Iterable[Chunk]] = tuple
    ) -> Iterator[Chunk]:
        """The chunks of all files in the order of the numbers; those of `others` in between."""
        for events in merged(readers, self._report, self._scanned):
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
        if self._out.options.check_gaps is False or not self._complete:
            yield events
            return
        same_channel = (before >> SEQ_BITS == keys >> SEQ_BITS) & (before >= 0)
        same_channel &= np.isin(keys >> SEQ_BITS, list(self._complete))
        cuts = np.flatnonzero(same_channel & (keys - before > 1)).tolist()
        start = 0
        for cut in cuts:
            if cut > start:
                yield self._noted(events[start:cut])
            self._gap(int(before[cut]), events[cut])
            start = cut
        yield self._noted(events[start:])

    def _noted(self, events: _Array) -> _Array:
        for key in np.unique(events["key"] >> SEQ_BITS).tolist():
            of_channel = events["symbol"][events["key"] >> SEQ_BITS == key]
            self._seen.setdefault(key, set()).update(np.unique(of_channel).tolist())
        return events

    def _gap(self, before: int, after: _Array) -> None:
        """Report a gap in each stock of the channel: the missing events may be of any of them."""
        for symbol in sorted(self._seen.get(before >> SEQ_BITS, ())):
            instrument = self._out.instrument(symbol)
            if instrument is not None:
                first, last = number_of(before) + 1, number_of(int(after["key"])) - 1
                entry = Lost(int(after["line"]), instrument.symbol, "missing", first, last)
                self._report.lost_at(int(after["source"]), entry)

    def _scanned(self, keys: _Array) -> None:
        """Find out from the first keys of all files which channels are complete."""
        keys = np.unique(keys)
        channels, starts = np.unique(keys >> SEQ_BITS, return_index=True)
        for channel, numbers in zip(
            channels.tolist(), np.split(number_of(keys), starts[1:]), strict=True
        ):
            steps = np.diff(numbers)
            complete = len(steps) >= MIN_STEPS and (steps == 1).mean() >= MIN_COMPLETE
            if complete or self._out.options.check_gaps:
                self._complete[channel] = int(numbers[0])

    def _from_first(self, row: Any) -> bool:
        return self._complete.get(int(row["key"]) >> SEQ_BITS) == 1
