"""A small local HTTP server: a few fixed responses, no files, no uploads.

The standard library's server is fast enough, since a person or a scraper reads it once a second.
The server protects against web pages opened in a browser on the same machine: DNS rebinding is
prevented by checking the Host header, and other pages cannot read or frame it. Slow clients,
whether faulty or malicious, do not lock out others: see `connections`.
"""

from __future__ import annotations

import contextlib
import io
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

from tapewire.errors import TapewireError
from tapewire.monitor.connections import AnswerWriter, Connections, HeadReader
from tapewire.monitor.snapshot import printable

__all__ = ["Answer", "LocalServer", "Request", "is_loopback"]

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def is_loopback(host: str) -> bool:
    """Whether a bind address is reachable only from this machine."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


@dataclass(frozen=True, slots=True)
class Request:
    """A request, as passed to a route."""

    path: str
    query: str
    accept: str  # the header


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of a route: a body, or pieces that are sent as they are produced.

    Attributes:
        content_type: The header.
        body: All bytes, or an iterable of pieces. An empty piece sends nothing: yield one every
            second while there is nothing to send, so that a stream ends when its client has
            disconnected.
        filler: For pieces: bytes that the format allows between two of them any number of times,
            with which the server finds clients that do not read.
    """

    content_type: str
    body: bytes | Iterable[bytes]
    filler: bytes = b""


Route = Callable[[Request], Answer]


class LocalServer:
    """Serves `routes` (path → function) until closed, each request in a separate thread.

    Args:
        routes: By path; each is called with a `Request`.
        bind: Address to listen on.
        port: Port; 0 selects a free one.
        allow_hosts: Additional host names that are accepted in the Host header.

    Example:
        >>> from urllib.request import urlopen
        >>> with LocalServer({"/": lambda request: Answer("text/plain", b"here")}) as server:
        ...     urlopen(server.url).read()
        b'here'
    """

    def __init__(
        self,
        routes: Mapping[str, Route],
        *,
        bind: str = "127.0.0.1",
        port: int = 0,
        allow_hosts: Iterable[str] = (),
    ) -> None:
        self.bind = bind
        self._names = {"localhost", bind.lower(), *(name.lower() for name in allow_hosts)}
        if not is_loopback(bind):
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        self.connections = Connections()
        handler = type("Handler", (_Handler,), {"local": self, "routes": routes})
        self._server = _Server((bind, port), handler, self.connections)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="tw-http", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The address for a browser."""
        host = f"[{self.bind}]" if ":" in self.bind else self.bind
        return f"http://{host}:{self.port}/"

    def __repr__(self) -> str:
        return f"LocalServer({self.url!r})"

    def knows_host(self, header: str | None) -> bool:
        """Whether the Host header names this server.

        In DNS rebinding the name of another site resolves to this server, and the browser sends
        that name. IP addresses are not resolved and therefore safe.
        """
        try:
            host = urlsplit(f"//{header}").hostname if header else None
        except ValueError:
            return False
        if host is None:
            return False
        if host in self._names:
            return True
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(host).is_loopback or not is_loopback(self.bind)
        return False

    def close(self) -> None:
        """Stop listening. Does not wait for streams, which end when their routes stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # Ctrl-C does not wait for browsers
    allow_reuse_address = True
    request_queue_size = 1024  # beyond it, the kernel of a client retries after a second

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        connections: Connections,
    ) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._connections = connections
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._connections.admit(request):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        self._connections.drop(request)
        super().shutdown_request(request)

    def server_bind(self) -> None:
        # HTTPServer.server_bind resolves this machine's name, which may take seconds.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name = str(self.server_address[0])
        self.server_port = self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        import sys

        # Browsers disconnect in the middle of a response when a page is closed.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    local: LocalServer
    routes: Mapping[str, Route]

    protocol_version = "HTTP/1.1"
    server_version = "tapewire"
    sys_version = ""

    def setup(self) -> None:
        self.connection = self.request
        self.client = self.local.connections.of(self.request)
        self.rfile = io.BufferedReader(HeadReader(self.client))
        self.wfile = AnswerWriter(self.client)

    def handle_one_request(self) -> None:
        if not self.client.waits_for_head:  # for a new client the limit starts when it connects
            self.client.expect_head()
        super().handle_one_request()

    def parse_request(self) -> bool:
        parsed = super().parse_request()
        self.client.begin_answer()
        return parsed

    def do_GET(self) -> None:
        if not self.local.knows_host(self.headers.get("Host")):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "unknown host in the Host header")
            return
        path, _, query = self.path.partition("?")
        route = self.routes.get(path)
        if route is None:
            self._refuse(HTTPStatus.NOT_FOUND, "not found")
            return
        try:
            answer = route(Request(path, query, self.headers.get("Accept", "")))
        except (OSError, TapewireError) as error:  # for example, the bus was removed
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, printable(str(error)))
            return
        if isinstance(answer.body, bytes):
            self._send(HTTPStatus.OK, answer.content_type, answer.body)
        else:
            self._stream(answer.content_type, answer.body, answer.filler)

    do_HEAD = do_GET

    def _stream(self, content_type: str, pieces: Iterable[bytes], filler: bytes) -> None:
        if not self.local.connections.open_stream(self.client):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open")
            return
        try:
            self.close_connection = True
            self._begin(HTTPStatus.OK, content_type, {"Connection": "close"})
            if self.command == "HEAD":
                return
            self.client.begin_stream(filler)
            for piece in pieces:
                if self.client.evicted:
                    return
                self.wfile.write(piece)
        finally:
            self.local.connections.close_stream(self.client)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(status, "text/plain; charset=utf-8", f"{why}\n".encode())

    def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self._begin(status, content_type, {"Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _begin(self, status: HTTPStatus, kind: str, more: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **more, **_HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass  # no access log on the terminal
