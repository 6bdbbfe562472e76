"""NATS JetStream through a server of our own on a loopback port, the stream kept in files."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import server
from benchmarks.latency import pair

TITLE = "NATS JetStream"
WHAT = (
    "a server on a loopback port, file storage, so persisted; publish answered by the server, "
    "a push consumer with a callback and without acknowledgements; publish_async (throughput)"
)
PROGRAM = "nats-server"
STREAM, SUBJECT = "BENCH", "bench"


def missing() -> str | None:
    return server.missing("nats-py", importlib.util.find_spec("nats"), PROGRAM)


def version() -> str:
    return f"{server.version(PROGRAM)} (nats-py {importlib.metadata.version('nats-py')})"


def _address(directory: Path) -> str | None:
    """The port that the server reports, once it has started."""
    for path in directory.glob("*.ports"):
        with contextlib.suppress(json.JSONDecodeError):  # partly written
            return json.loads(path.read_text())["nats"][0]
    return None


@contextlib.contextmanager
def _server(directory: Path) -> Iterator[None]:
    arguments = ("-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(directory))
    arguments += ("-js", "-sd", str(directory))
    with server.running(
        PROGRAM, *arguments, directory=directory, answers=lambda: _address(directory) is not None
    ):
        yield


class _Client:
    """The asynchronous client behind synchronous calls, which run its event loop."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._loop = asyncio.new_event_loop()
        self.run = self._loop.run_until_complete

    def __enter__(self) -> _Client:
        import nats

        self._connection = self.run(nats.connect(_address(self._directory)))
        self.stream = self._connection.jetstream()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._connection.close())
        self._loop.close()

    def add_stream(self) -> None:
        self.run(self.stream.add_stream(name=STREAM, subjects=[SUBJECT], storage="file"))

    def consume(self, shared: pair.Shared, note: Callable[[int, bytes], object]) -> None:
        """Pass each message to `note`, with its position, until all have arrived."""
        from nats.js.api import AckPolicy, ConsumerConfig

        done = self._loop.create_future()
        numbers = iter(range(shared.count))

        async def arrived(message: Any) -> None:
            number = next(numbers)
            note(number, message.data)
            if number + 1 == shared.count:
                pair.end_receiving(shared)
                done.set_result(None)

        # Not ordered_consumer=True: with it, and next_msg in place of a callback, a flow on a busy
        # machine once waited 30 s for its next message. The cause was not found.
        unacknowledged = ConsumerConfig(ack_policy=AckPolicy.NONE)
        self.run(self.stream.subscribe(SUBJECT, cb=arrived, config=unacknowledged))
        pair.begin_receiving(shared)
        self.run(done)


@contextlib.contextmanager
def _sender(directory: Path) -> Iterator[Callable[[bytes], object]]:
    with _Client(directory) as client:
        client.add_stream()
        yield lambda message: client.run(client.stream.publish(SUBJECT, message))


def one_way(messages: int, size: int, gap_ns: int, directory: Path) -> np.ndarray[Any, Any]:
    """Each message is acknowledged by the server before the next is published."""

    def receive(shared: pair.Shared) -> None:
        def note(number: int, message: bytes) -> None:
            stamp[number] = unpack(message)[0]
            got[number] = now()

        now, unpack = time.perf_counter_ns, pair.STAMP.unpack_from
        stamp, got = shared.stamp, shared.got
        with _Client(directory) as client:
            client.consume(shared, note)

    with _server(directory):
        return pair.run_pair(
            messages, size, gap_ns, lambda: _sender(directory), receive, patient=True
        ).from_due()


def throughput(messages: int, size: int, directory: Path) -> float:
    """`publish_async`, thousands unacknowledged at a time; a callback per message."""

    async def publish(stream: Any) -> None:
        message = bytes(size)
        for _ in range(messages):
            await stream.publish_async(SUBJECT, message)
        await stream.publish_async_completed()

    @contextlib.contextmanager
    def flow() -> Iterator[Callable[[], object]]:
        with _Client(directory) as client:
            client.add_stream()
            yield lambda: client.run(publish(client.stream))

    def receive(shared: pair.Shared) -> None:
        with _Client(directory) as client:
            client.consume(shared, lambda number, message: None)

    with _server(directory):
        return pair.run_flow(messages, flow, receive)
