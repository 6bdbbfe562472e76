"""A group of child processes: starts and kills them, receives their events, ends all on exit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn, Self

from tapewire.errors import TapewireError

__all__ = ["DemoFailed", "ProcessEvent", "ProcessGroup"]

_TIMEOUT_SECONDS = 30.0  # for anything that should take far less
_LISTEN_SECONDS = 0.01
_LOG_SHOWN = 2_000  # characters from the end of a failed process's log


class DemoFailed(TapewireError):
    """A process of the demo failed, or did not do in time what it should."""


@dataclass(frozen=True)
class ProcessEvent:
    """A line that a process has reported about itself."""

    process: str
    event: str
    time_ns: int
    facts: dict[str, Any]


class _Child:
    """A running process, and the incomplete line that it may have written."""

    def __init__(self, module: str, argument: str, log: IO[str]) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", module, argument],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches only the driver, which ends all of them
        )
        assert self.popen.stdout is not None
        self._out = self.popen.stdout
        os.set_blocking(self._out.fileno(), False)
        self._rest = b""

    def lines(self) -> list[bytes]:
        """Complete lines since the last call."""
        *lines, self._rest = (self._rest + (self._out.read() or b"")).split(b"\n")
        return lines

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait()
        self._out.close()


class ProcessGroup:
    """Processes by name. `logs` is a directory for their standard error."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._logs.mkdir(mode=0o700, parents=True)
        self._children: dict[str, _Child] = {}
        self.events: list[ProcessEvent] = []

    def start(self, name: str, module: str, argument: str) -> int:
        """Start a process and return its pid."""
        with (self._logs / f"{name}.log").open("a") as log:
            self._children[name] = child = _Child(module, argument, log)
        return child.popen.pid

    def kill(self, name: str) -> int:
        """Kill a process with SIGKILL and return its pid."""
        child = self._children.pop(name)
        child.popen.kill()
        child.popen.wait()
        self._receive(name, child)
        child.end()
        return child.popen.pid

    def terminate(self, name: str) -> None:
        """Send SIGTERM to a process."""
        self._children[name].popen.terminate()

    def runs(self, name: str) -> bool:
        """Whether a process is running."""
        return name in self._children

    def count(self, name: str, event: str) -> int:
        """How often a process has reported this event."""
        return sum((found.process, found.event) == (name, event) for found in self.events)

    def listen(self, until: float) -> None:
        """Receive the events of the processes until this monotonic time.

        Raises:
            DemoFailed: A process has failed.
        """
        while True:
            for name, child in list(self._children.items()):
                code = child.popen.poll()  # before reading, so that its last events are read too
                self._receive(name, child)
                if code is not None:
                    del self._children[name]
                    child.end()
                    if code != 0:
                        self._fail(name, f"ended with exit code {code}")
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _LISTEN_SECONDS))

    def wait_for(self, happened: Callable[[], bool], what: str) -> None:
        """Listen until `happened` returns true.

        Raises:
            DemoFailed: A process has failed, or the timeout has passed.
        """
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while not happened():
            if time.monotonic() > deadline:
                raise DemoFailed(f"waited {_TIMEOUT_SECONDS:g} s in vain for {what}")
            self.listen(until=time.monotonic() + _LISTEN_SECONDS)

    def _receive(self, name: str, child: _Child) -> None:
        for line in child.lines():
            try:
                facts = json.loads(line)
                event, time_ns = facts.pop("event"), facts.pop("time_ns")
            except (ValueError, AttributeError, KeyError):
                self._fail(name, f"reported an invalid line: {line[:80]!r}")
            self.events.append(ProcessEvent(name, event, time_ns, facts))

    def _fail(self, name: str, what: str) -> NoReturn:
        log = (self._logs / f"{name}.log").read_text(errors="replace").strip()
        raise DemoFailed(f"{name} {what}", hint=log[-_LOG_SHOWN:] or None)

    def close(self) -> None:
        """Kill every process that is still running."""
        for child in self._children.values():
            child.end()
        self._children.clear()

    def __repr__(self) -> str:
        return f"<ProcessGroup {sorted(self._children)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
