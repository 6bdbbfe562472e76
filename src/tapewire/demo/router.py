"""The router: finds the strategies, sends their orders to the exchange and their fills back.

Its own output contains all of its state: each order that it sent contains its sequence number in
the strategy's queue, and each fill in `orders_in` has the sequence number of the exchange's queue.
Readers commit only to limit how far back a start has to read; the output decides what is sent.
"""

from __future__ import annotations

import time
from pathlib import Path

from tapewire.bus import Added, FanInReader, Removed, RouterDiscovery
from tapewire.demo.paths import DemoPaths
from tapewire.demo.process import Process, main
from tapewire.demo.queue_records import records
from tapewire.files import is_queue
from tapewire.log import Record
from tapewire.protocol import declare, replace
from tapewire.protocol.orders import CancelOrder, Fill, NewOrder, OrderAck
from tapewire.queue import Reader, Writer, open_publisher, open_subscriber

__all__ = ["Router", "last_routed"]

_POLL_SECONDS = 0.05  # between polls of the discovery
_ORDERS = frozenset({NewOrder.type_id, CancelOrder.type_id})
_FILLS = "exchange/fills"  # no strategy has this name, since names contain no slash


def last_routed(path: Path) -> dict[str, int]:
    """By strategy, the sequence number of the last order that the router has sent."""
    last: dict[str, int] = {}
    for record in records(path):
        order = record.decode()
        last[order.strategy] = order.source_seq  # rises within a strategy
    return last


class Router:
    """Reads the queues of the strategies and the exchange; `step` forwards one record."""

    def __init__(self, paths: DemoPaths) -> None:
        self._paths = paths
        self._last_routed = last_routed(paths.orders)
        self._orders = open_publisher(paths.orders, segment_bytes=paths.segment_bytes)
        self._answers: dict[str, Writer] = {}
        # Every existing orders_in, also of strategies that are not ready now.
        for name in paths.strategies():
            self._answers_writer(name)
        self.found = dict(self._last_routed)
        self.skipped = 0
        self._discovery = RouterDiscovery(paths.layout.orders)
        self._fan = FanInReader(max_skew=0)  # in the order of time, without waiting for any

    @property
    def epoch(self) -> int:
        """How many times the router has been started."""
        return self._orders.epoch

    def poll(self) -> None:
        """Add and remove strategies that discovery reports; commit the readers."""
        self._fan.commit()
        if _FILLS not in self._fan.readers and is_queue(self._paths.fills):
            fills = open_subscriber(
                self._paths.fills, "router", types={OrderAck.type_id, Fill.type_id}
            )
            self._fan.add(_FILLS, fills)
        for event in self._discovery.poll():
            match event:
                case Added(strategy, orders_out):
                    self._answers_writer(strategy)
                    self._fan.add(strategy, open_subscriber(orders_out, "router", types=_ORDERS))
                case Removed(strategy):
                    self._remove(strategy)

    def _remove(self, strategy: str) -> None:
        reader: Reader = self._fan.remove(strategy)
        for record in reader:  # what it sent before it stopped
            self._route(strategy, record)
        reader.commit()
        reader.close()

    def _answers_writer(self, strategy: str) -> Writer:
        if strategy not in self._answers:
            # Sparse: a fill keeps its sequence number of the exchange's queue.
            path = self._paths.strategy(strategy).orders_in
            writer = open_publisher(path, sparse=True, segment_bytes=self._paths.segment_bytes)
            declare(writer, OrderAck, Fill)
            self._answers[strategy] = writer
        return self._answers[strategy]

    def step(self, timeout: float) -> bool:
        """Forward one record and return True, or wait for at most `timeout` seconds."""
        record = self._fan.next()
        if record is None:
            self._fan.wait(timeout)
            return False
        if record.source == _FILLS:
            self._answer(record)
        elif record.source is not None:
            self._route(record.source, record)
        return True

    def _route(self, strategy: str, record: Record) -> None:
        if record.seq <= self._last_routed.get(strategy, -1):
            self.skipped += 1
            return
        # The directory determines the strategy, so that none can send orders for another.
        origin = {"strategy": strategy, "source_seq": record.seq, "routed_ns": time.time_ns()}
        self._orders.append_message(replace(record.decode(), **origin))
        self._last_routed[strategy] = record.seq

    def _answer(self, record: Record) -> None:
        answers = self._answers_writer(record.decode().strategy)
        if record.seq < answers.next_seq:
            self.skipped += 1
            return
        answers.append(record.type_id, record.payload, seq=record.seq)

    def close(self) -> None:
        """Close everything."""
        self._fan.commit()
        self._discovery.close()
        readers = list(self._fan.readers.values())
        self._fan.close()
        for reader in readers:
            reader.close()
        for writer in (self._orders, *self._answers.values()):
            writer.close()

    def __repr__(self) -> str:
        return f"<Router {str(self._paths.root)!r} strategies={self._discovery.strategies}>"

    def __enter__(self) -> Router:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def run(process: Process) -> None:
    """Route until SIGTERM."""
    began = time.perf_counter()
    with Router(process.paths) as router:
        router.poll()
        process.say(
            "recovered" if router.epoch > 1 else "started",
            last_routed=router.found,
            seconds=time.perf_counter() - began,
        )
        next_poll = 0.0
        while not process.stopping:
            now = time.monotonic()
            if now >= next_poll:
                next_poll = now + _POLL_SECONDS
                process.renew_lease(process.paths.orders, router.epoch)
                router.poll()
            router.step(_POLL_SECONDS)
        process.clear_marks(process.paths.orders)
        process.say("stopped", skipped=router.skipped)


if __name__ == "__main__":
    main(run)
