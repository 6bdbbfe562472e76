"""The tap: archives live queues in order, without losses or duplicates."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from tapewire.archive.companions import InstrumentsOf
from tapewire.archive.day_logs import OpenDayLogs
from tapewire.archive.live_queue import LiveQueue, identity_of
from tapewire.archive.record_columns import RecordColumns
from tapewire.archive.tap_report import SourceReport, TapReport
from tapewire.archive.tap_sources import TapSource, TapSources
from tapewire.bus.layout import ArchiveLayout
from tapewire.bus.names import check_name
from tapewire.clock import DAY_NS
from tapewire.config import check_at_least, check_whole
from tapewire.errors import InvalidOption, ReaderAlreadyActive, TapewireError
from tapewire.files import make_directories
from tapewire.log import Batch

__all__ = ["Flush", "Tap", "tap"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

SCAN_SECONDS = 1.0  # between scans for new queues and idle logs
NAP_LEAST, NAP_MOST = 0.001, 0.1
RETRY_SECONDS = 0.5  # while the archive's disk is full


@dataclass(frozen=True)
class Flush:
    """When archived records are synced and then committed to the live queues.

    Attributes:
        bytes: After so many bytes of payload, or
        seconds: so long after the first record that is not durable yet.
    """

    bytes: int = 64 << 20
    seconds: float = 1.0

    def __post_init__(self) -> None:
        check_whole("bytes", self.bytes, 1)
        check_at_least("seconds", self.seconds, 0)


class Tap:
    """Follows live queues and archives them; made by `tap`, which documents the options.

    Attributes:
        report: What it has done so far.
    """

    def __init__(
        self,
        sources: TapSources,
        root: str | os.PathLike[str],
        name: str,
        flush: Flush,
        segment_bytes: int | None,
        max_open: int | None,
        close_after: float,
        on_disk_full: str,
    ) -> None:
        self.report = TapReport()
        self.name = check_name("name", name)
        self._sources = sources
        self._layout = ArchiveLayout(root)
        self._flush = flush
        self._options = (segment_bytes, max_open, close_after)
        self._waits = on_disk_full == "wait"
        self._stop = threading.Event()
        self._lives: dict[str, LiveQueue] = {}
        self._failed: dict[str, TapewireError | OSError] = {}
        self._failed_identity: dict[str, tuple[int, int] | None] = {}
        self._unsynced_bytes = 0
        self._unsynced_since: float | None = None
        self._on_scan: Callable[[TapReport], None] | None = None

    def stop(self) -> None:
        """Make `run` return soon; may be called from another thread or a signal handler."""
        self._stop.set()

    def run(
        self, follow: bool = True, on_look: Callable[[TapReport], None] | None = None
    ) -> TapReport:
        """Continue where the last run stopped, to the end of the queues or until `stop`.

        Args:
            follow: Wait for more records and for more queues. False: return when every record
                that was in the queues at the start is archived.
            on_look: Called with the report about once a second.

        Returns:
            What was done and found. A queue that cannot be archived does not stop the others: it
            is a finding, unless it was the last.

        Raises:
            ReaderAlreadyActive: Another tap of this name follows one of the queues.
            FileNotFoundError: There is no such queue or bus.
            SequenceNotRising: The records of the only queue do not continue those archived.
            DiskFull: The archive's disk is full, and `on_disk_full` is "raise".
        """
        make_directories(self._layout.root)
        self._instruments = InstrumentsOf(self._layout.root)
        self._logs = OpenDayLogs(self._layout, *self._options)
        try:
            self._on_scan = on_look
            for source in self._sources.scan():
                self._try_attach(source, starting=True)
            self._follow(follow)
            self._commit()
        except _StoppedWithoutSpace:
            pass  # nothing was committed that is not archived: the next run continues there
        finally:
            try:
                self._logs.close()
            finally:
                for live in self._lives.values():
                    live.close()
        if self._failed and not self._lives and not self._sources.grows:
            raise next(iter(self._failed.values()))
        return self.report

    def _follow(self, follow: bool) -> None:
        nap = NAP_LEAST
        next_scan = 0.0
        while not self._stop.is_set():
            moved = False
            for live in list(self._lives.values()):
                if live.at_end and not follow:
                    continue  # else a writer that keeps appending would prevent the end
                moved = self._step(live) or moved
                if self._is_due():
                    self._commit()
                if self._stop.is_set():
                    return
            if time.monotonic() >= next_scan:
                moved = self._scan() or moved
                self._show_progress()
                next_scan = time.monotonic() + SCAN_SECONDS
            nap = NAP_LEAST if moved else min(nap * 2, NAP_MOST)
            if not moved:
                if not follow or (not self._lives and not self._sources.grows):
                    return
                self._rest(nap)

    def _show_progress(self) -> None:
        if self._on_scan is not None:
            self._on_scan(self.report)

    # ---- queues that come and go ----------------------------------------------------------------

    def _attach(self, source: TapSource) -> None:
        name = str(source.stream)
        live = LiveQueue(source, self.name, self._layout, self.report)
        before = self.report.sources.get(name)
        if before is not None and before.error is None:
            live.report = before
        self._lives[name] = live
        self._logs.expect_queues(len(self._lives))
        self.report.sources[name] = live.report

    def _try_attach(self, source: TapSource, *, starting: bool = False) -> bool:
        """Follow a queue; returns whether that worked. `starting`: another tap is an error."""
        name = str(source.stream)
        try:
            self._attach(source)
        except (TapewireError, OSError) as error:
            if starting and isinstance(error, ReaderAlreadyActive):
                raise
            self.report.sources[name] = SourceReport(os.fspath(source.queue), name)
            self._fail(source, error)
            return False
        return True

    def _scan(self) -> bool:
        """Find new and recreated queues, close idle logs; returns whether a queue was added."""
        added = False
        for source in self._sources.scan():
            name = str(source.stream)
            live = self._lives.get(name)
            if live is not None and identity_of(source) not in (None, live.identity):
                live.close()
                self.report.add_finding(f"{name}: the live queue was created again")
                if self._try_attach(source):
                    self._lives[name].forget_archived()
                    added = True
            elif live is None and self._may_be_followed(name, source):
                added = self._try_attach(source) or added
        for clash in self._sources.clashes():
            self.report.add_finding(f"{clash}; the second is skipped: tap it into another archive")
        self._logs.close_idle()
        return added

    def _may_be_followed(self, name: str, source: TapSource) -> bool:
        """Whether it is new, or created again in the place of one that failed."""
        if name in self._failed:
            if identity_of(source) in (None, self._failed_identity.get(name)):
                return False
            del self._failed[name]
        return True

    def _fail(self, source: TapSource, error: TapewireError | OSError) -> None:
        """Stop following this queue. Its reader is pinned: the next tap finds the records."""
        name = str(source.stream)
        _log.warning("%s is no longer archived: %s", name, error)
        self._failed[name] = error
        self._failed_identity[name] = identity_of(source)
        self.report.sources[name].error = str(error)
        self.report.add_finding(f"{name}: no longer archived: {error}")
        live = self._lives.pop(name, None)
        if live is not None:
            live.close()

    # ---- archiving ------------------------------------------------------------------------------

    def _step(self, live: LiveQueue) -> bool:
        """Archive the next batch of one queue; returns whether there was one."""
        try:
            batch = live.read()
        except (TapewireError, OSError) as error:
            self._fail(live.source, error)
            return False
        if batch is None:
            return False
        try:
            self._archive(live, batch)
        except OSError:
            raise  # from the archive's disk: affects every queue
        except TapewireError as error:
            self._fail(live.source, error)
        return True

    def _archive(self, live: LiveQueue, batch: Batch) -> None:
        live.pending = True
        why = live.types.reload()
        if why is not None:
            self.report.add_finding(f"{live.stream}: its types.json is not copied: {why}")
        days = batch.timestamp_ns // DAY_NS
        edges = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(batch)]
        for start, stop in itertools.pairwise(edges):
            if start == stop:
                continue
            if days[start] < 0:
                live.add_loss(f"times start at 1970: timestamp_ns={batch.timestamp_ns[start]}")
            else:
                self._put(live, int(days[start]), batch[start:stop])
        live.pending = False

    def _put(self, live: LiveQueue, day: int, batch: Batch) -> None:
        """Append a batch to the log of its day; after a full disk, continue where it stopped."""
        gap = live.gap_before(int(batch.seq[0]), int(batch.timestamp_ns[0]))
        records = RecordColumns.of_batch(batch)
        already: int | None = None

        def put() -> None:
            nonlocal already
            log = self._logs.get(live.stream, day)
            why = log.declare(live.types)
            if why is not None:
                self.report.add_finding(f"{log.name}: types.json of the queue is not merged: {why}")
            if gap is not None:
                log.ledger.add(gap)
            if already is None:
                already = log.existing(records)
            log.append(records)
            self.report.add_log(str(live.stream), log.name)

        self._retry_when_full(put)
        if not already:
            live.report_restart(int(batch.seq[0]))
        live.note_archived(batch, already or 0, gap)
        self._unsynced_bytes += batch.payload_bytes
        if self._unsynced_since is None:
            self._unsynced_since = time.monotonic()

    def _retry_when_full(self, work: Callable[[], _T]) -> _T:
        """The result of `work`, which is repeated while the archive's disk is full."""
        while True:
            try:
                done = work()
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._waits:
                    raise
                if self.report.waiting is None:
                    _log.warning("the archive's disk is full, waiting for space: %s", error)
                self.report.waiting = str(error)
                self._show_progress()
            else:
                self.report.waiting = None
                return done
            until = time.monotonic() + RETRY_SECONDS
            while time.monotonic() < until:
                if self._stop.is_set():
                    raise _StoppedWithoutSpace
                time.sleep(NAP_MOST)

    # ---- committing -----------------------------------------------------------------------------

    def _is_due(self) -> bool:
        if self._unsynced_since is None:
            return False
        return (
            self._unsynced_bytes >= self._flush.bytes
            or time.monotonic() - self._unsynced_since >= self._flush.seconds
        )

    def _commit(self) -> None:
        """Sync everything archived, and only then commit to the live queues."""
        lives = [live for live in self._lives.values() if live.uncommitted]
        for live in lives:
            why = self._retry_when_full(partial(self._instruments.merge, live.source.queue))
            if why is not None:
                self.report.add_finding(f"{live.stream}: its instruments.json is not copied: {why}")
        self._logs.sync()
        for live in lives:
            live.commit()
        self._unsynced_bytes = 0
        self._unsynced_since = None
        self.report.commits += bool(lives)

    def _rest(self, nap: float) -> None:
        if self._unsynced_since is not None:
            left = self._unsynced_since + self._flush.seconds - time.monotonic()
            nap = max(min(nap, left), 0.0)
        alone = next(iter(self._lives.values())) if len(self._lives) == 1 else None
        if alone is not None and not alone.stuck:
            alone.wait(nap)  # until the first record
        else:
            time.sleep(nap)

    def __repr__(self) -> str:
        return f"<Tap {self.name!r} into {os.fspath(self._layout.root)!r}: {self.report}>"


class _StoppedWithoutSpace(Exception):
    """`stop` was called while the disk was full."""


def tap(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    root: str | os.PathLike[str],
    *,
    name: str = "archive-tap",
    venue: str | None = None,
    symbol: str | None = None,
    stream: str | None = None,
    flush: Flush = Flush(),  # noqa: B008 - an immutable value
    segment_bytes: int | None = None,
    max_open: int | None = None,
    close_after: float = 60.0,
    on_disk_full: str = "wait",
) -> Tap:
    """Tap live queues into an archive; call `run` of the result.

    Each queue is read in strict order by a pinned reader. A record goes, with its sequence number,
    time, type, flags and payload, to the log of its UTC day; the live queue is committed when that
    log is durable. A tap that is killed at any moment and run again loses and duplicates nothing. A
    stopped tap delays retention of the live queues, and nothing else.

    Args:
        sources: A queue, several, or the root of a bus: its `streams/raw/*` and `streams/clean/*`,
            including those that are created later.
        root: The archive; created if it does not exist.
        name: Name of its reader in each queue; one tap uses it at a time.
        venue: The venue of the only queue given, if its path does not name it.
        symbol: The symbol, likewise; without one, all symbols of the venue.
        stream: The stream, likewise.
        flush: When to sync and commit.
        segment_bytes: Segment size of new logs. None: 4 MiB, and 32 MiB for a log of a venue.
        max_open: How many logs may be open at a time, four descriptors each. None: two for each
            queue and at least 256, within the process's limit of descriptors.
        close_after: Seconds after which a log without new records is closed.
        on_disk_full: "wait" for space, or "raise".

    Raises:
        FileNotFoundError: There is no such queue or bus.
        NotALog: A directory is neither.
        InvalidOption: An option is invalid, or a path does not name what its queue carries.

    Example:
        >>> import tapewire as tw
        >>> from tapewire import archive, bus
        >>> live = bus.Layout(tmp / "bus").streams.clean("binance_spot", "BTCUSDT", "trades")
        >>> with tw.open_publisher(live, segment_bytes=1 << 20) as writer:
        ...     for second in (1_767_225_599, 1_767_225_600):  # the last of the year, and the first
        ...         _ = writer.append(1, b"tick", timestamp_ns=second * 10**9)
        >>> report = archive.tap(tmp / "bus", tmp / "archive").run(follow=False)
        >>> print(report)
        2 records of 1 queues into 2 logs, gaps: 0
        >>> with tw.open_log(tmp / "archive/v1/binance_spot/BTCUSDT/2026-01-01/trades") as log:
        ...     [(record.seq, bytes(record.payload)) for record in log]
        [(1, b'tick')]
    """
    if on_disk_full not in ("wait", "raise"):
        raise InvalidOption(f'on_disk_full must be "wait" or "raise": {on_disk_full=}')
    if not isinstance(flush, Flush):
        raise InvalidOption(f"flush must be an archive.Flush: {flush=}")
    check_whole("segment_bytes", segment_bytes, 4096, optional=True)
    check_whole("max_open", max_open, 1, optional=True)
    check_at_least("close_after", close_after, 0)
    found = TapSources(sources, venue, symbol, stream)
    return Tap(found, root, name, flush, segment_bytes, max_open, close_after, on_disk_full)
