"""The archive: stored logs by venue, symbol, UTC day and stream.

Example:
    >>> import tapewire as tw
    >>> from tapewire import archive, bus
    >>> live = bus.Layout(tmp / "bus").streams.raw("okx")
    >>> with tw.open_publisher(live, segment_bytes=1 << 20) as writer:
    ...     _ = writer.append(1, b"tick", timestamp_ns=1_767_225_600_000_000_000)
    >>> archive.tap(tmp / "bus", tmp / "archive").run(follow=False).records
    1
    >>> archive.verify(tmp / "archive").intact
    True
"""

from tapewire.archive.tap_report import SourceReport, TapReport
from tapewire.archive.tapping import Flush, Tap, tap
from tapewire.archive.tree import ArchivedLog, ls
from tapewire.archive.verifying import ArchiveVerdict, verify

__all__ = [
    "ArchiveVerdict",
    "ArchivedLog",
    "Flush",
    "SourceReport",
    "Tap",
    "TapReport",
    "ls",
    "tap",
    "verify",
]
