"""Redis Streams through a server of our own on a unix socket."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import server, two_ends
from benchmarks.latency import pair

BATCH = 1_000

TITLE = "Redis Streams"
WHAT = (
    "a server on a unix socket, XADD and XREAD BLOCK; persisted by an append-only file synced "
    f"every second; pipelines of {BATCH:,} (throughput)"
)
PROGRAM = "redis-server"
STREAM, FIELD = b"bench", b"m"


def missing() -> str | None:
    return server.missing("redis", importlib.util.find_spec("redis"), PROGRAM)


def version() -> str:
    return f"{server.version(PROGRAM)} (redis-py {importlib.metadata.version('redis')})"


@contextlib.contextmanager
def _client(directory: Path) -> Iterator[Any]:
    import redis

    path = str(directory / "redis.sock")
    with redis.Redis(unix_socket_path=path, socket_timeout=60) as client:  # longer than any BLOCK
        yield client


@contextlib.contextmanager
def _server(directory: Path) -> Iterator[None]:
    import redis

    def answers() -> bool:
        try:
            with _client(directory) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False

    options = {
        "port": "0",  # no TCP
        "unixsocket": str(directory / "redis.sock"),
        "dir": str(directory),
        "save": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    with server.running(PROGRAM, *arguments, directory=directory, answers=answers):
        yield


@contextlib.contextmanager
def _sender(directory: Path) -> Iterator[Callable[[bytes], object]]:
    with _client(directory) as client:
        yield lambda message: client.xadd(STREAM, {FIELD: message})


def _take(client: Any, last: bytes, count: int) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The entries after `last`, at most `count`; waits until there is one."""
    answer = client.xread({STREAM: last}, count=count, block=30_000)
    if not answer:
        raise TimeoutError("no message within 30 s")
    # RESP2 gives a list of pairs, RESP3 a dictionary of lists of pages.
    return answer[STREAM][0] if isinstance(answer, dict) else answer[0][1]


@contextlib.contextmanager
def _receiver(directory: Path) -> Iterator[Callable[[], bytes]]:
    waiting: deque[tuple[bytes, dict[bytes, bytes]]] = deque()
    last = b"0"

    def poll() -> bytes:
        nonlocal last
        if not waiting:
            waiting.extend(_take(client, last, BATCH))
        last, fields = waiting.popleft()
        return fields[FIELD]

    with _client(directory) as client:
        yield poll


def one_way(messages: int, size: int, gap_ns: int, directory: Path) -> np.ndarray[Any, Any]:
    """An XADD per message, answered before the next."""
    with _server(directory):
        return two_ends.one_way(
            messages,
            size,
            gap_ns,
            lambda: _sender(directory),
            lambda: _receiver(directory),
            patient=True,
        )


def throughput(messages: int, size: int, directory: Path) -> float:
    """Pipelines of 1,000 XADD; XREAD takes up to 1,000 at once."""

    @contextlib.contextmanager
    def flow() -> Iterator[Callable[[], object]]:
        message = {FIELD: bytes(size)}

        def send_all() -> None:
            for first in range(0, messages, BATCH):
                with client.pipeline(transaction=False) as pipeline:
                    for _ in range(first, min(first + BATCH, messages)):
                        pipeline.xadd(STREAM, message)
                    pipeline.execute()

        with _client(directory) as client:
            yield send_all

    def receive(shared: pair.Shared) -> None:
        with _client(directory) as client:
            pair.begin_receiving(shared)
            left, last = shared.count, b"0"
            while left:
                entries = _take(client, last, BATCH)
                last = entries[-1][0]
                left -= len(entries)
            pair.end_receiving(shared)

    with _server(directory):
        return pair.run_flow(messages, flow, receive)
