"""The connections of a server: time limits, and which connection is evicted for a new one.

A client costs a thread and a socket, so their number is limited, and slow clients must not use it
up. The time for a request head and for each part of a response is limited. When the limit is
reached, a new client replaces the one that has kept its thread waiting longest. A client that sends
its request and reads its response is never evicted.
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
MAX_STREAMS = 64  # connections with an endless response
HEAD_SECONDS = 5.0  # for a complete request head, since the connect or the last response
HEAD_BYTES = 65_536
STALLED_SECONDS = 10.0  # for a client to receive _SLICE_BYTES
GRACE_SECONDS = 0.25  # for an admitted client to send its request
STUCK_SECONDS = 0.5  # without progress until a client may be evicted
PROBE_SECONDS = 2.0  # for a new stream to find one that is stuck
PROBE_EVERY_SECONDS = 1.0  # between probes if the last one found none

_SLICE_BYTES = 65_536
_STREAM_BUFFER_BYTES = 65_536  # small kernel buffer, to detect early that a client does not read
_PROBE_BYTES = 1 << 19  # of filler per stream and probe: more than most clients' kernels buffer
_POLL_SECONDS = 0.02
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Connection:
    """One client: reads within a deadline, writes as fast as the client receives."""

    def __init__(self, client: socket.socket) -> None:
        self._socket = client
        self._deadline = 0.0
        self._head_bytes = 0
        self._sending = threading.Lock()  # held for a piece of a response, or filler between two
        self._filler: bytes | None = None  # None until a stream begins
        self._unsent = b""  # the rest of filler that was sent in part
        self._queued = 0  # bytes in the buffer at the last check
        self._checked_at = 0.0
        self.waiting_since: float | None = None  # for the client to send a head or receive a part
        self.waits_for_head = True
        self.full_since: float | None = None  # set by `check`
        self.evicted = False
        self.expect_head()

    def expect_head(self) -> None:
        """Start the time limit for the next request head."""
        self.waits_for_head = True
        self.waiting_since = monotonic()
        self._deadline = self.waiting_since + HEAD_SECONDS
        self._head_bytes = 0

    def begin_answer(self) -> None:
        """Note that the request head is complete."""
        self.waits_for_head = False
        self.waiting_since = None

    def begin_stream(self, filler: bytes) -> None:
        """Start an endless response; the client ignores `filler` between its pieces.

        Without filler, a client that does not read is detected only when the buffers of both
        kernels are full, which may take hours.
        """
        with self._sending:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _STREAM_BUFFER_BYTES)
            self._filler = filler

    @property
    def may_go_at(self) -> float | None:
        """When this connection may be evicted for a new one; None: not in its current state."""
        since = self.waiting_since
        if since is None:
            return None
        return since + (GRACE_SECONDS if self.waits_for_head else STUCK_SECONDS)

    def receive(self, buffer: Buffer) -> int:
        """Read a part of a head; raise `OSError` past its deadline or maximum size."""
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
        """Send a piece of a response; raise `TimeoutError` if the client does not receive it."""
        with self._sending:
            unsent, self._unsent = self._unsent, b""
            for part in (unsent, data):
                view = memoryview(part)
                for start in range(0, len(view), _SLICE_BYTES):
                    self._send_slice(view[start : start + _SLICE_BYTES])

    def _send_slice(self, part: memoryview) -> None:
        self.waiting_since = monotonic()
        self._socket.settimeout(STALLED_SECONDS)
        self._socket.sendall(part)  # the timeout covers the complete call
        self.waiting_since = None

    @property
    def may_be_filled(self) -> bool:
        """Whether `fill` can send anything, now or once the stream has begun."""
        return self._filler != b""

    def check(self, now: float) -> None:
        """Update since when the buffer has been full without the client receiving anything.

        Raises:
            OSError: The connection is broken.
        """
        queued = self._bytes_queued()
        if self._is_writable():
            self.full_since = None
        elif (
            self.full_since is None
            or queued < self._queued
            or now - self._checked_at > STUCK_SECONDS / 2  # it may have been empty meanwhile
        ):
            self.full_since = now
        self._queued, self._checked_at = queued, now

    def fill(self, most: int) -> int:
        """Send at most `most` bytes of filler, until the buffer is full; return how many.

        Never blocks.

        Raises:
            OSError: The connection is broken.
        """
        if not self._filler or not self._sending.acquire(blocking=False):
            return 0
        sent = 0
        try:
            while sent < most and self._is_writable():
                pending = self._unsent or self._filler
                # Not socket.send, which waits. The descriptor of a socket with a timeout does not.
                count = os.write(self._socket.fileno(), pending)
                self._unsent = pending[count:]
                sent += count
        except BlockingIOError:
            pass  # full
        finally:
            self._sending.release()
        self._queued = self._bytes_queued()
        return sent

    def evict(self) -> None:
        """Reset the connection, which wakes its thread if it waits for the client."""
        self.evicted = True
        with contextlib.suppress(OSError):  # the client may have disconnected
            # Also discard unsent data, which the kernel would keep for minutes.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._socket.shutdown(socket.SHUT_RDWR)

    def _bytes_queued(self) -> int:
        """Return the number of bytes that the client's kernel has not acknowledged."""
        found = fcntl.ioctl(self._socket, termios.TIOCOUTQ, b"\0\0\0\0")
        return int(struct.unpack("i", found)[0])

    def _is_writable(self) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT)
        events = sum(event for _, event in poll.poll(0))
        if events & (select.POLLERR | select.POLLHUP):
            raise ConnectionResetError("the client has disconnected")
        return bool(events & select.POLLOUT)


class HeadReader(io.RawIOBase):
    """The request heads of a connection, as a file."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Read into `buffer`; raise `OSError` past the deadline."""
        return self._connection.receive(buffer)


class AnswerWriter(io.BufferedIOBase):
    """The responses of a connection, as an unbuffered file."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Buffer) -> int:
        """Send `data`; raise `TimeoutError` if the client does not receive it."""
        self._connection.send(data)
        return len(memoryview(data))


class Connections:
    """All connections of a server, admitted by the listening thread, one thread for each."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: dict[socket.socket, Connection] = {}
        self._streams: set[Connection] = set()
        self._opening = threading.Lock()
        self._next_probe = 0.0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def streams(self) -> int:
        """Number of endless responses being sent."""
        return len(self._streams)

    def of(self, client: socket.socket) -> Connection:
        """Return the connection of an admitted socket; raise `OSError` if it has been evicted."""
        with self._changed:
            found = self._open.get(client)
        if found is None:
            raise ConnectionAbortedError("evicted for a new connection")
        return found

    def admit(self, client: socket.socket) -> bool:
        """Admit a new connection, evicting the slowest if necessary; False: all are busy.

        Waits until the slowest may be evicted: `GRACE_SECONDS` for a connection to become idle, and
        as long again for its own grace period.
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
                    self._changed.wait(min(until - now, _POLL_SECONDS))
            self._open[client] = Connection(client)
            return True

    def drop(self, client: socket.socket) -> None:
        """Remove a connection. Call this before closing its socket, whose number is reused."""
        with self._changed:
            connection = self._open.pop(client, None)
            if connection is not None:
                self._streams.discard(connection)
            self._changed.notify_all()

    def open_stream(self, connection: Connection) -> bool:
        """Register an endless response, evicting a client that does not read if necessary.

        Returns:
            False if there are `MAX_STREAMS`, and all their clients read.
        """
        with self._opening:  # one at a time, so that each sees the result of the one before
            if self._has_stream_place(connection):
                return True
            probe = _Probe(self._each_stream)
            give_up = monotonic() + PROBE_SECONDS
            may_probe = monotonic() >= self._next_probe
            while not connection.evicted:
                stuck = probe.check()
                if stuck is not None:
                    with self._changed:
                        self._evict(stuck)
                if self._has_stream_place(connection):
                    return True
                if not may_probe or probe.is_over or monotonic() >= give_up:
                    break
                probe.fill()
                with self._changed:
                    self._changed.wait(_POLL_SECONDS)
            self._next_probe = monotonic() + PROBE_EVERY_SECONDS
            return False

    def close_stream(self, connection: Connection) -> None:
        """Remove an endless response."""
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
        """Call `visit` with each stream while its thread cannot close its socket."""
        for stream in list(self._streams):
            with self._changed:
                if stream not in self._streams:
                    continue
                try:
                    visit(stream)
                except OSError:  # the client has disconnected
                    self._evict(stream)

    def _evict(self, connection: Connection) -> None:
        if self._open.pop(connection._socket, None) is None:
            return
        self._streams.discard(connection)
        connection.evict()
        self._changed.notify_all()


class _Probe:
    """Finds streams that are not read, by filling the buffers of all.

    A client that reads receives the filler within milliseconds. If a client does not, its buffers
    stay full.
    """

    def __init__(self, each_stream: Callable[[Callable[[Connection], None]], None]) -> None:
        self._each_stream = each_stream
        self._sent: dict[Connection, int] = {}
        self.is_over = False  # True when all clients have received the filler

    def check(self) -> Connection | None:
        """Return the stream that has been stuck longest, for at least `STUCK_SECONDS`, or None."""
        now = monotonic()
        stuck: list[tuple[float, Connection]] = []
        undecided: list[Connection] = []

        def visit(stream: Connection) -> None:
            stream.check(now)
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
        """Send filler to each stream, up to `_PROBE_BYTES`."""

        def visit(stream: Connection) -> None:
            sent = self._sent.get(stream, 0)
            if sent < _PROBE_BYTES:
                self._sent[stream] = sent + stream.fill(_PROBE_BYTES - sent)

        self._each_stream(visit)
