"""iceoryx2's own Python package: publish-subscribe through shared memory."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import two_ends

TITLE = "iceoryx2"
WHAT = (
    "publish-subscribe through shared memory, samples loaned, the subscriber polls; in memory, "
    "no broker; a full buffer of 1,000 holds the publisher up"
)
BUFFER = 1_000


def missing() -> str | None:
    return None if importlib.util.find_spec("iceoryx2") else "the package iceoryx2 is not installed"


def version() -> str:
    return importlib.metadata.version("iceoryx2")


def _message(size: int) -> type[ctypes.Array[ctypes.c_uint8]]:
    return ctypes.c_uint8 * size


def _prefix(directory: Path) -> str:
    return f"{directory.name}-"


@contextlib.contextmanager
def _service(directory: Path, size: int) -> Iterator[Any]:
    """The service of this directory: the same in both processes, and different from any other."""
    import iceoryx2 as iox2

    iox2.set_log_level_from_env_or(iox2.LogLevel.Error)
    config = iox2.config.default()
    config.global_cfg.root_path = iox2.Path.new(str(directory))
    config.global_cfg.prefix = iox2.FileName.new(_prefix(directory))
    builder = iox2.NodeBuilder.new().config(config)
    builder = builder.signal_handling_mode(iox2.SignalHandlingMode.Disabled)
    node = builder.create(iox2.ServiceType.Ipc)
    yield (
        node.service_builder(iox2.ServiceName.new("bench"))
        .publish_subscribe(_message(size))
        .max_publishers(1)
        .max_subscribers(1)
        .history_size(0)
        .enable_safe_overflow(False)  # by default a full buffer loses its oldest sample
        .subscriber_max_buffer_size(BUFFER)
        .open_or_create()
    )


@contextlib.contextmanager
def _sender(directory: Path, size: int) -> Iterator[Callable[[bytes], object]]:
    import iceoryx2 as iox2

    with _service(directory, size) as service:
        publisher = (
            service.publisher_builder()
            .backpressure_strategy(iox2.BackpressureStrategy.RetryUntilDelivered)
            .create()
        )
        loan, move = publisher.loan_uninit, ctypes.memmove

        def send(message: bytes) -> None:
            sample = loan()
            move(sample.payload_ptr, message, size)
            sample.assume_init().send()

        yield send
        publisher.delete()


@contextlib.contextmanager
def _receiver(directory: Path, size: int) -> Iterator[Callable[[], object]]:
    with _service(directory, size) as service:
        subscriber = service.subscriber_builder().create()
        receive, view = subscriber.receive, _message(size).from_address
        held = None  # a sample is returned when nothing refers to it

        def poll() -> object:
            nonlocal held
            sample = receive()
            if sample is None:
                return None
            held = sample
            return view(sample.payload_ptr)

        yield poll
        held = None
        subscriber.delete()


@contextlib.contextmanager
def _nothing_left(directory: Path) -> Iterator[None]:
    """A node's management segment remains even after everything was closed."""
    try:
        yield
    finally:
        for path in Path("/dev/shm").glob(_prefix(directory) + "*"):
            path.unlink()


def one_way(messages: int, size: int, gap_ns: int, directory: Path) -> np.ndarray[Any, Any]:
    with _nothing_left(directory):
        return two_ends.one_way(
            messages,
            size,
            gap_ns,
            lambda: _sender(directory, size),
            lambda: _receiver(directory, size),
        )


def throughput(messages: int, size: int, directory: Path) -> float:
    """One message per call; the API offers nothing else."""
    with _nothing_left(directory):
        return two_ends.throughput(
            messages, size, lambda: _sender(directory, size), lambda: _receiver(directory, size)
        )
