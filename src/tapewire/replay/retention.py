"""Retention of book snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tapewire.config import check_at_least, check_whole
from tapewire.errors import TapewireError
from tapewire.replay import snapshots
from tapewire.replay.snapshots import SkippedFile, SnapshotFile

__all__ = ["SnapshotRetention"]


class _Kept(NamedTuple):
    seq: int
    bytes: int
    timestamp_ns: int | None  # None: unreadable


class SnapshotRetention:
    """The snapshots of a log, and the rules by which old ones are removed.

    Args:
        log: Directory of the log.
        keep: Snapshots to keep for each instrument; None: all.
        max_bytes: Limit of all together; None: no limit.
        max_age: Age in seconds, by the timestamps of the log; None: no limit.

    The newest snapshot of an instrument is never removed.
    """

    def __init__(
        self, log: Path, keep: int | None, max_bytes: int | None, max_age: float | None
    ) -> None:
        check_whole("keep", keep, 1, optional=True)
        check_whole("max_bytes", max_bytes, 1, optional=True)
        check_at_least("max_age", max_age, 0, optional=True)
        self._log = log
        self._keep, self._max_bytes, self._max_age = keep, max_bytes, max_age
        self._by_market: dict[tuple[int, int], list[_Kept]] = {}

    def load(self, findings: list[SkippedFile]) -> None:
        """List the snapshots of the log; unreadable ones are added to `findings`."""
        self._by_market.clear()
        for market in snapshots.markets(self._log):
            for file in snapshots.files(self._log, *market):
                try:
                    size, timestamp_ns = file.path.stat().st_size, None
                    timestamp_ns = snapshots.info(file.path).ingest_end_ns
                except FileNotFoundError:
                    continue
                except (TapewireError, OSError) as error:
                    snapshots.report(findings, file.path, str(error))
                self._by_market.setdefault(market, []).append(_Kept(file.seq, size, timestamp_ns))

    def add(self, venue_id: int, market_id: int, seq: int, size: int, timestamp_ns: int) -> None:
        """Note that a snapshot was written."""
        of_market = self._by_market.setdefault((venue_id, market_id), [])
        others = (kept for kept in of_market if kept.seq != seq)
        of_market[:] = sorted([*others, _Kept(seq, size, timestamp_ns)])

    def retain(self, clock_ns: int | None) -> int:
        """Remove the files that the rules do not keep; return their number."""
        markets = self._by_market
        gone = [(market, kept) for market in markets for kept in self._too_old(market, clock_ns)]
        for market, kept in gone:
            self._remove(market, kept)
        return len(gone) + self._shrink()

    def _too_old(self, market: tuple[int, int], clock_ns: int | None) -> list[_Kept]:
        of_market = self._by_market[market]
        extra = len(of_market) - self._keep if self._keep is not None else 0
        since = None
        if self._max_age is not None and clock_ns is not None:
            since = clock_ns - int(self._max_age * 1e9)
        return [
            kept
            for index, kept in enumerate(of_market[:-1])
            if index < extra
            or (since is not None and kept.timestamp_ns is not None and kept.timestamp_ns < since)
        ]

    def _shrink(self) -> int:
        """Remove the oldest of all instruments until the rest is within `max_bytes`."""
        if self._max_bytes is None:
            return 0
        markets = self._by_market.items()
        size = sum(kept.bytes for _, of_market in markets for kept in of_market)
        old = [(market, kept) for market, of_market in markets for kept in of_market[:-1]]
        count = 0
        for market, kept in sorted(old, key=lambda one: one[1].seq):
            if size <= self._max_bytes:
                break
            self._remove(market, kept)
            size -= kept.bytes
            count += 1
        return count

    def _remove(self, market: tuple[int, int], kept: _Kept) -> None:
        path = snapshots.path_of(self._log, *market, kept.seq)
        snapshots.remove(SnapshotFile(kept.seq, path))
        self._by_market[market].remove(kept)
