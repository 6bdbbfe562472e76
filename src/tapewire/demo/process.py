"""What every process of the demo has: its settings, its end, and how it tells of itself."""

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
from tapewire.demo.places import Places

__all__ = ["Process", "Settings", "main"]

_LEASE_EVERY = 1.0  # seconds
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Settings:
    """What the driver tells a process, as JSON in its one argument."""

    name: str
    root: str
    driver_pid: int
    seed: int = 0
    rate: float = 0.0  # of the crowd, inputs a second
    capture: str | None = None

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


class Process:
    """The running process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.places = Places(settings.root)
        self.stopping = False
        self._lease_due = 0.0
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's, which ends us
        _end_with(settings.driver_pid)

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        self.stopping = True

    def say(self, event: str, **facts: object) -> None:
        """One JSON line to the driver."""
        line = json.dumps({"event": event, "time_ns": time.time_ns(), **facts})
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def renew_lease(self, path: Path, epoch: int) -> None:
        """Say in LEASE that we are alive, once a second."""
        now = time.monotonic()
        if now >= self._lease_due:
            self._lease_due = now + _LEASE_EVERY
            write_lease(path, epoch=epoch)

    def sign_off(self, path: Path) -> None:
        """Leave no mark behind at a good end: a stale one is a sign of a crash."""
        clear_ready(path)
        clear_lease(path)


def _end_with(driver_pid: int) -> None:
    """Be killed when the driver dies, however it dies: nothing of a demo is left running."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != driver_pid:  # it died before we asked
        raise SystemExit("the demo that started this process is gone")


def main(run: Callable[[Process], None]) -> None:
    """The `main` of a process's module."""
    run(Process(Settings(**json.loads(sys.argv[1]))))
