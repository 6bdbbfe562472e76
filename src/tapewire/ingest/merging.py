"""Merges lanes of events by key; only as much as the lanes differ in time is in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tapewire.errors import CorruptSource

if TYPE_CHECKING:
    from tapewire.ingest.report import Report

__all__ = ["Reader", "merged"]

_Array = np.ndarray[Any, Any]

# Reads one file: yields the events of each of its lanes, the same lanes for each piece of the file.
# Without a report, bad rows are not reported: the first pass.
Reader = Callable[["Report | None"], Iterator[Sequence[_Array]]]

SLICE = 1 << 16
SAMPLE = 1 << 20  # keys of a lane that show whether channels are complete
_END = np.iinfo(np.int64).max


def merged(
    readers: Sequence[Reader], report: Report, scanned: Callable[[_Array], None] | None = None
) -> Iterator[_Array]:
    """The events of all files by key; of equal keys, the earlier file's and lane's first.

    A first pass over the files checks whether every lane is in the order of its keys. If so, lanes
    are merged as they are read. If not, all events are read into memory and sorted. `scanned` is
    called with the first keys of all lanes, before the first event.

    Raises:
        CorruptSource: A file is damaged; the events before the damage were yielded.
    """
    scans = [_scan(reader) for reader in readers]
    if scanned is not None:
        scanned(_first_keys([lane for scan in scans for lane in scan.keys]))
    if all(scan.in_order for scan in scans):
        yield from _streamed(readers, [scan.counts for scan in scans], report)
    else:
        yield from _sorted(readers, sum(sum(scan.counts) for scan in scans), report)


class _Scan(NamedTuple):
    """What the first pass found in each lane of a file."""

    counts: list[int]
    in_order: bool
    keys: list[_Array]  # the first SAMPLE keys, sorted


def _first_keys(lanes: list[_Array]) -> _Array:
    """The keys of all lanes, up to where the first one of those that were cut ends."""
    cut = [int(keys[-1]) for keys in lanes if len(keys) == SAMPLE]
    together = np.concatenate([*lanes, np.empty(0, np.int64)])
    return together[together <= min(cut)] if cut else together


def _scan(reader: Reader) -> _Scan:
    counts: list[int] = []
    last: list[int] = []
    first: list[list[_Array]] = []
    in_order = True
    try:
        for lanes in reader(None):
            counts.extend([0] * (len(lanes) - len(counts)))
            last.extend([-1] * (len(lanes) - len(last)))
            first.extend([] for _ in range(len(lanes) - len(first)))
            for i, events in enumerate(lanes):
                keys = events["key"]
                if len(keys) == 0:
                    continue
                in_order = in_order and keys[0] >= last[i] and not (np.diff(keys) < 0).any()
                if counts[i] < SAMPLE:
                    first[i].append(keys[: SAMPLE - counts[i]].copy())
                counts[i] += len(keys)
                last[i] = int(keys[-1])
    except CorruptSource:
        pass  # raised again when the file is read
    sample = [np.sort(np.concatenate(parts)) for parts in first if parts]
    return _Scan(counts, in_order, sample)


def _sorted(readers: Sequence[Reader], total: int, report: Report) -> Iterator[_Array]:
    """Sort all events in memory, in one array of the final size."""
    gathered: _Array | None = None
    filled = 0
    damage: CorruptSource | None = None
    try:
        for reader in readers:
            for lanes in reader(report):
                for events in lanes:
                    if gathered is None:
                        gathered = np.empty(total, events.dtype)
                    gathered[filled : filled + len(events)] = events
                    filled += len(events)
    except CorruptSource as error:
        damage = error
    if gathered is not None:
        order = np.argsort(gathered["key"][:filled], kind="stable")
        for start in range(0, filled, SLICE):
            yield gathered[order[start : start + SLICE]]
    if damage is not None:
        raise damage


class _Lane:
    """Events of one lane that are read and not yielded yet.

    Attributes:
        complete_to: The key up to which all events of the lane are read.
    """

    def __init__(self, count: int) -> None:
        self.waiting: list[_Array] = []
        self.complete_to = -1 if count else _END
        self._to_come = count

    def add(self, events: _Array) -> None:
        if len(events):
            self.waiting.append(events)
            self._to_come -= len(events)
            self.complete_to = int(events["key"][-1]) if self._to_come > 0 else _END

    def take(self, up_to: int) -> list[_Array]:
        taken = []
        while self.waiting and self.waiting[0]["key"][0] <= up_to:
            events = self.waiting[0]
            cut = int(np.searchsorted(events["key"], up_to, side="right"))
            taken.append(events[:cut])
            if cut < len(events):
                self.waiting[0] = events[cut:]
                break
            del self.waiting[0]
        return taken


def _streamed(
    readers: Sequence[Reader], counts: list[list[int]], report: Report
) -> Iterator[_Array]:
    sources = [iter(reader(report)) for reader in readers]
    lanes = [[_Lane(count) for count in of_source] for of_source in counts]
    at_end = [False] * len(sources)
    damage: CorruptSource | None = None

    def complete_to(i: int) -> int:
        """The key up to which all events of a source are read."""
        return _END if at_end[i] else min((lane.complete_to for lane in lanes[i]), default=-1)

    while not all(at_end):
        i = min((i for i in range(len(sources)) if not at_end[i]), key=complete_to)
        try:
            for k, events in enumerate(next(sources[i])):
                lanes[i][k].add(events)
        except StopIteration:
            at_end[i] = True
        except CorruptSource as error:
            damage, at_end = error, [True] * len(sources)
        up_to = min(complete_to(i) for i in range(len(sources)))
        taken = [events for source in lanes for lane in source for events in lane.take(up_to)]
        if taken:
            events = np.concatenate(taken)
            yield events[np.argsort(events["key"], kind="stable")]
    if damage is not None:
        raise damage
