"""The demo's processes: started, killed, listened to, and all ended when the stage is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from tapewire.errors import TapewireError

__all__ = ["DemoFailed", "Stage", "Told"]

_PATIENCE = 30.0  # seconds for anything that should take far less
_LISTEN_EVERY = 0.01
_LOG_SHOWN = 2_000  # characters of a failed process's last words


class DemoFailed(TapewireError):
    """A process of the demo ended as it should not, or did not do what it should in time."""


@dataclass(frozen=True)
class Told:
    """A line that a process has written about itself."""

    process: str
    event: str
    time_ns: int
    facts: dict[str, Any]


class _Child:
    """A running process and the half of a line that it may have written."""

    def __init__(self, module: str, argument: str, log: IO[str]) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", module, argument],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches the driver alone, which ends all of them
        )
        assert self.popen.stdout is not None
        self._out = self.popen.stdout
        os.set_blocking(self._out.fileno(), False)
        self._rest = b""

    def lines(self) -> list[bytes]:
        """Whole lines that have come since the last call."""
        *lines, self._rest = (self._rest + (self._out.read() or b"")).split(b"\n")
        return lines

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait()
        self._out.close()


class Stage:
    """Processes by name. `logs` is a folder for what they write on standard error."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._logs.mkdir(mode=0o700, parents=True)
        self._children: dict[str, _Child] = {}
        self.told: list[Told] = []

    def start(self, name: str, module: str, argument: str) -> int:
        """Start a process; its pid."""
        with (self._logs / f"{name}.log").open("a") as log:
            self._children[name] = child = _Child(module, argument, log)
        return child.popen.pid

    def kill(self, name: str) -> int:
        """Kill a process with SIGKILL, now; the pid it had."""
        child = self._children.pop(name)
        child.popen.kill()
        child.popen.wait()
        self._hear(name, child)
        child.end()
        return child.popen.pid

    def terminate(self, name: str) -> None:
        """Ask a process to end, by SIGTERM."""
        self._children[name].popen.terminate()

    def runs(self, name: str) -> bool:
        """Whether a process has not ended yet."""
        return name in self._children

    def count(self, name: str, event: str) -> int:
        """How often a process has told of such an event."""
        return sum((told.process, told.event) == (name, event) for told in self.told)

    def listen(self, until: float) -> None:
        """Hear what the processes tell until that (monotonic) time.

        Raises:
            DemoFailed: One of them has failed.
        """
        while True:
            for name, child in list(self._children.items()):
                code = child.popen.poll()  # first: what it told before it ended is heard then
                self._hear(name, child)
                if code is not None:
                    del self._children[name]
                    child.end()
                    if code != 0:
                        self._fail(name, f"ended with exit code {code}")
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _LISTEN_EVERY))

    def wait_for(self, happened: Callable[[], bool], what: str) -> None:
        """Listen until something has happened."""
        deadline = time.monotonic() + _PATIENCE
        while not happened():
            if time.monotonic() > deadline:
                raise DemoFailed(f"waited {_PATIENCE:g} s in vain for {what}")
            self.listen(until=time.monotonic() + _LISTEN_EVERY)

    def _hear(self, name: str, child: _Child) -> None:
        for line in child.lines():
            try:
                facts = json.loads(line)
                self.told.append(Told(name, facts.pop("event"), facts.pop("time_ns"), facts))
            except (ValueError, AttributeError, KeyError):
                self._fail(name, f"told what cannot be read: {line[:80]!r}")

    def _fail(self, name: str, what: str) -> None:
        words = (self._logs / f"{name}.log").read_text(errors="replace").strip()
        raise DemoFailed(f"{name} {what}", hint=words[-_LOG_SHOWN:] or None)

    def close(self) -> None:
        """End every process that still runs, at once."""
        for child in self._children.values():
            child.end()
        self._children.clear()

    def __repr__(self) -> str:
        return f"<Stage {sorted(self._children)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
