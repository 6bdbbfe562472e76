"""What an import found beside records: bad rows, gaps, instruments."""

from __future__ import annotations

import base64
import collections
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tapewire.book.gaps import Gap
    from tapewire.ingest.source import SourceFile
    from tapewire.protocol.instruments import Instrument

__all__ = ["REJECTED", "Report"]

REJECTED = "rejected.jsonl"
MAX_KEPT_BYTES = 1 << 20  # of a bad row
MAX_KINDS = 100  # of messages that are not imported


class Report:
    """Where an importer says what is not a record.

    Bad rows go to `rejected.jsonl`, written anew by every run of a job, for a run begins at the
    first row: after a kill and a resumption each row is in it once.

    Attributes:
        rows: Lines or messages looked at; the importer counts them up.
        bad_rows: Reason → how many rows.
        skipped: Kind → how many messages that are known and not imported.
    """

    def __init__(
        self,
        folder: Path,
        on_gap: Callable[[Gap], None],
        on_instrument: Callable[[Instrument], Instrument],
    ) -> None:
        self.rows = 0
        self.bad_rows: collections.Counter[str] = collections.Counter()
        self.skipped: collections.Counter[str] = collections.Counter()
        self.rejected = folder / REJECTED
        self._on_gap = on_gap
        self._on_instrument = on_instrument
        how = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = open(os.open(self.rejected, how, 0o600), "wb")  # noqa: SIM115 - closed below

    def __enter__(self) -> Report:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def bad(
        self, file: SourceFile, line_number: int, line: bytes, why: str, detail: str = ""
    ) -> None:
        """Keep a row aside.

        Args:
            file: Where it is from.
            line_number: Its line, or the number of its message, from 1.
            line: The row itself; of a long one the first `MAX_KEPT_BYTES` are kept.
            why: The reason, one of few: rows are counted by it.
            detail: What exactly is wrong with this one.
        """
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

    def skip(self, kind: str) -> None:
        """A message that is known and of no use here: a heartbeat, an acknowledgement, a candle."""
        if kind not in self.skipped:
            # Kinds are words of the file's: fit to be printed, and few.
            kind = kind if kind.isprintable() and kind.isascii() else ascii(kind)
            if kind not in self.skipped and len(self.skipped) >= MAX_KINDS:
                kind = "of other kinds"
        self.skipped[kind] += 1

    def gap(self, gap: Gap) -> None:
        """A gap that only the importer can see, for the ledger of its log (venue, symbol, stream).

        It stands where the log has come to: first yield what comes before it. Gaps in the venue's
        numbers of L2 diffs are found by the framework's own book; do not report those.
        """
        self._on_gap(gap)

    def instrument(self, instrument: Instrument) -> Instrument:
        """An instrument, before the first chunk of it; write with the one that is returned.

        Its ids, and the scales, are those that the archive knows it by.
        """
        return self._on_instrument(instrument)

    def close(self) -> None:
        """Make the bad rows durable. Again is no harm."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
