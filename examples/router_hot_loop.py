"""A router whose hot loop makes no system call: a sidecar thread does what may wait.

    python examples/router_hot_loop.py /tmp/bus --strategies 1 --orders 1000 &
    python - <<END
    import tapewire as tw
    from tapewire import bus
    alpha = bus.Layout("/tmp/bus").orders.strategy("alpha")
    with tw.open_publisher(alpha.orders_out, segment_bytes=1 << 20) as orders:
        bus.mark_ready(alpha.orders_out)
        for n in range(1000):
            orders.append(0x3001, b"buy 1 BTCUSDT")
        input("the router writes its answers to " + str(alpha.orders_in))
    END

The sidecar discovers strategies, opens and closes their queues. The hot thread takes the open
queues, merges the orders and answers each. Between pinning itself to a core and its last answer, it
makes no system call, unless the sidecar wakes up, which takes the GIL for a moment.
"""

import argparse
import contextlib
import gc
import os
import selectors
import sys
import threading
import time

import tapewire as tw
from tapewire import bus

FILL = 0x3002
# memlock needs a higher limit. Each strategy takes two such segments of memory or disk.
FILLS = tw.WriterConfig.live(memlock=False, segment_bytes=4 << 20)


class Lane:
    """The two open queues of a strategy."""

    def __init__(self, strategy, endpoints):
        self.strategy = strategy
        with contextlib.ExitStack() as undo:
            self.orders = undo.enter_context(tw.open_subscriber(endpoints.orders_out, "router"))
            self.fills = undo.enter_context(tw.open_publisher(endpoints.orders_in, FILLS))
            self.close = undo.pop_all().close


class Sidecar(threading.Thread):
    """The cold path: finds strategies, opens and closes their queues."""

    def __init__(self, layout):
        super().__init__(name="sidecar")
        self.changed = bus.Handover(1024)  # to the hot thread: lanes to add or remove
        self.given_up = bus.Handover(1024)  # and back
        self._layout = layout
        self._lanes = {}
        self._over = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)

    def run(self):
        # Strategies are rare, and inotify reports them: a long sleep spares the hot thread.
        with (
            bus.RouterDiscovery(self._layout.orders, rescan=30.0) as discovery,
            selectors.DefaultSelector() as selector,
        ):
            selector.register(discovery, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while not self._over:
                for event in discovery.poll():
                    if isinstance(event, bus.Added):
                        self._join(event.strategy)
                    elif event.strategy in self._lanes:
                        self._leave(self._lanes.pop(event.strategy))
                selector.select(discovery.rescan_in)
        for lane in self._lanes.values():
            lane.close()

    def stop(self):
        """Close all queues, which the hot thread no longer uses."""
        self._over = True
        os.eventfd_write(self._wake, 1)
        self.join()
        os.close(self._wake)

    def _join(self, strategy):
        try:
            lane = Lane(strategy, self._layout.orders.strategy(strategy))
        except (tw.TapewireError, OSError) as error:
            print(f"router: {strategy} is skipped: {error}", file=sys.stderr)
            return
        self._lanes[strategy] = lane
        self._pass(lane)

    def _leave(self, lane):
        self._pass(lane)
        # Closed after the hot thread has returned it, and before the strategy returns.
        while self.given_up.take() is not lane and not self._over:
            time.sleep(0.001)
        lane.close()

    def _pass(self, lane):
        while not self.changed.offer(lane) and not self._over:
            time.sleep(0.001)


class HotLoop:
    """The hot path: reads all orders by time and answers each to its strategy."""

    def __init__(self, sidecar):
        self._changed, self._give_up = sidecar.changed.take, sidecar.given_up.offer
        self._fan = bus.FanInReader(max_skew=0.0)  # no order waits for another strategy's
        self.lanes = {}

    def join(self, count):
        """Wait for so many strategies."""
        while len(self.lanes) < count:
            if (lane := self._changed()) is not None:
                self._change(lane)

    def answer(self, count):
        """Answer so many orders."""
        look, changed, lanes = self._fan.next, self._changed, self.lanes
        while count > 0:
            if (lane := changed()) is not None:
                self._change(lane)
            if (order := look()) is not None:
                lane = lanes[order.source]
                lane.fills.append(FILL, order.payload)
                lane.orders.commit()
                count -= 1

    def close(self):
        """Return the readers to the sidecar."""
        self._fan.close()

    def _change(self, lane):
        if self.lanes.get(lane.strategy) is lane:
            self._fan.remove(lane.strategy)
            self._give_up(self.lanes.pop(lane.strategy))
        else:
            self._fan.add(lane.strategy, lane.orders)
            self.lanes[lane.strategy] = lane


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bus", help="root directory of the bus")
    parser.add_argument("--strategies", type=int, default=1, help="start with so many strategies")
    parser.add_argument("--orders", type=int, default=10_000, help="stop after so many orders")
    parser.add_argument("--core", type=int, help="run on this core; default: the last")
    arguments = parser.parse_args()

    sidecar = Sidecar(bus.Layout(arguments.bus))
    sidecar.start()
    hot = HotLoop(sidecar)
    try:
        hot.join(arguments.strategies)
        gc.collect()
        gc.freeze()
        gc.disable()
        # After opening, so that the native threads do not inherit the core.
        core = max(os.sched_getaffinity(0)) if arguments.core is None else arguments.core
        bus.pin_to_core(core)
        hot.answer(arguments.orders)
        print(f"router: answered {arguments.orders} orders of {len(hot.lanes)} strategies")
    finally:
        hot.close()
        sidecar.stop()


if __name__ == "__main__":
    main()
