"""What a clean log gets once its records are in place: types, gap ledger, snapshots."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapewire.book.gaps import Gap, GapLedger
from tapewire.bus.layout import ArchiveLayout
from tapewire.errors import ConcurrentUse, ReaderAlreadyActive
from tapewire.protocol import types_file
from tapewire.queue._native import remove_reader
from tapewire.replay import Every, Round, Snapshotter
from tapewire.spark.jobs.parts import JobPart, PartResult
from tapewire.spark.jobs.raw_keys import TYPES_OF
from tapewire.spark.jobs.summary import JobFinding

if TYPE_CHECKING:
    from tapewire.protocol.layout import MessageLayout

__all__ = ["Finish"]

WAIT_SECONDS = 60.0  # for a worker of a killed run that is still at the same log
_LOOK_SECONDS = 0.1
_READER = "snapshotter"


class Finish:
    """Finishes a clean log; on a worker. Done again, it adds nothing.

    Args:
        target: The archive.
        snapshot_seconds: Of the tape between two snapshots of a book.

    `JobPart.work` is what the raw logs know of it: `gaps`, as of `Gap`, and `raw`, their folders.
    """

    def __init__(self, target: str, snapshot_seconds: float) -> None:
        self._layout = ArchiveLayout(target)
        self._every = Every(seconds=snapshot_seconds)

    def __call__(self, part: JobPart) -> PartResult:
        """Do it."""
        venue, symbol, date, stream = part.name.split("/")
        log = self._layout.log(venue, symbol, date, stream)
        result = PartResult(outputs=[os.path.relpath(log, self._layout.root)])
        own = {"venue": venue, "symbol": symbol, "stream": stream}
        known = [Gap(**{**gap, **own}) for gap in part.work["gaps"]]
        layouts = _layouts(part.work["raw"], stream)
        if layouts:
            types_file.merge(log, layouts)
        if known:
            GapLedger(log).add(*known)
        if stream == "book":
            told, findings = self._snapshots(log)
            result.counts["snapshots"] = told.written
            result.findings += [JobFinding(part.name, each.why, each.path) for each in findings]
        gaps = len(GapLedger(log).read())
        result.counts["gaps"] = gaps
        if gaps:
            result.findings.append(JobFinding(part.name, f"gaps: {gaps:,}"))
        with os.scandir(log) as entries:
            result.bytes = sum(entry.stat().st_blocks * 512 for entry in entries if entry.is_file())
        return result

    def _snapshots(self, log: Path) -> tuple[Round, list[Any]]:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            saver = Snapshotter(log, self._every, keep=None, name=_READER)
            try:
                told = saver.run(follow=False)
                break
            except (ConcurrentUse, ReaderAlreadyActive):
                if time.monotonic() > deadline:
                    raise
            time.sleep(_LOOK_SECONDS)
        remove_reader(log, _READER)  # an archive has no readers; its own note is elsewhere
        return told, saver.findings


def _layouts(raw: list[str], stream: str) -> list[MessageLayout]:
    """Of the types that the stream's records have, as the raw logs know them."""
    wanted = TYPES_OF.get(stream.removesuffix("_late"), ())
    found: dict[tuple[int, int], MessageLayout] = {}
    for folder in raw:
        try:
            layouts = types_file.read(folder)
        except FileNotFoundError:
            continue
        for layout in layouts:
            if layout.type_id in wanted:
                found[layout.type_id, layout.version] = layout
    return list(found.values())
