"""Peak memory of Spark's processes: its JVM, and each Python worker by itself."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_EVERY_SECONDS = 0.05


@dataclass
class Peaks:
    """In bytes. Of a worker, private pages and pages of the mapped log are counted separately."""

    worker: int = 0  # VmHWM of the largest: its peak resident memory
    worker_own: int = 0  # RssAnon of the largest, sampled
    jvm: int = 0  # VmHWM
    workers: set[int] = field(default_factory=set)

    def as_dict(self) -> dict[str, int]:
        return {
            "worker_bytes": self.worker,
            "worker_own_bytes": self.worker_own,
            "jvm_bytes": self.jvm,
            "workers": len(self.workers),
        }


@contextlib.contextmanager
def watched() -> Iterator[Peaks]:
    """The peaks of all descendants of this process during the block; valid after its end."""
    peaks, stop = Peaks(), threading.Event()

    def watch() -> None:
        while not stop.wait(_EVERY_SECONDS):
            _look(peaks)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peaks
    finally:
        stop.set()
        watcher.join()
        _look(peaks)


def _look(peaks: Peaks) -> None:
    for pid in _descendants(os.getpid()):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        facts = dict(line.split(":", 1) for line in lines)
        if "VmHWM" not in facts:
            continue  # has ended but was not waited for
        peak, own = (int(facts[name].split()[0]) * 1024 for name in ("VmHWM", "RssAnon"))
        if b"pyspark.daemon" in command or b"pyspark/daemon" in command:
            peaks.workers.add(pid)
            peaks.worker = max(peaks.worker, peak)
            peaks.worker_own = max(peaks.worker_own, own)
        elif b"org.apache.spark" in command:
            peaks.jvm = max(peaks.jvm, peak)


def _descendants(parent: int) -> Iterator[int]:
    try:
        threads = list(Path(f"/proc/{parent}/task").iterdir())
        children = [int(pid) for t in threads for pid in (t / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        yield child
        yield from _descendants(child)
