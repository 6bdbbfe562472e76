"""NATS JetStream through a server of our own on a loopback port, the stream kept in files."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import server, two_ends
from benchmarks.latency import pair

TITLE = "NATS JetStream"
WHAT = (
    "a server on a loopback port, file storage, so persisted; publish answered by the server, "
    "an ordered push consumer; publish_async (throughput)"
)
PROGRAM = "nats-server"
STREAM, SUBJECT = "BENCH", "bench"
SECONDS = 30


def missing() -> str | None:
    return server.missing("nats-py", importlib.util.find_spec("nats"), PROGRAM)


def version() -> str:
    return f"{server.version(PROGRAM)} (nats-py {importlib.metadata.version('nats-py')})"


def _address(folder: Path) -> str | None:
    """What the server says of the port it was given, once it does."""
    for path in folder.glob("*.ports"):
        with contextlib.suppress(json.JSONDecodeError):  # half-written
            return json.loads(path.read_text())["nats"][0]
    return None


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[None]:
    arguments = ("-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(folder))
    arguments += ("-js", "-sd", str(folder))
    with server.running(
        PROGRAM, *arguments, folder=folder, answers=lambda: _address(folder) is not None
    ):
        yield


class _Client:
    """The asynchronous client, driven from plain calls: its loop runs inside them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self.run = self._loop.run_until_complete

    def __enter__(self) -> _Client:
        import nats

        self._connection = self.run(nats.connect(_address(self._folder)))
        self.stream = self._connection.jetstream()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._connection.close())
        self._loop.close()

    def add_stream(self) -> None:
        self.run(self.stream.add_stream(name=STREAM, subjects=[SUBJECT], storage="file"))

    def subscribe(self) -> Any:
        return self.run(self.stream.subscribe(SUBJECT, ordered_consumer=True))


@contextlib.contextmanager
def _sender(folder: Path) -> Iterator[Callable[[bytes], object]]:
    with _Client(folder) as client:
        client.add_stream()
        yield lambda message: client.run(client.stream.publish(SUBJECT, message))


@contextlib.contextmanager
def _receiver(folder: Path) -> Iterator[Callable[[], bytes]]:
    with _Client(folder) as client:
        next_message = client.subscribe().next_msg
        yield lambda: client.run(next_message(SECONDS)).data


def one_way(messages: int, size: int, gap_ns: int, folder: Path) -> np.ndarray[Any, Any]:
    """Each message is acknowledged by the server before the next is published."""
    with _server(folder):
        return two_ends.one_way(
            messages, size, gap_ns, lambda: _sender(folder), lambda: _receiver(folder)
        )


def throughput(messages: int, size: int, folder: Path) -> float:
    """`publish_async`, thousands unacknowledged at a time; taken message by message."""

    async def publish(stream: Any) -> None:
        message = bytes(size)
        for _ in range(messages):
            await stream.publish_async(SUBJECT, message)
        await stream.publish_async_completed()

    async def take(subscription: Any, count: int) -> None:
        for _ in range(count):
            await subscription.next_msg(SECONDS)

    @contextlib.contextmanager
    def flow() -> Iterator[Callable[[], object]]:
        with _Client(folder) as client:
            client.add_stream()
            yield lambda: client.run(publish(client.stream))

    def receive(shared: pair.Shared) -> None:
        with _Client(folder) as client:
            subscription = client.subscribe()
            pair.begin_receiving(shared)
            client.run(take(subscription, shared.count))
            pair.end_receiving(shared)

    with _server(folder):
        return pair.run_flow(messages, flow, receive)
