"""The live page, `tapewire monitor BUS --web`: one thread samples for all open pages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from importlib import resources
from typing import Any, Self

from tapewire.monitor.httpd import Answer, LocalServer, Request
from tapewire.monitor.sampler import Watch
from tapewire.monitor.snapshot import printable

__all__ = ["LivePage"]

_PAGE = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "numbers.js": "text/javascript; charset=utf-8",
    "plot.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_COMMENT = b":" + b" " * 16_382 + b"\n"  # an EventSource ignores lines that begin with a colon
_IDLE_SECONDS = 1.0  # between two checks whether a client has disconnected


class LivePage:
    """Samples a bus and serves the live page until closed.

    ``/`` is the page, ``/events`` its stream (Server-Sent Events: ``hello`` with the history, then
    a ``snapshot`` for each sample), ``/snapshot.json`` the latest sample.

    Args:
        watch: Sampled by a thread of this object.
        interval: Seconds between samples.
        bind: Address to listen on; an address other than loopback exposes the bus to the network.
        port: Port; 0 selects a free one.
        allow_hosts: Additional host names that are accepted in the Host header.

    Example:
        >>> import json, tapewire as tw
        >>> from urllib.request import urlopen
        >>> tw.open_publisher(tmp / "md", segment_bytes=1 << 20).close()
        >>> with LivePage(Watch(tmp)) as page:
        ...     [q["name"] for q in json.load(urlopen(page.url + "snapshot.json"))["queues"]]
        ['md']
    """

    def __init__(
        self,
        watch: Watch,
        *,
        interval: float = 1.0,
        bind: str = "127.0.0.1",
        port: int = 0,
        allow_hosts: Iterable[str] = (),
    ) -> None:
        self._watch = watch
        self._interval = interval
        self._changed = threading.Condition()
        self._number = 0
        self._latest = b""
        self._closing = threading.Event()
        self._sample()
        files = resources.files("tapewire.monitor") / "page"
        routes = {f"/{name}": _file((files / name).read_bytes(), _PAGE[name]) for name in _PAGE}
        routes["/"] = routes.pop("/index.html")
        routes["/events"] = lambda request: Answer("text/event-stream", self._events(), _COMMENT)
        routes["/snapshot.json"] = lambda request: Answer("application/json", self._latest)
        self._server = LocalServer(routes, bind=bind, port=port, allow_hosts=allow_hosts)
        self._thread = threading.Thread(target=self._run, name="tw-monitor", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address for a browser."""
        return self._server.url

    def __repr__(self) -> str:
        return f"LivePage({self._watch.root!r}, {self.url!r})"

    def close(self) -> None:
        """Stop sampling and listening, and end all streams."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._server.close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._closing.wait(self._interval):
            self._sample()

    def _sample(self) -> None:
        try:
            found: dict[str, Any] = self._watch.sample().to_dict()
        except OSError as error:  # the bus was removed; it may come back
            found = {"error": printable(str(error))}
        text = _json(found)
        with self._changed:
            self._latest = text
            self._number += 1
            self._changed.notify_all()

    def _events(self) -> Iterator[bytes]:
        with self._changed:
            shown = self._number - 1  # the latest is sent immediately
            hello = {
                "root": printable(self._watch.root),
                "interval": self._interval,
                "limits": asdict(self._watch.limits),
                "history": self._watch.history(),
            }
        yield b"event: hello\ndata: " + _json(hello) + b"\n\n"
        while not self._closing.is_set():
            with self._changed:
                is_news = self._changed.wait_for(
                    lambda: self._closing.is_set() or self._number > shown,  # noqa: B023
                    timeout=_IDLE_SECONDS,
                )
                shown, text = self._number, self._latest
            yield b"event: snapshot\ndata: " + text + b"\n\n" if is_news else b""


def _file(body: bytes, content_type: str) -> Any:
    def serve(request: Request) -> Answer:
        return Answer(content_type, body)

    return serve


def _json(value: dict[str, Any]) -> bytes:
    # Without line breaks, which would end the data of an event, and in ASCII.
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")
