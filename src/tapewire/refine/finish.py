"""What a clean log gets once its records are in place: types, gap ledger, snapshots."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapewire.book.gaps import Gap, GapLedger
from tapewire.bus.layout import ArchiveLayout
from tapewire.clock import DAY_NS, date_of
from tapewire.errors import ConcurrentUse, ReaderAlreadyActive
from tapewire.protocol import types_file
from tapewire.queue._native import remove_reader
from tapewire.refine.owners import TYPES_OF
from tapewire.refine.survey import RefineFinding
from tapewire.replay import Every, Round, Snapshotter

if TYPE_CHECKING:
    from tapewire.protocol.layout import MessageLayout

__all__ = ["FinishedLog", "finish_log", "gaps_of_log"]

WAIT_SECONDS = 60.0  # for a worker of a killed run that still saves snapshots of the same log
_RETRY_SECONDS = 0.1
_READER = "snapshotter"


@dataclass
class FinishedLog:
    """A clean log that was finished.

    Attributes:
        path: Its directory, below the archive.
        bytes: Disk space of its files.
        snapshots: Snapshots that were saved; None if its stream has no book.
        gaps: Entries of its gap ledger.
        findings: What needs attention.
    """

    path: str
    bytes: int = 0
    snapshots: int | None = None
    gaps: int = 0
    findings: list[RefineFinding] = field(default_factory=list)


def finish_log(
    archive: str | os.PathLike[str],
    name: str,
    *,
    gaps: Sequence[Mapping[str, Any]] = (),
    raw: Sequence[str] = (),
    snapshot_seconds: float = 60.0,
) -> FinishedLog:
    """Write the types, the gap ledger and the snapshots of a clean log. Repeated, it adds nothing.

    Args:
        archive: The archive.
        name: The clean log: ``venue/symbol/date/stream``.
        gaps: What its raw logs lack, as of `book.gaps.Gap`.
        raw: Directories of the raw logs, whose `types.json` describe the records.
        snapshot_seconds: Recorded time between two snapshots of a book, seconds.
    """
    layout = ArchiveLayout(archive)
    venue, symbol, date, stream = name.split("/")
    log = layout.log(venue, symbol, date, stream)
    finished = FinishedLog(os.path.relpath(log, layout.root))
    layouts = _layouts(raw, stream)
    if layouts:
        types_file.merge(log, layouts)
    if gaps:
        own = {"venue": venue, "symbol": symbol, "stream": stream}
        GapLedger(log).add(*(Gap(**{**gap, **own}) for gap in gaps))
    if stream == "book":
        saved, skipped = _save_snapshots(log, Every(seconds=snapshot_seconds))
        finished.snapshots = saved.written
        finished.findings += [RefineFinding(each.why, each.path) for each in skipped]
    finished.gaps = len(GapLedger(log).read())
    if finished.gaps:
        finished.findings.append(RefineFinding(f"gaps: {finished.gaps:,}"))
    with os.scandir(log) as entries:
        finished.bytes = sum(entry.stat().st_blocks * 512 for entry in entries if entry.is_file())
    return finished


def gaps_of_log(gaps: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Those gaps of raw logs that concern a clean log."""
    venue, symbol, date, stream = name.split("/")
    return [
        gap
        for gap in gaps
        if date_of(gap["timestamp_ns"] // DAY_NS).isoformat() == date
        and gap["venue"] in ("", venue)
        and gap["symbol"] in ("", symbol)
        and gap["stream"] in ("", "raw", stream)
    ]


def _save_snapshots(log: Path, every: Every) -> tuple[Round, list[Any]]:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        saver = Snapshotter(log, every, keep=None, name=_READER)
        try:
            saved = saver.run(follow=False)
            break
        except (ConcurrentUse, ReaderAlreadyActive):
            if time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_SECONDS)
    # An archive has no readers; the snapshotter has recorded its position in a note of its own.
    remove_reader(log, _READER)
    return saved, saver.findings


def _layouts(raw: Sequence[str], stream: str) -> list[MessageLayout]:
    """Layouts of the stream's message types, as the raw logs declare them."""
    wanted = TYPES_OF.get(stream.removesuffix("_late"), ())
    found: dict[tuple[int, int], MessageLayout] = {}
    for directory in raw:
        try:
            layouts = types_file.read(directory)
        except FileNotFoundError:
            continue
        for layout in layouts:
            if layout.type_id in wanted:
                found[layout.type_id, layout.version] = layout
    return list(found.values())
