"""LMDB as a queue: ascending keys in a memory-mapped B-tree; the reader polls for the next."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare import two_ends
from benchmarks.latency import pair

BATCH = 1_000

TITLE = "LMDB"
WHAT = (
    "persisted B-tree in a mapped file, sync off; the reader polls; a transaction is one record "
    f"(latency) or {BATCH:,} (throughput)"
)
KEY = struct.Struct(">Q")  # big-endian, so that keys sort as numbers


def missing() -> str | None:
    return None if importlib.util.find_spec("lmdb") else "the package lmdb is not installed"


def version() -> str:
    import lmdb

    library = ".".join(map(str, lmdb.version()))
    return f"{importlib.metadata.version('lmdb')} (LMDB {library})"


def _open(directory: Path) -> Any:
    import lmdb

    # Survives the death of the process but not a power failure, as Tapewire between two flushes.
    return lmdb.open(str(directory), map_size=4 << 30, sync=False, metasync=False, writemap=True)


@contextlib.contextmanager
def _sender(directory: Path) -> Iterator[Callable[[bytes], object]]:
    with _open(directory) as environment:
        begin, pack, number = environment.begin, KEY.pack, 0

        def send(message: bytes) -> None:
            nonlocal number
            with begin(write=True) as transaction:
                transaction.put(pack(number), message, append=True)
            number += 1

        yield send


@contextlib.contextmanager
def _receiver(directory: Path) -> Iterator[Callable[[], bytes | None]]:
    with _open(directory) as environment:
        begin, pack, number = environment.begin, KEY.pack, 0

        def poll() -> bytes | None:
            nonlocal number
            with begin() as transaction:  # renewed, not created: the environment keeps it
                message = transaction.get(pack(number))
            if message is not None:
                number += 1
            return message

        yield poll


def one_way(messages: int, size: int, gap_ns: int, directory: Path) -> np.ndarray[Any, Any]:
    """One transaction per message."""
    return two_ends.one_way(
        messages, size, gap_ns, lambda: _sender(directory), lambda: _receiver(directory)
    )


def throughput(messages: int, size: int, directory: Path) -> float:
    """1,000 records per transaction; the reader reads all records that each transaction shows."""

    @contextlib.contextmanager
    def flow() -> Iterator[Callable[[], object]]:
        message = bytes(size)

        def send_all() -> None:
            for first in range(0, messages, BATCH):
                with environment.begin(write=True) as transaction:
                    for number in range(first, min(first + BATCH, messages)):
                        transaction.put(KEY.pack(number), message, append=True)

        with _open(directory) as environment:
            yield send_all

    def receive(shared: pair.Shared) -> None:
        with _open(directory) as environment:
            pair.begin_receiving(shared)
            number = 0
            while number < shared.count:
                with environment.begin(buffers=True) as transaction:
                    cursor = transaction.cursor()
                    if cursor.set_range(KEY.pack(number)):
                        number += sum(1 for _ in cursor.iternext(keys=False))
            pair.end_receiving(shared)

    return pair.run_flow(messages, flow, receive)
