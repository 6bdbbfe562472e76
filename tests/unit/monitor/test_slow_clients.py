"""The web server with deliberately slow clients: all others are served."""

import contextlib
import http.client
import json
import socket
import threading
from urllib.parse import urlsplit

import pytest

from tapewire.monitor import connections
from tapewire.monitor.httpd import Answer, LocalServer
from tapewire.monitor.web import LivePage
from tests.support.statuses import queue_status

GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = bytes(64 << 20)  # more than the kernels of both sides buffer


@pytest.fixture
def limits(monkeypatch):
    """`limits(HEAD_SECONDS=60)`: other limits for the test."""

    def change(**values):
        for name, value in values.items():
            monkeypatch.setattr(connections, name, value)

    return change


@pytest.fixture
def connect():
    """`connect(server, data)`: a socket that has sent `data`; closed after the test."""
    with contextlib.ExitStack() as opened:

        def connect(server, data=b""):
            url = urlsplit(server.url)
            client = socket.create_connection((url.hostname, url.port), timeout=10)
            opened.enter_context(client)
            client.sendall(data)
            return client

        yield connect


@pytest.fixture
def page(bus):
    bus["md"] = queue_status(last_seq=41)
    with LivePage(bus.watch(), interval=0.05) as page:
        yield page


@pytest.fixture
def small():
    """A server of a small page."""
    with LocalServer({"/": lambda request: Answer("text/plain", b"here")}) as server:
        yield server


def status_of(server, path="/"):
    """Return the status of a response; None if the connection was refused."""
    url = urlsplit(server.url)
    client = http.client.HTTPConnection(url.hostname, url.port, timeout=10)
    try:
        client.request("GET", path)
        answer = client.getresponse()
        answer.read()
        return answer.status
    except ConnectionError:
        return None
    finally:
        client.close()


def is_cut(client, timeout=10.0):
    """Return whether the server closes the connection within `timeout` seconds."""
    client.settimeout(timeout)
    try:
        while client.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


@contextlib.contextmanager
def dripping(clients):
    """Each client sends bytes of a header one by one until its connection is closed."""
    over = threading.Event()

    def drip():
        left = list(clients)
        while not over.wait(0.02):
            for client in list(left):
                try:
                    client.send(b"x")
                except OSError:
                    left.remove(client)

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# Requests.


def test_a_slow_request_head_is_closed_at_its_deadline(small, connect, limits):
    limits(HEAD_SECONDS=0.3)
    client = connect(small, b"GET / HTTP/1.1\r\nX: ")
    with dripping([client]):
        assert is_cut(client)


def test_the_deadline_of_a_head_restarts_with_each_request(small, connect, limits, eventually):
    client = connect(small)
    for _ in range(3):
        client.sendall(GET % b"/")
        answer = b""
        while not answer.endswith(b"here"):
            answer += client.recv(65536)
    limits(HEAD_SECONDS=0.2)
    client.sendall(GET % b"/")
    assert client.recv(12) == b"HTTP/1.1 200"
    assert is_cut(client)  # idle
    eventually(lambda: len(small.connections) == 0)


def test_the_size_of_a_head_is_limited(small, connect):
    client = connect(small, b"GET / HTTP/1.1\r\n")
    with contextlib.suppress(ConnectionError):
        for n in range(100):
            client.sendall(b"X-%d: %s\r\n" % (n, b"x" * 8192))
    assert is_cut(client)


def test_a_good_client_is_served_beside_500_slow_ones(page, connect, limits):
    limits(HEAD_SECONDS=60)  # no deadline expires during the test
    drips = [connect(page, b"GET / HTTP/1.1\r\nX: ") for _ in range(500)]
    with dripping(drips):
        for path in ("/", "/app.js", "/snapshot.json"):
            assert status_of(page, path) == 200
        stream = connect(page, GET % b"/events")
        assert stream.recv(12) == b"HTTP/1.1 200"
    assert len(page._server.connections) <= connections.MAX_CONNECTIONS


def test_the_oldest_connection_without_a_request_is_evicted(small, connect, limits):
    limits(MAX_CONNECTIONS=3, GRACE_SECONDS=0, HEAD_SECONDS=60)
    oldest, *others = [connect(small, b"GET / HTTP/1.1\r\n") for _ in range(3)]
    assert status_of(small) == 200
    assert is_cut(oldest)
    for client in others:
        client.sendall(b"Host: localhost\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"


def test_an_idle_connection_is_evicted(small, connect, limits):
    limits(MAX_CONNECTIONS=1, HEAD_SECONDS=60, GRACE_SECONDS=1)
    idle = connect(small, GET % b"/")
    assert idle.recv(12) == b"HTTP/1.1 200"
    assert status_of(small) == 200
    assert is_cut(idle)


def test_a_request_that_is_being_answered_is_not_evicted(connect, limits):
    limits(MAX_CONNECTIONS=2, GRACE_SECONDS=0.01)
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(request):
        begun.release()
        go_on.wait(30)
        return Answer("text/plain", b"here")

    with LocalServer({"/": slow}) as server:
        busy = [connect(server, GET % b"/") for _ in range(2)]
        for _ in busy:
            assert begun.acquire(timeout=10)
        assert status_of(server) is None
        go_on.set()
        for client in busy:
            assert client.recv(12) == b"HTTP/1.1 200"


# Answers.


def test_a_client_that_does_not_read_its_response_is_closed(connect, limits, eventually):
    limits(STALLED_SECONDS=0.2)
    asked = threading.Event()

    def large(request):
        asked.set()
        return Answer("text/plain", LARGE)

    with LocalServer({"/": large}) as server:
        connect(server, GET % b"/")
        assert asked.wait(10)
        eventually(lambda: len(server.connections) == 0)


def test_a_client_that_does_not_read_its_response_is_evicted(connect, limits):
    limits(MAX_CONNECTIONS=1, GRACE_SECONDS=1.0, STUCK_SECONDS=0.1, STALLED_SECONDS=60)
    routes = {
        "/": lambda request: Answer("text/plain", b"here"),
        "/large": lambda request: Answer("text/plain", LARGE),
    }
    with LocalServer(routes) as server:
        slow = connect(server, GET % b"/large")
        assert slow.recv(12) == b"HTTP/1.1 200"
        assert status_of(server) == 200


# Streams.


def never_reading(page, connect, count):
    """Clients that each open a stream and leave all of it in their kernel's buffer."""
    clients = [connect(page, GET % b"/events") for _ in range(count)]
    for client in clients:
        assert client.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"
    return clients


class Reading:
    """A client that reads a stream in a separate thread."""

    def __init__(self, client):
        self.snapshots = 0
        self.ended = False
        self._client = client
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        with self._client.makefile("rb") as lines, contextlib.suppress(OSError, ValueError):
            self.status = lines.readline()
            while lines.readline() != b"\r\n":
                pass
            kind = None
            for line in lines:  # like an EventSource: comments are ignored
                if line.startswith(b"event: "):
                    kind = line[7:-1]
                elif line.startswith(b"data: "):
                    json.loads(line[6:])
                    self.snapshots += kind == b"snapshot"
                else:
                    assert line == b"\n" or line.startswith(b":"), line
        self.ended = True


@pytest.fixture
def reading(connect, eventually):
    """`reading(page, count)`: clients that read, each with its first snapshot."""

    def start(page, count):
        readers = [Reading(connect(page, GET % b"/events")) for _ in range(count)]
        eventually(lambda: all(reader.snapshots for reader in readers))
        return readers

    return start


def test_a_good_client_gets_page_and_stream_beside_64_unread_streams(
    page, connect, limits, reading
):
    limits(PROBE_SECONDS=8)  # a busy machine polls less often than a stuck stream requires
    never_reading(page, connect, connections.MAX_STREAMS)
    assert status_of(page) == 200
    stream = connect(page, GET % b"/events")
    assert stream.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"
    (good,) = reading(page, 1)
    assert not good.ended


def test_only_unread_streams_are_evicted(page, connect, limits, reading, eventually):
    limits(MAX_STREAMS=6, PROBE_SECONDS=8)
    early = reading(page, 2)
    never_read = [connect(page, GET % b"/events") for _ in range(2)]
    late = reading(page, 2)
    good = reading(page, 2)  # replacing the two
    assert all(is_cut(client) for client in never_read)
    seen = [reader.snapshots for reader in early + late]
    eventually(
        lambda: all(
            reader.snapshots > before + 2 for reader, before in zip(early + late, seen, strict=True)
        )
    )
    assert not any(reader.ended for reader in early + late + good)


def test_streams_that_are_read_are_never_evicted(page, limits, reading, eventually):
    limits(MAX_STREAMS=4)
    readers = reading(page, 4)
    for _ in range(3):
        assert status_of(page, "/events") == 503
    seen = [reader.snapshots for reader in readers]
    eventually(lambda: all(r.snapshots > n for r, n in zip(readers, seen, strict=True)))
    assert not any(reader.ended for reader in readers)


def test_a_stream_whose_client_has_disconnected_is_evicted(bus, connect, limits, reading):
    bus["md"] = queue_status()
    limits(MAX_STREAMS=2)
    with LivePage(bus.watch(), interval=1000) as page:
        for client in never_reading(page, connect, 2):
            client.close()
        assert len(reading(page, 2)) == 2


def test_the_thread_of_an_evicted_stream_ends_without_a_new_sample(
    bus, connect, limits, eventually
):
    bus["md"] = queue_status()
    limits(MAX_STREAMS=1)
    before = set(threading.enumerate())  # threads of an earlier test may still end

    def started():
        return len(set(threading.enumerate()) - before)

    with LivePage(bus.watch(), interval=1000) as page:
        never_reading(page, connect, 1)
        with_one = started()
        assert connect(page, GET % b"/events").recv(12) == b"HTTP/1.1 200"
        eventually(lambda: started() == with_one)
    eventually(lambda: started() == 0)


def test_a_stream_whose_buffer_stays_full_is_dropped(connect, limits, eventually):
    limits(STALLED_SECONDS=0.2)

    def endless(request):
        def pieces():
            while True:
                yield bytes(65536)

        return Answer("text/plain", pieces())

    with LocalServer({"/": endless}) as server:
        client = connect(server, GET % b"/")
        assert client.recv(12) == b"HTTP/1.1 200"
        eventually(lambda: server.connections.streams == 0)
        eventually(lambda: len(server.connections) == 0)
