"""Runs the demo: starts the processes, kills four of them, restarts these, ends the session.

It is not a supervisor: in production, use something like systemd (`deploy/`).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tapewire.demo.audit import AuditResult, audit
from tapewire.demo.books import snapshots_of
from tapewire.demo.paths import DemoPaths
from tapewire.demo.process import Settings
from tapewire.demo.process_group import DemoFailed, ProcessEvent, ProcessGroup
from tapewire.demo.strategy import STRATEGIES
from tapewire.queue import status

__all__ = [
    "Kill",
    "Options",
    "Restart",
    "SessionHistory",
    "audit_session",
    "plan_kills",
    "run_session",
    "scratch",
]

_TRADERS = ("exchange", "router", *STRATEGIES)  # the processes that orders pass through
_MODULES = {"joiner": "late_joiner"} | dict.fromkeys(STRATEGIES, "strategy")


@dataclass(frozen=True)
class Options:
    """The options of `tapewire demo`."""

    seconds: float = 20.0  # duration of the session, without start and end
    seed: int = 7
    rate: float = 1_500.0  # inputs of the participants, per second
    capture: str | None = None


@dataclass(frozen=True)
class Kill:
    """When a process is killed and started again, in seconds into the session."""

    victim: str
    at: float
    back: float


def plan_kills(seed: int, seconds: float) -> list[Kill]:
    """One of the strategies, the router and the exchange, in random order; then the snapshotter.

    Example:
        >>> sorted(kill.victim in STRATEGIES for kill in plan_kills(7, 20.0))
        [False, False, False, True]
        >>> all(0 < kill.at < kill.back < 20.0 for kill in plan_kills(7, 20.0))
        True
    """
    choose = random.Random(seed)
    victims = [choose.choice(sorted(STRATEGIES)), "router", "exchange"]
    choose.shuffle(victims)
    times = [0.15 + 0.22 * number + choose.uniform(0, 0.2) for number in range(len(victims))]
    victims.append("snapshotter")
    times.append(choose.uniform(0.55, 0.8))  # after the late joiner has started
    kills = []
    for victim, time_in in zip(victims, times, strict=True):
        at = seconds * time_in
        kills.append(Kill(victim, at, at + min(0.05 * seconds, 0.5) * choose.uniform(0.5, 1.5)))
    return kills


@dataclass(frozen=True)
class Restart:
    """A kill and the recovery from it."""

    victim: str
    killed_ns: int
    started_ns: int
    recovered_ns: int
    facts: dict[str, Any]  # what the process reported about its recovery

    @property
    def delays_orders(self) -> bool:
        """Whether orders had to wait for it."""
        return self.victim != "snapshotter"


@dataclass
class SessionHistory:
    """What happened in a session, as the processes reported it."""

    options: Options
    began_ns: int = 0
    closed_ns: int = 0
    events: list[ProcessEvent] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)

    def last(self, process: str, event: str) -> ProcessEvent:
        """The last event of this name that a process reported.

        Raises:
            DemoFailed: There is none.
        """
        for found in reversed(self.events):
            if (found.process, found.event) == (process, event):
                return found
        raise DemoFailed(f"{process} did not report the event {event!r}")


@contextlib.contextmanager
def scratch(keep: bool = False) -> Iterator[Path]:
    """A directory for the bus, in memory if there is space; removed afterwards unless `keep`."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    fits = usable and shutil.disk_usage(memory).free > 512 << 20
    root = Path(tempfile.mkdtemp(prefix="tapewire-demo-", dir=memory if fits else None))
    try:
        yield root
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)


def run_session(
    root: Path, options: Options, say: Callable[[str], None] = lambda text: None
) -> SessionHistory:
    """Run a session on the bus below `root`; every process has ended when this returns.

    Raises:
        DemoFailed: A process failed, or did not do in time what it should.
    """
    with ProcessGroup(root / "logs") as processes:
        return _SessionRun(root, options, processes, say).run()


class _SessionRun:
    """One session: a timetable of starts and kills."""

    def __init__(
        self, root: Path, options: Options, processes: ProcessGroup, say: Callable[[str], None]
    ) -> None:
        self._root = root
        self._paths = DemoPaths(root)
        self._processes = processes
        self._say = say
        self._history = SessionHistory(options, events=processes.events)
        self._killed_ns: dict[str, int] = {}
        self._started_ns: dict[str, int] = {}
        self._snapshot_before = -1  # the latest when the snapshotter was restarted

    def run(self) -> SessionHistory:
        history, processes = self._history, self._processes
        self._say("starting an exchange, a router and two strategies as separate processes")
        for name in _TRADERS:
            self._start(name)
        for name in _TRADERS:
            self._wait_for_event(name, "started")
        self._start("snapshotter")
        self._start("archiver")
        history.began_ns = time.time_ns()
        began = time.monotonic()
        for at, act, name in self._timetable():
            processes.listen(until=began + at)
            act(name)
        processes.listen(until=began + history.options.seconds)
        for victim in self._killed_ns:
            self._wait_for_recovery(victim)
        self._close_session()
        history.restarts = [self._restart(victim) for victim in self._killed_ns]
        return history

    def _timetable(self) -> list[tuple[float, Callable[[str], None], str]]:
        options = self._history.options
        kills = plan_kills(options.seed, options.seconds)
        table: list[tuple[float, Callable[[str], None], str]] = [
            (options.seconds / 2, self._join, "joiner"),
            *((kill.at, self._kill, kill.victim) for kill in kills),
            *((kill.back, self._start, kill.victim) for kill in kills),
        ]
        return sorted(table, key=lambda row: row[0])

    def _start(self, name: str) -> None:
        options = self._history.options
        settings = Settings(
            name, str(self._root), os.getpid(), options.seed, options.rate, options.capture
        )
        if name == "snapshotter":
            self._snapshot_before = self._latest_snapshot()
        module = f"tapewire.demo.{_MODULES.get(name, name)}"
        pid = self._processes.start(name, module, settings.to_json())
        self._started_ns[name] = time.time_ns()
        self._say(f"{'restarted' if name in self._killed_ns else 'started'} {name}, pid {pid}")

    def _join(self, name: str) -> None:
        """Start the late joiner when there is a snapshot, however slow the machine is.

        A snapshot of record 0 does not count: it is of a market that has just opened.
        """
        self._processes.wait_for(lambda: self._latest_snapshot() > 0, "a snapshot")
        self._start(name)

    def _latest_snapshot(self) -> int:
        return max((s.seq for s in snapshots_of(self._paths.raw)), default=-1)

    def _kill(self, name: str) -> None:
        self._killed_ns[name] = time.time_ns()
        self._say(f"killed {name}: kill -9 {self._processes.kill(name)}")

    def _wait_for_event(self, name: str, event: str) -> None:
        processes = self._processes
        processes.wait_for(lambda: processes.count(name, event) > 0, f"{name} to have {event}")

    def _wait_for_recovery(self, victim: str) -> None:
        if victim != "snapshotter":
            self._wait_for_event(victim, "recovered")
            return
        # The snapshotter reports no events; its snapshots show that it works.
        before = self._snapshot_before
        self._processes.wait_for(lambda: self._latest_snapshot() > before, "the next snapshot")

    def _restart(self, victim: str) -> Restart:
        killed, started = self._killed_ns[victim], self._started_ns[victim]
        if victim != "snapshotter":
            found = self._history.last(victim, "recovered")
            return Restart(victim, killed, started, found.time_ns, found.facts)
        newer = [s for s in snapshots_of(self._paths.raw) if s.seq > self._snapshot_before]
        first = min(newer, key=lambda snapshot: snapshot.seq)
        recovered = first.path.stat().st_mtime_ns
        facts = {"before": self._snapshot_before, "snapshot": first.seq}
        return Restart(victim, killed, started, recovered, facts)

    def _close_session(self) -> None:
        self._say("closing the session: open orders are answered, then all processes end")
        self._history.closed_ns = time.time_ns()
        self._paths.close_session.touch(mode=0o600)
        processes = self._processes
        for name in (*STRATEGIES, "joiner"):
            processes.wait_for(lambda name=name: not processes.runs(name), f"{name} to end")  # type: ignore[misc]
        for name in ("router", "exchange", "snapshotter", "archiver"):
            if name == "archiver":
                processes.wait_for(self._archive_is_complete, "the archive to be complete")
            processes.terminate(name)
            processes.wait_for(lambda name=name: not processes.runs(name), f"{name} to end")  # type: ignore[misc]

    def _archive_is_complete(self) -> bool:
        """Whether the tap has committed, and so made durable, the last market data."""
        readers = status(self._paths.raw).readers
        return any(one.name == "archive-tap" and one.lag_records == 0 for one in readers)


def audit_session(root: Path, history: SessionHistory) -> AuditResult:
    """Audit the bus of a session, with the books that the exchange and the joiner reported.

    Raises:
        Disagreement: A record is missing, duplicated or unexplained.
    """
    stopped, closed = history.last("exchange", "stopped"), history.last("joiner", "closed")
    joined = history.last("joiner", "joined").facts
    reported = {"exchange": stopped.facts["hash"], "late joiner": closed.facts["hash"]}
    return audit(DemoPaths(root), reported=reported, joined=(joined["seq"], joined["hash"]))
