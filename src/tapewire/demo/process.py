"""What every process of the demo shares: settings, signals, leases and events."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from tapewire.bus import clear_lease, clear_ready, write_lease
from tapewire.demo.paths import DemoPaths

__all__ = ["Process", "Settings", "main"]

_LEASE_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Settings:
    """The settings of a process, passed as JSON in its one argument."""

    name: str
    root: str
    driver_pid: int
    seed: int = 0
    rate: float = 0.0  # of the participants, inputs per second
    capture: str | None = None

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


class Process:
    """The running process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.paths = DemoPaths(settings.root)
        self.stopping = False
        self._lease_due = 0.0
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which ends us
        _end_with(settings.driver_pid)

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        self.stopping = True

    def say(self, event: str, **facts: object) -> None:
        """Report an event to the driver, as a line of JSON."""
        line = json.dumps({"event": event, "time_ns": time.time_ns(), **facts})
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def renew_lease(self, path: Path, epoch: int) -> None:
        """Write LEASE once a second, which states that this process is alive."""
        now = time.monotonic()
        if now >= self._lease_due:
            self._lease_due = now + _LEASE_SECONDS
            write_lease(path, epoch=epoch)

    def clear_marks(self, path: Path) -> None:
        """Remove READY and LEASE at a regular end: stale ones indicate a crash."""
        clear_ready(path)
        clear_lease(path)


def _end_with(driver_pid: int) -> None:
    """Have the kernel kill this process when the driver ends, so that none is left running."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != driver_pid:  # it ended before prctl
        raise SystemExit(f"the demo that started this process is not running: pid={driver_pid}")


def main(run: Callable[[Process], None]) -> None:
    """The `main` of a process's module."""
    run(Process(Settings(**json.loads(sys.argv[1]))))
