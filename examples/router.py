"""A router: finds strategies on a bus, merges their orders, and answers each with a paper fill.

    python examples/router.py /tmp/bus

Start it before or after the strategies; stop it (even by kill -9) and start it again: an answer has
the sequence number of its order, so the end of each `orders_in` shows what was answered.
"""

import argparse
import sys
import time

import tapewire as tw
from tapewire import bus
from tapewire.protocol.orders import Fill, Liquidity, NewOrder

ANSWERS = tw.WriterConfig(segment_bytes=1 << 20, sparse=True)  # seq of the orders


class PaperRouter:
    def __init__(self, root):
        self.layout = bus.Layout(root)
        self.discovery = bus.RouterDiscovery(self.layout.orders)
        self.fan = bus.FanInReader(max_skew=0.001)  # by time, over all strategies
        self.answers = {}
        self.filled = 0

    def discover(self):
        """Add and remove strategies: the cold path, a few times per second."""
        for event in self.discovery.poll():
            name = event.strategy
            if isinstance(event, bus.Added):
                try:
                    self.fan.add(name, self.join(name))
                    print(f"router: {name} joined", flush=True)
                except (tw.TapewireError, OSError) as error:  # the other strategies continue
                    print(f"router: {name} is skipped: {error}", file=sys.stderr)
            elif name in self.fan.readers:
                self.fan.remove(name).close()
                print(f"router: {name} left", flush=True)

    def join(self, name):
        """A reader of the strategy's orders, after those that were answered."""
        ends = self.layout.orders.strategy(name)
        if name not in self.answers:
            self.answers[name] = tw.open_publisher(ends.orders_in, ANSWERS)
        start = tw.Seq(self.answers[name].next_seq)
        return tw.open_subscriber(ends.orders_out, "router", start=start, types={NewOrder.type_id})

    def answer(self, record):
        try:
            order = NewOrder.decode(record)
        except tw.TapewireError as error:
            print(f"router: not an order, from {record.source}: {error}", file=sys.stderr)
            return
        what = (record.seq,) * 3 + (order.strategy, order.symbol, order.client_order_id)
        fill = Fill(*what, order.price, order.qty, order.side, Liquidity.TAKER)
        self.answers[record.source].append_message(fill, seq=record.seq)
        self.filled += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bus", help="root of the bus")
    parser.add_argument("--idle", type=float, default=None, help="stop after so many idle seconds")
    arguments = parser.parse_args()
    router, busy_at = PaperRouter(arguments.bus), time.monotonic()
    while arguments.idle is None or time.monotonic() - busy_at < arguments.idle:
        router.discover()
        if router.fan.wait(0.05):
            busy_at = time.monotonic()
        for record in router.fan:  # only what is there now, so that discovery runs again
            router.answer(record)
        router.fan.commit()
    print(f"router: {router.filled} orders filled on paper")


if __name__ == "__main__":
    main()
