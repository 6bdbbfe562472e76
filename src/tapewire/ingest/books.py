"""The framework's own book of each L2 stream: it finds gaps, and begins each day's log."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import tapewire as tw
from tapewire.book import L2Book
from tapewire.book.gaps import Gap, GapLedger
from tapewire.ingest.log_writer import LogWriter
from tapewire.protocol.market import l2_snapshot

if TYPE_CHECKING:
    from tapewire.protocol.instruments import Instrument

__all__ = ["RunningBook"]

_BATCH = 16384
_CAUSES = {"venue_gap": "the venue's update ids do not follow each other"}


class RunningBook:
    """A book that reads behind the writer, log after log.

    It reads the records from the log itself: what is found wrong has the number of its record.
    """

    def __init__(self, instrument: Instrument, stream: str) -> None:
        self.instrument = instrument
        self.stream = stream
        self.book = L2Book(instrument.price_scale, instrument.size_scale, on_gap="resync")
        self._reader: Any = None
        self._log: LogWriter | None = None
        self._read = 0
        self._told: list[tuple[LogWriter, Gap]] = []

    def __repr__(self) -> str:
        return f"RunningBook({self.instrument.venue}:{self.instrument.symbol}, {self.book!r})"

    def snapshot(self, timestamp_ns: int) -> bytes | None:
        """The book as an event, so that the next log stands alone; None when not to be trusted."""
        if not self.book.trusted:
            return None
        payload: bytes = l2_snapshot(
            self.instrument,
            timestamp_ns,
            bids=self.book.bids(),
            asks=self.book.asks(),
            native_seq=self.book.last_update,
        )
        return payload

    def catch_up(self, log: LogWriter) -> None:
        """Apply what the job has put into `log` since the last call, and tell the ledger."""
        if log is not self._log:
            self.close()
            self._log, self._read = log, 0
        if self._reader is None:
            self._reader = tw.open_log(log.folder)
            self._reader.seek_seq(log.first_seq + self._read)
        while self._read < log.count:
            batch = self._reader.read_batch(min(log.count - self._read, _BATCH))
            self.book.apply_batch(batch)
            self._read += len(batch)
        self._tell(log)

    def _tell(self, log: LogWriter) -> None:
        """New gaps to the ledger of the log they were found in; those that ended, again."""
        found = self.book.gaps
        for old in found[len(self._told) :]:
            self._told.append((log, self._entry(old)))
            log.gaps += 1
            GapLedger(log.folder).add(self._told[-1][1])
        for i, old in enumerate(found):
            where, entry = self._told[i]
            action = _action(old)
            if entry.action != action:
                entry = dataclasses.replace(entry, action=action)
                self._told[i] = (where, entry)
                GapLedger(where.folder).add(entry)

    def _entry(self, gap: Any) -> Gap:
        return Gap(
            kind="venue" if gap.cause == "venue_gap" else "parse",
            venue=self.instrument.venue,
            symbol=self.instrument.symbol,
            stream=self.stream,
            first=gap.first,
            last=gap.last,
            seq=gap.seq,
            timestamp_ns=gap.timestamp_ns,
            cause=_CAUSES.get(gap.cause, gap.cause.replace("_", " ")),
            action=_action(gap),
        )

    def close(self) -> None:
        """Let go of the log; the book stays."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def _action(gap: Any) -> str:
    return "resynced" if gap.resynced else "untrusted"
