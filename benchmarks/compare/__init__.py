"""Tapewire beside what else there is: the same work through each, one process after the other.

A rival is a module here with

- `TITLE`, and `WHAT` in a line: the transport, whether it is persisted, the settings;
- `missing()`: None where it can run, else why it cannot;
- `version()`;
- `one_way(messages, size, gap_ns, folder)`: nanoseconds per message, from when it was due to be
  sent (the message carries that time) until the other process has read it, as an int64 array;
- `throughput(messages, size, folder)`: records a second from one process to another.

Either of the last two may be None: another form of the same rival has it then.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

NEAR_GAP_NS, NEAR = 250_000, 22_500
BROKER_GAP_NS, BROKER = 800_000, 22_500


@dataclass(frozen=True)
class Rival:
    """What is asked of one module, and with what it may be compared."""

    module: str
    waits: str = "spins"  # or "sleeps": how the receiver waits for a message
    batched: bool = False  # many records a call, in `throughput`
    gap_ns: int = NEAR_GAP_NS  # a rate that it keeps up with, offered for `one_way`
    messages: int = NEAR
    runs: int = 2  # of which the one with the best median is shown
    flow: int = 300_000  # messages of `throughput`
    smoke: bool = True  # small enough to be run by the tests

    def load(self) -> Any:
        return importlib.import_module(f"{__name__}.{self.module}")


def _broker(module: str, flow: int) -> Rival:
    return Rival(module, "sleeps", True, BROKER_GAP_NS, BROKER, 1, flow)


RIVALS = {
    "tapewire": Rival("tapewire_queue", flow=2_000_000),
    "tapewire-parked": Rival("tapewire_parked", "sleeps"),
    "tapewire-batch": Rival("tapewire_batch", batched=True, flow=4_000_000),
    "pyzmq": Rival("pyzmq_ipc", "sleeps"),
    "pyzmq-spinning": Rival("pyzmq_spinning"),
    "iceoryx2": Rival("iceoryx2_python"),
    "lmdb": Rival("lmdb_python", batched=True, flow=1_000_000),
    "redis": _broker("redis_streams", flow=100_000),
    "nats": _broker("nats_jetstream", flow=50_000),
    "mp-queue": Rival("mp_queue", "sleeps", flow=200_000),
    "mp-pipe": Rival("mp_pipe", "sleeps"),
    "mp-shared-memory": Rival("mp_shared_memory"),
    "chronicle-java": Rival("chronicle_java", flow=5_000_000, smoke=False),
    "aeron-java": Rival("aeron_java", flow=5_000_000, smoke=False),
}
OURS = ("tapewire", "tapewire-parked", "tapewire-batch")
