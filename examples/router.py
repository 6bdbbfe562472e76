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
                except (tw.TapewireError, OSError) as error:  # no reason to leave the others alone
                    print(f"router: {name} is left out: {error}", file=sys.stderr)
                else:
                    print(f"router: {name} is here", flush=True)
            elif name in self.fan.readers:
                self.fan.remove(name).close()
                print(f"router: {name} has gone", flush=True)

    def join(self, name):
        """A reader of the strategy's orders, behind those that were answered."""
        ends = self.layout.orders.strategy(name)
        if name not in self.answers:
            self.answers[name] = tw.open_publisher(
                ends.orders_in, segment_bytes=1 << 20, sparse=True
            )
        behind = tw.Seq(self.answers[name].next_seq)
        return tw.open_subscriber(ends.orders_out, "router", start=behind, types={NewOrder.type_id})

    def answer(self, record):
        try:
            order, fill_id = NewOrder.decode(record), record.seq
        except tw.TapewireError as error:
            print(f"router: not an order, from {record.source}: {error}", file=sys.stderr)
            return
        what = (fill_id, fill_id, record.seq, order.strategy, order.symbol, order.client_order_id)
        how = (order.price, order.qty, order.side, Liquidity.TAKER)
        self.answers[record.source].append_message(Fill(*what, *how), seq=record.seq)
        self.filled += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bus", help="root of the bus")
    parser.add_argument("--idle", type=float, default=None, help="stop after so many quiet seconds")
    arguments = parser.parse_args()

    router = PaperRouter(arguments.bus)
    busy_at = time.monotonic()
    while arguments.idle is None or time.monotonic() - busy_at < arguments.idle:
        router.look()
        for record in router.fan.follow(timeout=0.05):
            router.answer(record)
            busy_at = time.monotonic()
        router.fan.commit()
    print(f"router: {router.filled} orders filled on paper")


if __name__ == "__main__":
    main()
