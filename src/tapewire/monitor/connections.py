"""The connections of a server: what each may take, and which one gives way to a new one.

A client costs a thread and a socket, so there is a limit to them, and slow clients must not use it
up. The time of a request head and of each part of an answer is limited. When there is no place for
a new client, the one that has kept its thread waiting longest is evicted. A client that sends its
request and takes its answer is never evicted.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import select
import socket
import struct
import termios
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["AnswerWriter", "Connection", "Connections", "HeadReader"]

MAX_CONNECTIONS = 256
MAX_STREAMS = 64  # answers that do not end, of the connections
HEAD_SECONDS = 5.0  # for all of a request head, from the connect or from the last answer
HEAD_BYTES = 65_536
STALLED_SECONDS = 10.0  # for a client to take _SLICE_BYTES
GRACE_SECONDS = 0.25  # in which a client that has a place can send its request
STUCK_SECONDS = 0.5  # without progress, after which a client may be evicted
PROBE_SECONDS = 2.0  # for a new stream to find one that is stuck
PROBE_EVERY_SECONDS = 1.0  # when the last probe found none

_SLICE_BYTES = 65_536
_STREAM_BUFFER_BYTES = 65_536  # in the kernel: what a client does not take shows early
_PROBE_BYTES = 1 << 19  # of filler for a stream in a probe: more than most clients' kernels buffer
_LOOK_SECONDS = 0.02
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Connection:
    """One client: reading within a deadline, writing as fast as it takes."""

    def __init__(self, client: socket.socket) -> None:
        self._socket = client
        self._deadline = 0.0
        self._head_bytes = 0
        self._sending = threading.Lock()  # a piece of an answer, or filler between two pieces
        self._filler: bytes | None = None  # until a stream begins
        self._owed = b""  # what is missing of filler that was sent in part
        self._queued = 0  # bytes in the buffer, when last looked at
        self._looked_at = 0.0
        self.waiting_since: float | None = None  # for the client: to send a head, to take a part
        self.waits_for_head = True
        self.full_since: float | None = None  # as `look` found it
        self.evicted = False
        self.expect_head()

    def expect_head(self) -> None:
        """A request begins here, and with it the time that its head may take."""
        self.waits_for_head = True
        self.waiting_since = monotonic()
        self._deadline = self.waiting_since + HEAD_SECONDS
        self._head_bytes = 0

    def begin_answer(self) -> None:
        """The head is complete."""
        self.waits_for_head = False
        self.waiting_since = None

    def begin_stream(self, filler: bytes) -> None:
        """An answer without end follows; between its pieces `filler` means nothing to the client.

        Without filler a client that does not read shows only when the buffers of both kernels are
        full, which may take hours.
        """
        with self._sending:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _STREAM_BUFFER_BYTES)
            self._filler = filler

    @property
    def may_go_at(self) -> float | None:
        """When this one may be evicted for a new connection; None: not as things are."""
        since = self.waiting_since
        if since is None:
            return None
        return since + (GRACE_SECONDS if self.waits_for_head else STUCK_SECONDS)

    def receive(self, buffer: Buffer) -> int:
        """Read a part of a head; `OSError` past its deadline or its size."""
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError(f"no complete request within {HEAD_SECONDS} s")
        if self._head_bytes >= HEAD_BYTES:
            raise ConnectionAbortedError(f"request head too large: max={HEAD_BYTES} bytes")
        self._socket.settimeout(left)
        count = self._socket.recv_into(buffer)
        self._head_bytes += count
        return count

    def send(self, data: Buffer) -> None:
        """Send a piece of an answer; `TimeoutError` when the client does not take it."""
        with self._sending:
            owed, self._owed = self._owed, b""
            for part in (owed, data):
                view = memoryview(part)
                for start in range(0, len(view), _SLICE_BYTES):
                    self._send_slice(view[start : start + _SLICE_BYTES])

    def _send_slice(self, part: memoryview) -> None:
        self.waiting_since = monotonic()
        self._socket.settimeout(STALLED_SECONDS)
        self._socket.sendall(part)  # the timeout is for all of it
        self.waiting_since = None

    @property
    def may_be_filled(self) -> bool:
        """Whether `fill` can send anything, now or as soon as the stream has begun."""
        return self._filler != b""

    def look(self, now: float) -> None:
        """Note since when the buffer is full and the client has taken nothing from it.

        Raises:
            OSError: The connection is broken.
        """
        queued = self._bytes_queued()
        if self._is_writable():
            self.full_since = None
        elif (
            self.full_since is None
            or queued < self._queued
            or now - self._looked_at > STUCK_SECONDS / 2  # it may have been empty meanwhile
        ):
            self.full_since = now
        self._queued, self._looked_at = queued, now

    def fill(self, most: int) -> int:
        """Send filler until the buffer is full, `most` bytes at most; how many. Never waits.

        Raises:
            OSError: The connection is broken.
        """
        if not self._filler or not self._sending.acquire(blocking=False):
            return 0
        sent = 0
        try:
            while sent < most and self._is_writable():
                pending = self._owed or self._filler
                # Not socket.send, which waits: with a timeout the descriptor itself does not block.
                count = os.write(self._socket.fileno(), pending)
                self._owed = pending[count:]
                sent += count
        except BlockingIOError:
            pass  # full
        finally:
            self._sending.release()
        self._queued = self._bytes_queued()
        return sent

    def evict(self) -> None:
        """Cut the connection; its thread notices at once if it waits for the client."""
        self.evicted = True
        with contextlib.suppress(OSError):  # the client may be gone by itself
            # Also forget what the client has not taken: the kernel would keep it for minutes.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._socket.shutdown(socket.SHUT_RDWR)

    def _bytes_queued(self) -> int:
        """Bytes that the client's kernel has not acknowledged."""
        found = fcntl.ioctl(self._socket, termios.TIOCOUTQ, b"\0\0\0\0")
        return int(struct.unpack("i", found)[0])

    def _is_writable(self) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT)
        events = sum(event for _, event in poll.poll(0))
        if events & (select.POLLERR | select.POLLHUP):
            raise ConnectionResetError("the client is gone")
        return bool(events & select.POLLOUT)


class HeadReader(io.RawIOBase):
    """Request heads of a connection, as a file."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def readable(self) -> bool:
        """As for any file."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """As for any file; `OSError` past the deadline."""
        return self._connection.receive(buffer)


class AnswerWriter(io.BufferedIOBase):
    """Answers of a connection, as a file without a buffer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def writable(self) -> bool:
        """As for any file."""
        return True

    def write(self, data: Buffer) -> int:
        """As for any file; `TimeoutError` when the client does not take it."""
        self._connection.send(data)
        return len(memoryview(data))


class Connections:
    """All connections of a server; they come from its listening thread, each goes to its own."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: dict[socket.socket, Connection] = {}
        self._streams: set[Connection] = set()
        self._taking = threading.Lock()
        self._next_probe = 0.0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def streams(self) -> int:
        """How many answers without end are being sent."""
        return len(self._streams)

    def of(self, client: socket.socket) -> Connection:
        """The connection of a socket that was admitted; `OSError` if it was evicted since."""
        with self._changed:
            found = self._open.get(client)
        if found is None:
            raise ConnectionAbortedError("evicted for a new connection")
        return found

    def admit(self, client: socket.socket) -> bool:
        """Take a new connection in, in place of the slowest if need be; False: all are busy.

        Waits until the slowest may be evicted. A connection may become idle meanwhile, so that is
        `GRACE_SECONDS` for one that does, and as long again for its own grace.
        """
        with self._changed:
            begun = monotonic()
            while len(self._open) >= MAX_CONNECTIONS:
                now = monotonic()
                going = [(at, each) for each in self._open.values() if (at := each.may_go_at)]
                at, slowest = min(going, key=lambda pair: pair[0], default=(now, None))
                give_up = begun + GRACE_SECONDS * (1 if slowest is None else 2)
                if slowest is not None and at <= now:
                    self._evict(slowest)
                elif now >= give_up:
                    return False
                else:
                    until = give_up if slowest is None else min(at, give_up)
                    # Not longer: a change from busy to idle is not notified.
                    self._changed.wait(min(until - now, _LOOK_SECONDS))
            self._open[client] = Connection(client)
            return True

    def drop(self, client: socket.socket) -> None:
        """Forget a connection. Call this before its socket is closed: its number is used again."""
        with self._changed:
            connection = self._open.pop(client, None)
            if connection is not None:
                self._streams.discard(connection)
            self._changed.notify_all()

    def take_stream(self, connection: Connection) -> bool:
        """Have a place for an answer without end, in place of a client that does not read.

        Returns:
            False when all places are taken by clients that read.
        """
        with self._taking:  # one at a time: the next one finds what this one has found
            if self._has_stream_place(connection):
                return True
            probe = _Probe(self._each_stream)
            give_up = monotonic() + PROBE_SECONDS
            may_probe = monotonic() >= self._next_probe
            while not connection.evicted:
                stuck = probe.look()
                if stuck is not None:
                    with self._changed:
                        self._evict(stuck)
                if self._has_stream_place(connection):
                    return True
                if not may_probe or probe.is_over or monotonic() >= give_up:
                    break
                probe.fill()
                with self._changed:
                    self._changed.wait(_LOOK_SECONDS)
            self._next_probe = monotonic() + PROBE_EVERY_SECONDS
            return False

    def release_stream(self, connection: Connection) -> None:
        """Give the place back."""
        with self._changed:
            self._streams.discard(connection)
            self._changed.notify_all()

    def _has_stream_place(self, connection: Connection) -> bool:
        with self._changed:
            if connection.evicted or len(self._streams) >= MAX_STREAMS:
                return False
            self._streams.add(connection)
            return True

    def _each_stream(self, visit: Callable[[Connection], None]) -> None:
        """Call `visit` with each stream while its socket cannot be closed by its thread."""
        for stream in list(self._streams):
            with self._changed:
                if stream not in self._streams:
                    continue
                try:
                    visit(stream)
                except OSError:  # the client is gone
                    self._evict(stream)

    def _evict(self, connection: Connection) -> None:
        if self._open.pop(connection._socket, None) is None:
            return
        self._streams.discard(connection)
        connection.evict()
        self._changed.notify_all()


class _Probe:
    """A search for streams that are not read, by filling the buffers of all.

    A client that reads takes what was sent within milliseconds. Of one that does not, the buffers
    stay full.
    """

    def __init__(self, each_stream: Callable[[Callable[[Connection], None]], None]) -> None:
        self._each_stream = each_stream
        self._sent: dict[Connection, int] = {}
        self.is_over = False  # when all streams have taken what was sent

    def look(self) -> Connection | None:
        """The stream that has been stuck longest, if any is for `STUCK_SECONDS`."""
        now = monotonic()
        stuck: list[tuple[float, Connection]] = []
        undecided: list[Connection] = []

        def visit(stream: Connection) -> None:
            stream.look(now)
            if stream.full_since is not None and now - stream.full_since >= STUCK_SECONDS:
                stuck.append((stream.full_since, stream))
            if stream.full_since is not None or (
                stream.may_be_filled and self._sent.get(stream, 0) < _PROBE_BYTES
            ):
                undecided.append(stream)

        self._each_stream(visit)
        self.is_over = not undecided
        return min(stuck, key=lambda pair: pair[0])[1] if stuck else None

    def fill(self) -> None:
        """Send filler to each stream that has not taken `_PROBE_BYTES` of it."""

        def visit(stream: Connection) -> None:
            sent = self._sent.get(stream, 0)
            if sent < _PROBE_BYTES:
                self._sent[stream] = sent + stream.fill(_PROBE_BYTES - sent)

        self._each_stream(visit)
