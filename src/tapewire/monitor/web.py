"""The live page, `tapewire monitor BUS --web`: one thread looks, every open page is told."""

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
_COMMENT = b":" + b" " * 16_382 + b"\n"  # an EventSource skips lines that begin with a colon
_IDLE_SECONDS = 1.0  # between two looks for whether a client is gone


class LivePage:
    """Watches a bus and serves what it sees, until closed.

    ``/`` is the page, ``/events`` the stream that feeds it (Server-Sent Events: ``hello`` with the
    history, then a ``snapshot`` a look), ``/snapshot.json`` the latest look alone.

    Args:
        watch: Looked at by a thread of this object.
        interval: Seconds between looks.
        bind: Address to listen at; anything but loopback shows the bus to the network.
        port: 0 for any free one.
        allow_hosts: More host names that the page may be asked for by.

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
        self._look()
        folder = resources.files("tapewire.monitor") / "page"
        routes = {f"/{name}": _file((folder / name).read_bytes(), _PAGE[name]) for name in _PAGE}
        routes["/"] = routes.pop("/index.html")
        routes["/events"] = lambda request: Answer("text/event-stream", self._events(), _COMMENT)
        routes["/snapshot.json"] = lambda request: Answer("application/json", self._latest)
        self._server = LocalServer(routes, bind=bind, port=port, allow_hosts=allow_hosts)
        self._thread = threading.Thread(target=self._run, name="tw-monitor", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where to point a browser."""
        return self._server.url

    def __repr__(self) -> str:
        return f"LivePage({self._watch.root!r}, {self.url!r})"

    def close(self) -> None:
        """End the looking, the listening and every open stream."""
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
            self._look()

    def _look(self) -> None:
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
            shown = self._number - 1  # the latest comes at once
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
    # No line breaks, where an event's data would end, and ASCII alone.
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")
