"""Tapewire and its alternatives: the same work through each, one after the other.

An alternative is a module of this package with

- `TITLE`, and `WHAT` in one line: the transport, whether it is persisted, the settings;
- `missing()`: None if it can run, else the reason why not;
- `version()`;
- `one_way(messages, size, gap_ns, directory)`: nanoseconds per message, from when it was due to be
  sent (the message carries that time) until the other process has read it, as an int64 array;
- `throughput(messages, size, directory)`: records per second from one process to another.

Either of the last two may be None; another form of the same alternative has it then.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

# For `one_way`, a rate that each keeps up with: threads behind a socket need more time, a server
# even more. The number of messages leaves at least two samples beyond the 99.99th percentile.
SPIN_GAP_NS, SPIN_MESSAGES = 100_000, 50_000
THREADS: dict[str, Any] = {"gap_ns": 250_000, "messages": 22_500}
BROKER: dict[str, Any] = {"gap_ns": 800_000, "messages": 22_500, "rounds": 1}
BROKER |= {"waits": "sleeps", "batched": True}


@dataclass(frozen=True)
class Alternative:
    """How one module is measured, and which others it may be compared with."""

    module: str
    gap_ns: int = SPIN_GAP_NS
    messages: int = SPIN_MESSAGES  # of `one_way`
    rounds: int = 2  # the one with the best median is shown
    flow: int = 300_000  # messages of `throughput`
    waits: str = "spins"  # or "sleeps": how the receiver waits for a message
    batched: bool = False  # many records per call, in `throughput`
    smoke: bool = True  # small enough for the tests

    def load(self) -> Any:
        return importlib.import_module(f"{__name__}.{self.module}")


ALTERNATIVES = {
    "tapewire": Alternative("tapewire_queue", flow=2_000_000),
    "tapewire-parked": Alternative("tapewire_parked", waits="sleeps"),
    "tapewire-batch": Alternative("tapewire_batch", flow=4_000_000, batched=True),
    "pyzmq": Alternative("pyzmq_ipc", **THREADS, waits="sleeps"),
    "pyzmq-spinning": Alternative("pyzmq_spinning", **THREADS),
    "iceoryx2": Alternative("iceoryx2_python"),
    "lmdb": Alternative("lmdb_python", flow=1_000_000, batched=True),
    "redis": Alternative("redis_streams", flow=100_000, **BROKER),
    "nats": Alternative("nats_jetstream", flow=50_000, **BROKER),
    "mp-queue": Alternative("mp_queue", **THREADS, flow=200_000, waits="sleeps"),
    "mp-pipe": Alternative("mp_pipe", waits="sleeps"),
    "mp-shared-memory": Alternative("mp_shared_memory"),
    "chronicle-java": Alternative("chronicle_java", flow=5_000_000, smoke=False),
    "aeron-java": Alternative("aeron_java", flow=5_000_000, smoke=False),
}
OURS = ("tapewire", "tapewire-parked", "tapewire-batch")
