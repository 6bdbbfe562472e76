"""Events of channels in the order of their numbers, without duplicates; gaps are reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tapewire.errors import CorruptSource
from tapewire.ingest.channel_events import SEQ_BITS, ChannelChunks, ChannelGap, number_of
from tapewire.ingest.importer import Chunk
from tapewire.ingest.merging import Reader, merged

__all__ = ["ChannelCheck"]

_Array = np.ndarray[Any, Any]

# A channel is complete if nearly all of its numbers follow each other; with fewer it is unknown.
MIN_STEPS = 100
MIN_COMPLETE = 0.9
# What duplicates of an event have in common, from whichever vendor.
_CONTENT = (
    "symbol",
    "type",
    "side",
    "price",
    "qty",
    "order_id",
    "bid_order_id",
    "ask_order_id",
)


class ChannelCheck:
    """Merges the events of files by channel and number, drops duplicates and finds gaps.

    Args:
        out: Makes the chunks; its options decide whether a missing number is a gap.
    """

    def __init__(self, out: ChannelChunks) -> None:
        self._out = out
        self._report = out.report
        self._last = -1
        self._last_event: _Array | None = None
        self._gaps: dict[int, list[ChannelGap]] = {}  # by day and channel
        self._complete: dict[int, int] = {}  # day and channel → its first number, if complete
        out.from_first = self._from_first
        out.gaps_of = lambda channel: self._gaps.get(channel, ())

    def chunks(
        self, readers: Sequence[Reader], others: Callable[[], Iterable[Chunk]] = tuple
    ) -> Iterator[Chunk]:
        """The chunks of all files in the order of the numbers; those of `others` in between."""
        damage: CorruptSource | None = None
        try:
            for events in merged(readers, self._report, self._scanned):
                yield from self._out.chunks(self._checked(events))
                yield from others()
        except CorruptSource as error:
            damage = error
        yield from self._out.finish()
        yield from others()
        if damage is not None:
            raise damage

    def _checked(self, events: _Array) -> _Array:
        """The events without duplicates; remembers the gaps between them."""
        gaps: list[ChannelGap] = []
        keys = events["key"]
        before = np.concatenate(([self._last], keys[:-1]))
        again = keys == before
        if again.any():
            self._report.skipped["duplicate number"] += int(again.sum())
            gaps += self._differing(events, np.flatnonzero(again))
            events, keys, before = events[~again], keys[~again], before[~again]
        if len(events):
            self._last = int(keys[-1])
            self._last_event = events[-1:].copy()
        if self._out.options.check_gaps is not False and self._complete:
            gaps += self._missing(before, keys)
        for gap in sorted(gaps):
            self._gaps.setdefault(gap.key >> SEQ_BITS, []).append(gap)
        return events

    def _missing(self, before: _Array, keys: _Array) -> Iterator[ChannelGap]:
        same_channel = (before >> SEQ_BITS == keys >> SEQ_BITS) & (before >= 0)
        same_channel &= np.isin(keys >> SEQ_BITS, list(self._complete))
        for i in np.flatnonzero(same_channel & (keys - before > 1)).tolist():
            first, last = number_of(int(before[i])) + 1, number_of(int(keys[i])) - 1
            yield ChannelGap(int(keys[i]), "missing", first, last)

    def _differing(self, events: _Array, again: _Array) -> Iterator[ChannelGap]:
        """Duplicates that differ from the event before them: it is unknown which one is valid."""
        for i in again.tolist():
            before = events[i - 1 : i] if i else self._last_event
            if before is None or any((events[name][i] != before[name]).any() for name in _CONTENT):
                yield ChannelGap(int(events["key"][i]), "out_of_order")

    def _scanned(self, keys: _Array) -> None:
        """Find out from the first keys of all files which channels are complete."""
        if not len(keys):
            return
        keys = np.unique(keys)
        channels, starts = np.unique(keys >> SEQ_BITS, return_index=True)
        for channel, numbers in zip(
            channels.tolist(), np.split(number_of(keys), starts[1:]), strict=True
        ):
            steps = np.diff(numbers)
            complete = len(steps) >= MIN_STEPS and (steps == 1).mean() >= MIN_COMPLETE
            if complete or self._out.options.check_gaps:
                self._complete[channel] = int(numbers[0])

    def _from_first(self, row: Any) -> bool | None:
        first = self._complete.get(int(row["key"]) >> SEQ_BITS)
        return None if first is None else first == 1
