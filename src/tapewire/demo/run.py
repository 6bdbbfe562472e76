"""Runs the demo: starts the processes, kills four of them, starts those again, ends the session.

A driver for one show, not a supervisor: in production something like systemd does this (`deploy/`).
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

from tapewire.demo.audit import Books, audit
from tapewire.demo.books import snapshots_of
from tapewire.demo.places import Places
from tapewire.demo.process import Settings
from tapewire.demo.stage import DemoFailed, Stage, Told
from tapewire.demo.strategy import STRATEGIES
from tapewire.queue import status

__all__ = ["Kill", "Options", "Restart", "Story", "audited", "perform", "plan_kills", "scratch"]

_TRADERS = ("exchange", "router", *STRATEGIES)  # through whom the orders go


@dataclass(frozen=True)
class Options:
    """How to run: what `tapewire demo` takes."""

    seconds: float = 20.0  # of the session; starting and ending come on top
    seed: int = 7
    rate: float = 1_500.0  # of the crowd's orders
    capture: str | None = None


@dataclass(frozen=True)
class Kill:
    """Who is killed when, and when it is started again; seconds into the session."""

    victim: str
    at: float
    back: float


def plan_kills(seed: int, seconds: float) -> list[Kill]:
    """One of the strategies, the router and the exchange, in any order; later the snapshotter.

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
    times.append(choose.uniform(0.55, 0.8))  # the late joiner has come by then
    kills = []
    for victim, time_in in zip(victims, times, strict=True):
        at = seconds * time_in
        kills.append(Kill(victim, at, at + min(0.05 * seconds, 0.5) * choose.uniform(0.5, 1.5)))
    return kills


@dataclass(frozen=True)
class Restart:
    """A kill as it went."""

    victim: str
    killed_ns: int
    started_ns: int
    recovered_ns: int
    facts: dict[str, Any]  # what the process told of its recovery

    @property
    def holds_orders_up(self) -> bool:
        """Whether orders had to wait for it."""
        return self.victim != "snapshotter"


@dataclass
class Story:
    """What happened, for those who check and show it."""

    options: Options
    began_ns: int = 0
    closed_ns: int = 0
    told: list[Told] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)

    def last(self, process: str, event: str) -> Told:
        """The last line of that kind; there must be one."""
        for told in reversed(self.told):
            if (told.process, told.event) == (process, event):
                return told
        raise DemoFailed(f"{process} never told of {event!r}")


@contextlib.contextmanager
def scratch(keep: bool = False) -> Iterator[Path]:
    """A folder for the bus, in memory where there is room; removed afterwards unless kept."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    roomy = usable and shutil.disk_usage(memory).free > 512 << 20
    root = Path(tempfile.mkdtemp(prefix="tapewire-demo-", dir=memory if roomy else None))
    try:
        yield root
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)


def perform(root: Path, options: Options, say: Callable[[str], None] = lambda text: None) -> Story:
    """Run a whole session on the bus below `root`; every process has ended when this returns.

    Raises:
        DemoFailed: A process failed, or did not do in time what it should.
    """
    with Stage(root / "logs") as stage:
        return _Play(root, options, stage, say).play()


class _Play:
    """One session, as a timetable of starts and kills."""

    def __init__(
        self, root: Path, options: Options, stage: Stage, say: Callable[[str], None]
    ) -> None:
        self._root = root
        self._places = Places(root)
        self._stage = stage
        self._say = say
        self._story = Story(options, told=stage.told)
        self._killed_ns: dict[str, int] = {}
        self._started_ns: dict[str, int] = {}
        self._snapshot_before = -1  # the latest when the snapshotter was started again

    def play(self) -> Story:
        story, stage = self._story, self._stage
        self._say("an exchange, a router and two strategies start, each a process of its own")
        for name in _TRADERS:
            self._start(name)
        for name in _TRADERS:
            self._wait_for_event(name, "started")
        self._start("snapshotter")
        self._start("archiver")
        story.began_ns = time.time_ns()
        began = time.monotonic()
        for at, act, name in self._timetable():
            stage.listen(until=began + at)
            act(name)
        stage.listen(until=began + story.options.seconds)
        for victim in self._killed_ns:
            self._wait_for_recovery(victim)
        self._close_session()
        story.restarts = [self._restart(victim) for victim in self._killed_ns]
        return story

    def _timetable(self) -> list[tuple[float, Callable[[str], None], str]]:
        options = self._story.options
        kills = plan_kills(options.seed, options.seconds)
        table: list[tuple[float, Callable[[str], None], str]] = [
            (options.seconds / 2, self._join, "joiner"),
            *((kill.at, self._kill, kill.victim) for kill in kills),
            *((kill.back, self._start, kill.victim) for kill in kills),
        ]
        return sorted(table, key=lambda row: row[0])

    def _start(self, name: str) -> None:
        options = self._story.options
        settings = Settings(
            name, str(self._root), os.getpid(), options.seed, options.rate, options.capture
        )
        if name == "snapshotter":
            self._snapshot_before = self._latest_snapshot()
        module = f"tapewire.demo.{'strategy' if name in STRATEGIES else name}"
        pid = self._stage.start(name, module, settings.to_json())
        self._started_ns[name] = time.time_ns()
        self._say(f"{name} is process {pid}" + (", again" if name in self._killed_ns else ""))

    def _join(self, name: str) -> None:
        """The joiner comes late enough to find a snapshot, however slow the machine is.

        That of record 0 is of a market that just opens: no way to show anything.
        """
        self._stage.wait_for(lambda: self._latest_snapshot() > 0, "a snapshot")
        self._start(name)

    def _latest_snapshot(self) -> int:
        return max((s.seq for s in snapshots_of(self._places.raw)), default=-1)

    def _kill(self, name: str) -> None:
        self._killed_ns[name] = time.time_ns()
        self._say(f"kill -9 {self._stage.kill(name)}: {name} is dead")

    def _wait_for_event(self, name: str, event: str) -> None:
        self._stage.wait_for(lambda: self._stage.count(name, event) > 0, f"{name} to have {event}")

    def _wait_for_recovery(self, victim: str) -> None:
        if victim != "snapshotter":
            self._wait_for_event(victim, "recovered")
            return
        # It tells nothing, but what it does can be seen.
        before = self._snapshot_before
        self._stage.wait_for(lambda: self._latest_snapshot() > before, "the next snapshot")

    def _restart(self, victim: str) -> Restart:
        killed, started = self._killed_ns[victim], self._started_ns[victim]
        if victim != "snapshotter":
            told = self._story.last(victim, "recovered")
            return Restart(victim, killed, started, told.time_ns, told.facts)
        newer = [s for s in snapshots_of(self._places.raw) if s.seq > self._snapshot_before]
        first = min(newer, key=lambda snapshot: snapshot.seq)
        recovered = first.path.stat().st_mtime_ns
        facts = {"before": self._snapshot_before, "snapshot": first.seq}
        return Restart(victim, killed, started, recovered, facts)

    def _close_session(self) -> None:
        self._say("the session closes: what is in flight is answered, then all processes end")
        self._story.closed_ns = time.time_ns()
        self._places.close_session.touch(mode=0o600)
        stage = self._stage
        for name in (*STRATEGIES, "joiner"):
            stage.wait_for(lambda name=name: not stage.runs(name), f"{name} to end")  # type: ignore[misc]
        for name in ("router", "exchange", "snapshotter", "archiver"):
            if name == "archiver":
                stage.wait_for(self._all_is_archived, "the archive to be complete")
            stage.terminate(name)
            stage.wait_for(lambda name=name: not stage.runs(name), f"{name} to end")  # type: ignore[misc]

    def _all_is_archived(self) -> bool:
        """Committed is what is on disk: it may not have seen the last of the exchange yet."""
        readers = status(self._places.raw).readers
        return any(one.name == "archive-tap" and one.lag_records == 0 for one in readers)


def audited(root: Path, story: Story) -> Books:
    """Audit the bus of a session, with the books that exchange and joiner told of.

    Raises:
        Disagreement: Something was lost, repeated or made up.
    """
    stopped, closed = story.last("exchange", "stopped"), story.last("joiner", "closed")
    joined = story.last("joiner", "joined").facts
    told = {"exchange": stopped.facts["hash"], "late joiner": closed.facts["hash"]}
    return audit(Places(root), told=told, joined=(joined["seq"], joined["hash"]))
