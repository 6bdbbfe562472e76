"""How a subscriber finds its queue, and learns that its writer went and came back.

Signals only: what a lost feed means (cancel all, flatten, wait) is for the trading system to say.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tapewire.bus.alarm import Alarm
from tapewire.bus.markers import is_ready
from tapewire.bus.names import check_name
from tapewire.bus.registration import name_is_held
from tapewire.config import BusySpin, Seq, Sleep, SpinThenPark, Time, check_at_least
from tapewire.errors import ClosedHandle, MappingLost, ReaderAlreadyActive, SegmentMissing
from tapewire.queue import DisconnectReason, Reader, open_reader, open_subscriber

__all__ = ["Connected", "Disconnected", "SubscriberDiscovery", "Waiting"]


@dataclass(frozen=True)
class Connected:
    """The queue is there and its writer lives; `reader` is open."""

    reader: Reader


@dataclass(frozen=True)
class Disconnected:
    """The writer went. The reader stays open: read what is left, and wait for `Connected`."""

    reason: DisconnectReason


@dataclass(frozen=True)
class Waiting:
    """Not connected, or no more; `reason` says what is missing, for people."""

    reason: str = ""


class SubscriberDiscovery:
    """Opens a reader as soon as its queue has a living writer, and watches that writer.

    `poll` returns `Connected` and `Disconnected` once, when it happens, `Waiting` as long as there
    is nothing to read from, and None while a connection lasts. A writer that comes back to the same
    queue is `Connected` with the reader that was open all the time, after a `Disconnected` even
    where it went and came between two polls; when another queue lies in its place, the old reader
    is closed and `Connected` brings a new one. A reader that you closed yourself is opened again,
    after what it committed.

    `poll` does not block and starts no thread. (One case costs 100 ms: another process takes the
    name between looking and opening.) It looks through a second, anonymous reader, so the
    thread that polls need not be the one that reads.

    Args:
        path: The queue's folder.
        name: The reader's name. Held by another process: `Waiting`, until that gives it up.
        ttl: The writer is gone when its heartbeat has not changed for so many seconds.
        ready_only: Open the queue only when it holds READY, too.
        interval: How often ``async for`` polls, in seconds.
        start: As for `tapewire.open_subscriber`, for the first opening; later ones resume.
        wait: As for `tapewire.open_subscriber`.
        types: As for `tapewire.open_subscriber`.
        pinned: As for `tapewire.open_subscriber`.

    Example:
        >>> import tapewire as tw
        >>> from tapewire import bus
        >>> with bus.SubscriberDiscovery(tmp / "md", "strategy_a") as discovery:
        ...     discovery.poll()
        ...     with tw.open_publisher(tmp / "md", segment_bytes=65536) as writer:
        ...         _ = writer.append(1, b"hello")
        ...         event = discovery.poll()
        ...         bytes(event.reader.next().payload), discovery.poll()
        ...     discovery.poll()
        ...     discovery.poll()
        Waiting(reason='there is no queue')
        (b'hello', None)
        Disconnected(reason=<DisconnectReason.LOCK_LOST: 'lock_lost'>)
        Waiting(reason='the writer went: lock_lost')
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str,
        *,
        ttl: float = 1.0,
        ready_only: bool = False,
        interval: float = 0.1,
        start: str | Seq | Time = "resume",
        wait: BusySpin | SpinThenPark | Sleep = SpinThenPark(),  # noqa: B008 - an immutable value
        types: Iterable[int] | None = None,
        pinned: bool = False,
    ) -> None:
        check_at_least("ttl", ttl, 0)
        check_at_least("interval", interval, 0.001)
        self.path = Path(path)
        self.name = check_name("name", name)
        self.ttl = ttl
        self.ready_only = ready_only
        self.interval = interval
        self.reader: Reader | None = None
        self.closed = False
        self._start: str | Seq | Time = start
        self._wait = wait
        self._types = None if types is None else tuple(types)
        self._pinned = pinned
        self._state: Connected | Disconnected | Waiting | None = None
        self._probe: Reader | None = None
        self._queue: _Identity | None = None  # which queue the probe looks at,
        self._reader_queue: _Identity | None = None  # and which one the reader reads
        self._epoch: int | None = None  # of the writer, when it was last seen alive
        self._alarm = Alarm()

    def poll(self) -> Connected | Disconnected | Waiting | None:
        """What is new, `Waiting` while nothing is there, None while a connection lasts."""
        event = self._change()
        if event is None and isinstance(self._state, Disconnected):
            return Waiting(f"the writer went: {self._state.reason.value}")
        return self._state if event is None and isinstance(self._state, Waiting) else event

    def _change(self) -> Connected | Disconnected | Waiting | None:
        """The new state, or None when it is the old one."""
        if self.closed:
            raise ClosedHandle("the discovery is closed", path=os.fspath(self.path))
        state = self._look()
        if state == self._state:
            return None
        self._state = state
        return state

    async def __aiter__(self) -> AsyncGenerator[Connected | Disconnected | Waiting, None]:
        """Changes as they come; ends when the discovery is closed, by the loop's own thread."""
        while not self.closed:
            event = self._change()
            if event is not None:
                yield event
            await self._alarm.wait(None, self.interval)

    def close(self, *, forget: bool = False) -> None:
        """Close the reader, too; `forget=True` removes its meta file. Closing twice is fine."""
        self.closed = True
        self._alarm.ring()
        self._drop_probe()
        if self.reader is not None:
            self.reader.close(forget=forget)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self._state}"
        return f"<SubscriberDiscovery {os.fspath(self.path)!r} name={self.name!r} {state}>"

    def _look(self) -> Connected | Disconnected | Waiting:
        queue = _identity(self.path)
        if self._probe is not None and queue != self._queue:
            self._drop_probe()
            return self._gone(DisconnectReason.SEGMENT_MISSING, "there was another queue")
        if queue is None:
            return self._gone(DisconnectReason.SEGMENT_MISSING, "there is no queue")
        reason = self._writer_gone(queue)
        if reason is None and self._writer_is_another():
            reason = DisconnectReason.LOCK_LOST  # and is back: the next look connects
        if reason is not None:
            return self._gone(reason, "the queue has no living writer")
        if self.reader is None or self.reader.closed or self._reader_queue != queue:
            return self._open(queue)
        return Connected(self.reader)

    def _gone(self, reason: DisconnectReason, missing: str) -> Disconnected | Waiting:
        return Waiting(missing) if self.reader is None else Disconnected(reason)

    def _writer_gone(self, queue: _Identity) -> DisconnectReason | None:
        # Twice: the probe stands where it was opened, and retention may have taken that segment.
        for _ in range(2):
            try:
                if self._probe is None:
                    self._probe = open_reader(self.path)
                    self._probe.seek_end()
                    self._queue = queue
                reason = self._probe.detect_disconnect(self.ttl)
            except (FileNotFoundError, MappingLost, SegmentMissing):
                reason = DisconnectReason.SEGMENT_MISSING
            if reason is not DisconnectReason.SEGMENT_MISSING:
                return reason
            self._drop_probe()
        return DisconnectReason.SEGMENT_MISSING

    def _writer_is_another(self) -> bool:
        """Whether the writer of the connection went and one came between two looks."""
        assert self._probe is not None
        before, self._epoch = self._epoch, self._probe.writer_status(self.ttl).epoch
        return isinstance(self._state, Connected) and before != self._epoch

    def _open(self, queue: _Identity) -> Connected | Disconnected | Waiting:
        if self.ready_only and not is_ready(self.path):
            return Waiting("the queue is not READY")
        if self.reader is not None:
            self.reader.close()
        held = Waiting(f"another reader holds the name {self.name!r}")
        if name_is_held(self.path, self.name):  # opening would try for 100 ms
            return held
        try:
            self.reader = open_subscriber(
                self.path,
                self.name,
                start=self._start,
                wait=self._wait,
                types=self._types,
                pinned=self._pinned,
            )
        except ReaderAlreadyActive:  # taken since we looked
            return held
        except FileNotFoundError:  # removed since we looked
            return self._gone(DisconnectReason.SEGMENT_MISSING, "there is no queue")
        self._start = "resume"
        self._reader_queue = queue
        return Connected(self.reader)

    def _drop_probe(self) -> None:
        probe, self._probe, self._queue = self._probe, None, None
        if probe is not None:
            probe.close()


# Device and number of control.meta. Mapped by the probe, the file keeps its number as long as that
# is open: a queue made in its place has another.
_Identity = tuple[int, int]


def _identity(queue: Path) -> _Identity | None:
    try:
        found = os.lstat(queue / "control.meta")  # comes last when a queue is made
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
