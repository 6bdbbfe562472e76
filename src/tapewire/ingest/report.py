"""What an importer reports besides records: bad rows, gaps, instruments."""

from __future__ import annotations

import base64
import collections
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapewire.ingest.losses import Lost

if TYPE_CHECKING:
    from tapewire.book.gaps import Gap
    from tapewire.ingest.source import SourceFile
    from tapewire.protocol.instruments import Instrument

__all__ = ["REJECTED", "Report"]

REJECTED = "rejected.jsonl"
MAX_KEPT_BYTES = 1 << 20  # of a bad row
MAX_KINDS = 100  # kinds of messages that are not imported


class Report:
    """Takes what an importer finds besides records.

    Bad rows go to `rejected.jsonl`. Every run of a job writes this file from scratch, because it
    begins at the first row: after a kill and a resumption each row is in it once.

    Attributes:
        rows: Lines or messages read; counted by the importer.
        bad_rows: Reason → number of rows.
        skipped: Kind → number of known messages that are not imported.
    """

    def __init__(
        self,
        directory: Path,
        on_gap: Callable[[Gap], None],
        on_instrument: Callable[[Instrument], Instrument],
        on_lost: Callable[[int, Lost], None] | None = None,
    ) -> None:
        self.rows = 0
        self.bad_rows: collections.Counter[str] = collections.Counter()
        self.skipped: collections.Counter[str] = collections.Counter()
        self.rejected = directory / REJECTED
        self._on_gap = on_gap
        self._on_instrument = on_instrument
        self._on_lost = on_lost
        how = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = open(os.open(self.rejected, how, 0o600), "wb")  # noqa: SIM115 - closed below

    def __enter__(self) -> Report:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def bad(
        self,
        file: SourceFile,
        line_number: int,
        line: bytes,
        why: str,
        detail: str = "",
        *,
        symbol: str | None = None,
        of_book: bool = True,
    ) -> None:
        """Write a bad row to `rejected.jsonl`.

        The books that the row may have changed are untrusted from there on: the framework inserts
        a loss where the row would have been, by `Chunk.lines`. Report it before the chunk.

        Args:
            file: The file of the row.
            line_number: Its line, or the position of its message, from 1.
            line: The row itself; a long one is truncated to `MAX_KEPT_BYTES`.
            why: The reason, one of few: rows are counted by reason.
            detail: Details of this row.
            symbol: The directory name of the only symbol whose book the row can have changed; None
                if that is unknown: then all books of the file are untrusted.
            of_book: False if the row cannot have changed a book, such as a trade.
        """
        if of_book:
            self.lost(file, Lost(line_number, symbol))
        self.bad_rows[why] += 1
        entry: dict[str, Any] = {"file": file.name, "line": line_number, "why": why}
        if detail:
            entry["detail"] = detail
        kept = line[:MAX_KEPT_BYTES]
        try:
            entry["text"] = kept.decode()
        except UnicodeDecodeError:
            entry["base64"] = base64.b64encode(kept).decode()
        if len(line) > len(kept):
            entry["bytes"] = len(line)
        self._file.write(json.dumps(entry).encode() + b"\n")

    def lost(self, file: SourceFile, lost: Lost) -> None:
        """Report that something is missing before a line; before the chunk with that line.

        For what is not a bad row: sequence numbers that are missing or go back, a file that begins
        in the middle of a session.
        """
        self.lost_at(file.index, lost)

    def lost_at(self, source: int, lost: Lost) -> None:
        """The same with the index of the file."""
        if self._on_lost is not None:
            self._on_lost(source, lost)

    def skip(self, kind: str) -> None:
        """Count a known message that is not imported: a heartbeat, an acknowledgement, a candle."""
        if kind not in self.skipped:
            # Kinds are text from the file: make them printable and limit their number.
            kind = kind if kind.isprintable() and kind.isascii() else ascii(kind)
            if kind not in self.skipped and len(self.skipped) >= MAX_KINDS:
                kind = "of other kinds"
        self.skipped[kind] += 1

    def gap(self, gap: Gap) -> None:
        """Add a gap that only the importer can detect to the ledger of its stream's log.

        It is placed at the end of the log: first yield the records before it. Do not report gaps
        in the venue's update ids of L2 diffs: the framework finds those.
        """
        self._on_gap(gap)

    def instrument(self, instrument: Instrument) -> Instrument:
        """Add an instrument before its first chunk; write records with the one returned.

        Its ids and scales are those in the archive's instruments.json.
        """
        return self._on_instrument(instrument)

    def close(self) -> None:
        """Sync and close the file of bad rows. Closing twice is fine."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
