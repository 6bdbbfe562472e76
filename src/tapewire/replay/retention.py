"""Which snapshots of a log stay."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tapewire.config import check_at_least, check_whole
from tapewire.errors import TapewireError
from tapewire.replay import snapshots
from tapewire.replay.snapshots import SkippedFile, SnapshotFile

__all__ = ["SnapshotShelf"]


class _Kept(NamedTuple):
    seq: int
    bytes: int
    timestamp_ns: int | None  # None: it cannot be read


class SnapshotShelf:
    """The snapshots that a log has, and the rules by which old ones go.

    Args:
        log: Folder of the log.
        keep: How many of an instrument stay; None: all.
        max_bytes: Of all together; None: no limit.
        max_age: In seconds of the tape; None: no limit.

    The newest of an instrument always stays.
    """

    def __init__(
        self, log: Path, keep: int | None, max_bytes: int | None, max_age: float | None
    ) -> None:
        check_whole("keep", keep, 1, optional=True)
        check_whole("max_bytes", max_bytes, 1, optional=True)
        check_at_least("max_age", max_age, 0, optional=True)
        self._log = log
        self._keep, self._max_bytes, self._max_age = keep, max_bytes, max_age
        self._of: dict[tuple[int, int], list[_Kept]] = {}

    def look(self, findings: list[SkippedFile]) -> None:
        """Take in what is there."""
        self._of.clear()
        for market in snapshots.markets(self._log):
            for file in snapshots.files(self._log, *market):
                try:
                    size, timestamp_ns = file.path.stat().st_size, None
                    timestamp_ns = snapshots.info(file.path).ingest_end_ns
                except FileNotFoundError:
                    continue
                except (TapewireError, OSError) as error:
                    snapshots.report(findings, file.path, str(error))
                self._of.setdefault(market, []).append(_Kept(file.seq, size, timestamp_ns))

    def put(self, venue_id: int, market_id: int, seq: int, size: int, timestamp_ns: int) -> None:
        """A snapshot was written."""
        there = self._of.setdefault((venue_id, market_id), [])
        there[:] = sorted([*(k for k in there if k.seq != seq), _Kept(seq, size, timestamp_ns)])

    def retain(self, clock_ns: int | None) -> int:
        """Take away what the rules do not keep; how many files went."""
        gone = [(market, kept) for market in self._of for kept in self._too_old(market, clock_ns)]
        for market, kept in gone:
            self._remove(market, kept)
        return len(gone) + self._shrink()

    def _too_old(self, market: tuple[int, int], clock_ns: int | None) -> list[_Kept]:
        there = self._of[market]
        extra = len(there) - self._keep if self._keep is not None else 0
        since = None
        if self._max_age is not None and clock_ns is not None:
            since = clock_ns - int(self._max_age * 1e9)
        return [
            kept
            for place, kept in enumerate(there[:-1])
            if place < extra
            or (since is not None and kept.timestamp_ns is not None and kept.timestamp_ns < since)
        ]

    def _shrink(self) -> int:
        """Take away the oldest, of whichever instrument, until the rest is small enough."""
        if self._max_bytes is None:
            return 0
        size = sum(kept.bytes for there in self._of.values() for kept in there)
        old = [(market, kept) for market, there in self._of.items() for kept in there[:-1]]
        count = 0
        for market, kept in sorted(old, key=lambda one: one[1].seq):
            if size <= self._max_bytes:
                break
            self._remove(market, kept)
            size -= kept.bytes
            count += 1
        return count

    def _remove(self, market: tuple[int, int], kept: _Kept) -> None:
        folder = self._log / snapshots.FOLDER / str(market[0]) / str(market[1])
        snapshots.remove(SnapshotFile(kept.seq, folder / f"snapshot_{kept.seq}.bin"))
        self._of[market].remove(kept)
