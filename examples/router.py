"""A router: finds strategies on a bus, merges their orders, and answers each with a fill on paper.

    python examples/router.py /tmp/bus

Start it before or after the strategies; stop it (even by kill -9) and start it again: an answer has
the number of its order, so the end of each `orders_in` tells what was answered.
"""

import argparse
import sys
import time

import tapewire as tw
from tapewire import bus
from tapewire.protocol.orders import Fill, Liquidity, NewOrder

ANSWERS = tw.WriterConfig(segment_bytes=1 << 20, sparse=True)  # the numbers are those of the orders


class PaperRouter:
    def __init__(self, root):
        self.layout = bus.Layout(root)
        self.discovery = bus.RouterDiscovery(self.layout.orders)
        self.fan = bus.FanInReader(max_skew=0.001)  # by time, over all strategies
        self.answers = {}
        self.filled = 0

    def look(self):
        """Strategies come and go: cold, a few times a second."""
        for event in self.discovery.poll():
            name = event.strategy
            if isinstance(event, bus.Added):
                try:
                    self.fan.add(name, self.join(name))
                    print(f"router: {name} is here", flush=True)
                except (tw.TapewireError, OSError) as error:  # no reason to leave the others alone
                    print(f"router: {name} is left out: {error}", file=sys.stderr)
            elif name in self.fan.readers:
                self.fan.remove(name).close()
                print(f"router: {name} has gone", flush=True)

    def join(self, name):
        """A reader of the strategy's orders, behind those that were answered."""
        ends = self.layout.orders.strategy(name)
        if name not in self.answers:
            self.answers[name] = tw.open_publisher(ends.orders_in, ANSWERS)
        behind = tw.Seq(self.answers[name].next_seq)
        return tw.open_subscriber(ends.orders_out, "router", start=behind, types={NewOrder.type_id})

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
    parser.add_argument("--idle", type=float, default=None, help="stop after so many quiet seconds")
    arguments = parser.parse_args()
    router, busy_at = PaperRouter(arguments.bus), time.monotonic()
    while arguments.idle is None or time.monotonic() - busy_at < arguments.idle:
        router.look()
        if router.fan.wait(0.05):
            busy_at = time.monotonic()
        for record in router.fan:  # what is there now: a stream of orders must not end the looking
            router.answer(record)
        router.fan.commit()
    print(f"router: {router.filled} orders filled on paper")


if __name__ == "__main__":
    main()
