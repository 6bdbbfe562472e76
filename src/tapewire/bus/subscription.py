"""How a subscriber finds its queue, and detects that the writer ended or came back.

It only reports: the trading system decides what a lost feed means (cancel all, flatten, wait).
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
    """The queue exists and its writer is alive; `reader` is open."""

    reader: Reader


@dataclass(frozen=True)
class Disconnected:
    """The writer ended. The reader stays open: read the rest and wait for `Connected`."""

    reason: DisconnectReason


@dataclass(frozen=True)
class Waiting:
    """Not connected, or no longer; `reason` describes what is missing, for people."""

    reason: str = ""


class SubscriberDiscovery:
    """Opens a reader as soon as its queue has a live writer, and watches the writer.

    `poll` returns `Connected` and `Disconnected` once when they happen, `Waiting` while there is no
    connection, and None while a connection lasts. If a writer reopens the queue, `Disconnected` and
    then `Connected` with the same reader are returned, even if this happened between two polls. If
    the queue was replaced by another, the old reader is closed and `Connected` has a new one. A
    reader that you closed is opened again after its last commit.

    `poll` does not block and starts no thread. (In one case it takes 100 ms: if another process
    takes the name between the check and the open.) It uses a second, anonymous reader, so the
    thread that polls need not be the one that reads.

    Args:
        path: Directory of the queue.
        name: Name of the reader. `Waiting` is returned while another process has it.
        ttl: Seconds without a new heartbeat after which the writer counts as ended.
        ready_only: Open the queue only if it contains READY.
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
        Waiting(reason='no queue')
        (b'hello', None)
        Disconnected(reason=<DisconnectReason.LOCK_LOST: 'lock_lost'>)
        Waiting(reason='the writer ended: lock_lost')
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
        self._queue: _Identity | None = None  # the queue of the probe
        self._reader_queue: _Identity | None = None  # the queue of the reader
        self._epoch: int | None = None  # of the writer, when it was last seen alive
        self._alarm = Alarm()

    def poll(self) -> Connected | Disconnected | Waiting | None:
        """Return a change, `Waiting` without a connection, None while a connection lasts."""
        event = self._change()
        if event is None and isinstance(self._state, Disconnected):
            return Waiting(f"the writer ended: {self._state.reason.value}")
        return self._state if event is None and isinstance(self._state, Waiting) else event

    def _change(self) -> Connected | Disconnected | Waiting | None:
        """Return the new state, or None if it has not changed."""
        if self.closed:
            raise ClosedHandle("the discovery is closed", path=os.fspath(self.path))
        state = self._check()
        if state == self._state:
            return None
        self._state = state
        return state

    async def __aiter__(self) -> AsyncGenerator[Connected | Disconnected | Waiting, None]:
        """Yield changes; end when the discovery is closed, in the thread of the event loop."""
        while not self.closed:
            event = self._change()
            if event is not None:
                yield event
            await self._alarm.wait(None, self.interval)

    def close(self, *, forget: bool = False) -> None:
        """Close the reader, too; `forget=True` removes its meta file. Can be called again."""
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

    def _check(self) -> Connected | Disconnected | Waiting:
        queue = _identity(self.path)
        if self._probe is not None and queue != self._queue:
            self._drop_probe()
            return self._gone(DisconnectReason.SEGMENT_MISSING, "the queue was replaced")
        if queue is None:
            return self._gone(DisconnectReason.SEGMENT_MISSING, "no queue")
        reason = self._writer_gone(queue)
        if reason is None and self._has_new_writer():
            reason = DisconnectReason.LOCK_LOST  # the next check connects to the new writer
        if reason is not None:
            return self._gone(reason, "the queue has no live writer")
        if self.reader is None or self.reader.closed or self._reader_queue != queue:
            return self._open(queue)
        return Connected(self.reader)

    def _gone(self, reason: DisconnectReason, missing: str) -> Disconnected | Waiting:
        return Waiting(missing) if self.reader is None else Disconnected(reason)

    def _writer_gone(self, queue: _Identity) -> DisconnectReason | None:
        # Retry once: retention may have removed the segment at which the probe was opened.
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

    def _has_new_writer(self) -> bool:
        """Whether another writer has opened the queue between two checks."""
        assert self._probe is not None
        before, self._epoch = self._epoch, self._probe.writer_status(self.ttl).epoch
        return isinstance(self._state, Connected) and before != self._epoch

    def _open(self, queue: _Identity) -> Connected | Disconnected | Waiting:
        if self.ready_only and not is_ready(self.path):
            return Waiting("the queue is not READY")
        if self.reader is not None:
            self.reader.close()
        held = Waiting(f"another reader has the name {self.name!r}")
        if name_is_held(self.path, self.name):  # opening would retry for 100 ms
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
        except ReaderAlreadyActive:  # opened by another process since the check
            return held
        except FileNotFoundError:  # removed since the check
            return self._gone(DisconnectReason.SEGMENT_MISSING, "no queue")
        self._start = "resume"
        self._reader_queue = queue
        return Connected(self.reader)

    def _drop_probe(self) -> None:
        probe, self._probe, self._queue = self._probe, None, None
        if probe is not None:
            probe.close()


# Device and inode number of control.meta. The probe maps the file, so its number is not reused
# while the probe is open: a queue created in its place has another one.
_Identity = tuple[int, int]


def _identity(queue: Path) -> _Identity | None:
    try:
        found = os.lstat(queue / "control.meta")  # created last when a queue is created
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
