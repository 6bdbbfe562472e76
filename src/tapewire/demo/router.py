"""The router: finds the strategies, sends their orders to the exchange and their fills back.

It keeps nothing in memory that its own output does not tell: each order that it passed on carries
the number it has in the strategy's queue, and each fill keeps the exchange's number in
`orders_in`. Readers commit what was passed on, so that a start need not read far back; the output
decides what goes out.
"""

from __future__ import annotations

import time
from pathlib import Path

from tapewire.bus import Added, FanInReader, Removed, RouterDiscovery
from tapewire.demo.places import Places
from tapewire.demo.process import Process, main
from tapewire.demo.tape import records
from tapewire.files import is_queue
from tapewire.log import Record
from tapewire.protocol import declare, replace
from tapewire.protocol.orders import CancelOrder, Fill, NewOrder, OrderAck
from tapewire.queue import Reader, Writer, open_publisher, open_subscriber

__all__ = ["Router", "last_routed"]

_LOOK_EVERY = 0.05  # seconds between looks at the discovery
_ORDERS = frozenset({NewOrder.type_id, CancelOrder.type_id})
_FILLS = "exchange/fills"  # no strategy has this name: a name has no slash


def last_routed(path: Path) -> dict[str, int]:
    """The number of the last order of each strategy that the router has passed on."""
    last: dict[str, int] = {}
    for record in records(path):
        order = record.decode()
        last[order.strategy] = order.source_seq  # they rise
    return last


class Router:
    """Its readers and writers; `step` moves one record."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._last_routed = last_routed(places.orders)
        self._orders = open_publisher(places.orders, segment_bytes=places.segment_bytes)
        self._answers: dict[str, Writer] = {}
        # Every orders_in that there is, also of strategies that are not ready now.
        for name in places.strategies():
            self._answers_to(name)
        self.found = dict(self._last_routed)
        self.skipped = 0
        self._discovery = RouterDiscovery(places.layout.orders)
        self._fan = FanInReader(max_skew=0)  # by time, and nobody waits for the others

    @property
    def epoch(self) -> int:
        """Which life of the router it is."""
        return self._orders.epoch

    def look(self) -> None:
        """Take strategies in and let them go, as discovery tells; keep how far we are."""
        self._fan.commit()
        if _FILLS not in self._fan.readers and is_queue(self._places.fills):
            fills = open_subscriber(
                self._places.fills, "router", types={OrderAck.type_id, Fill.type_id}
            )
            self._fan.add(_FILLS, fills)
        for event in self._discovery.poll():
            match event:
                case Added(strategy, orders_out):
                    self._answers_to(strategy)
                    self._fan.add(strategy, open_subscriber(orders_out, "router", types=_ORDERS))
                case Removed(strategy):
                    self._let_go(strategy)

    def _let_go(self, strategy: str) -> None:
        reader: Reader = self._fan.remove(strategy)
        for record in reader:  # what it sent before it went
            self._route(strategy, record)
        reader.commit()
        reader.close()

    def _answers_to(self, strategy: str) -> Writer:
        if strategy not in self._answers:
            # Sparse: a fill keeps the number it has in the exchange's queue.
            path = self._places.strategy(strategy).orders_in
            writer = open_publisher(path, sparse=True, segment_bytes=self._places.segment_bytes)
            declare(writer, OrderAck, Fill)
            self._answers[strategy] = writer
        return self._answers[strategy]

    def step(self, timeout: float) -> bool:
        """Pass one record on, or wait for one at most `timeout` seconds; whether there was one."""
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
        # The folder says whose order it is: a strategy cannot speak for another.
        origin = {"strategy": strategy, "source_seq": record.seq, "routed_ns": time.time_ns()}
        self._orders.append_message(replace(record.decode(), **origin))
        self._last_routed[strategy] = record.seq

    def _answer(self, record: Record) -> None:
        answers = self._answers_to(record.decode().strategy)
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
        return f"<Router {str(self._places.root)!r} strategies={self._discovery.strategies}>"

    def __enter__(self) -> Router:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def run(process: Process) -> None:
    """Route until told to stop."""
    began = time.perf_counter()
    with Router(process.places) as router:
        router.look()
        process.say(
            "recovered" if router.epoch > 1 else "started",
            last_routed=router.found,
            seconds=time.perf_counter() - began,
        )
        look_at = 0.0
        while not process.stopping:
            now = time.monotonic()
            if now >= look_at:
                look_at = now + _LOOK_EVERY
                process.renew_lease(process.places.orders, router.epoch)
                router.look()
            router.step(_LOOK_EVERY)
        process.sign_off(process.places.orders)
        process.say("stopped", skipped=router.skipped)


if __name__ == "__main__":
    main(run)
