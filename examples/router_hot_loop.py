"""A router whose hot loop asks nothing of the kernel: what may wait is done by a sidecar thread.

    python examples/router_hot_loop.py /tmp/bus --strategies 1 --orders 1000 &
    python - <<END
    import tapewire as tw
    from tapewire import bus
    alpha = bus.Layout("/tmp/bus").orders.strategy("alpha")
    with tw.open_publisher(alpha.orders_out, segment_bytes=1 << 20) as orders:
        bus.mark_ready(alpha.orders_out)
        for n in range(1000):
            orders.append(0x3001, b"buy 1 BTCUSDT")
        input("the router answers into " + str(alpha.orders_in))
    END

The sidecar discovers strategies, opens and closes their queues. The hot thread, pinned to a core,
takes what is open, reads orders and answers each. Between pinning itself and its last answer it
makes no system call while the sidecar sleeps; when that wakes up, it takes the GIL for a moment.
"""

import argparse
import contextlib
import gc
import os
import select
import sys
import threading

import tapewire as tw
from tapewire import bus

FILL = 0x3002
# memlock needs a limit raised. Each strategy costs two such segments of memory or disk.
FILLS = tw.WriterConfig.live(memlock=False, segment_bytes=4 << 20)


class Lane:
    """A strategy's two queues, opened."""

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
        self.joining = bus.Handover(1024)  # to the hot thread: a lane that it does not have is new,
        self.leaving = bus.Handover(1024)  # one that it has is to be given back here
        self._layout = layout
        self._lanes = {}
        self._end = os.eventfd(0, os.EFD_CLOEXEC)

    def run(self):
        # Strategies come seldom, and inotify tells: a long sleep leaves the hot thread alone.
        with bus.RouterDiscovery(self._layout.orders, rescan=30.0) as discovery:
            while True:
                for event in discovery.poll():
                    self._join(event) if isinstance(event, bus.Added) else self._leave(event)
                while (lane := self.leaving.take()) is not None:
                    lane.close()
                if (
                    self._end
                    in select.select([discovery, self._end], [], [], discovery.rescan_in)[0]
                ):
                    break
        for lane in self._lanes.values():
            lane.close()

    def stop(self):
        """Close all queues; the hot thread uses them no more."""
        os.eventfd_write(self._end, 1)
        self.join()
        os.close(self._end)

    def _join(self, event):
        try:
            lane = Lane(event.strategy, self._layout.orders.strategy(event.strategy))
        except (tw.TapewireError, OSError) as error:
            print(f"router: {event.strategy} is left out: {error}", file=sys.stderr)
            return
        self._lanes[event.strategy] = lane
        if not self.joining.offer(lane):
            raise RuntimeError("the hot thread has not taken 1024 strategies")

    def _leave(self, event):
        lane = self._lanes.pop(event.strategy, None)
        if lane is not None and not self.joining.offer(lane):
            raise RuntimeError("the hot thread has not taken 1024 strategies")


def answer_orders(sidecar, lanes, count):
    """The hot loop: `count` orders answered, from whoever sends them."""
    changed, give_back = sidecar.joining.take, sidecar.leaving.offer
    while count > 0:
        if (lane := changed()) is not None:
            if lane in lanes:
                lanes.remove(lane)
                give_back(lane)
            else:
                lanes.append(lane)
        for lane in lanes:
            if (order := lane.orders.next()) is not None:
                lane.fills.append(FILL, order.payload)
                lane.orders.commit()
                count -= 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bus", help="root folder of the bus")
    parser.add_argument("--strategies", type=int, default=1, help="begin when so many are there")
    parser.add_argument("--orders", type=int, default=10_000, help="stop after so many")
    parser.add_argument("--core", type=int, help="run on this core; default: the last")
    arguments = parser.parse_args()

    sidecar = Sidecar(bus.Layout(arguments.bus))
    sidecar.start()
    try:
        lanes = []
        while len(lanes) < arguments.strategies:
            if (lane := sidecar.joining.take()) is not None:
                lanes.append(lane)
        gc.collect()
        gc.freeze()
        gc.disable()
        # After opening: the native threads would inherit the core.
        core = max(os.sched_getaffinity(0)) if arguments.core is None else arguments.core
        bus.pin_to_core(core)
        answer_orders(sidecar, lanes, arguments.orders)
        print(f"router: answered {arguments.orders} orders of {len(lanes)} strategies")
    finally:
        sidecar.stop()


if __name__ == "__main__":
    main()
