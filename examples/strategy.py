"""A strategy: follows the prices of examples/feed.py, and resumes where it stopped.

    python examples/strategy.py /tmp/bus/streams/raw/demo/queue --bus /tmp/bus

With `--bus`, it sends an order at each signal, for examples/router.py. Stop it (Ctrl-C, or even
kill -9) and start it again: it resumes after its last commit, and sends no order twice.
"""

import argparse

from feed import PRICE, PRICE_DTYPE

import tapewire as tw
from tapewire import bus
from tapewire.protocol.orders import NewOrder, Side

COMMIT_EVERY = 100


class Orders:
    """The queue of orders. Its records were sent, so its end shows where to resume."""

    def __init__(self, root, name):
        self.name = name
        path = bus.Layout(root).orders.strategy(name).orders_out
        self.writer = tw.open_publisher(path, segment_bytes=1 << 20)
        with tw.open_log(path) as log:
            self.sent_for = max((record.decode().trigger_seq for record in log), default=-1)
        bus.write_lease(path, epoch=self.writer.epoch)
        bus.mark_ready(path)  # from here on, the router finds this strategy

    def send(self, record, symbol, side, price):
        if record.seq > self.sent_for:  # otherwise, an earlier process has sent it
            what = (self.name, symbol, self.writer.next_seq, price, 1, side)
            trigger = {"trigger_seq": record.seq, "trigger_ns": record.timestamp_ns}
            self.writer.append_message(NewOrder(*what, **trigger))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("queue", help="directory of the queue of prices")
    parser.add_argument("--bus", help="root of the bus for orders; without it, none are sent")
    parser.add_argument("--name", default="strategy", help="name of the reader and of the strategy")
    parser.add_argument("--records", type=int, default=None, help="stop after so many prices")
    parser.add_argument("--idle", type=float, default=3.0, help="stop after so many idle seconds")
    arguments = parser.parse_args()

    orders = Orders(arguments.bus, arguments.name) if arguments.bus else None
    averages = {}
    signals = seen = 0
    with tw.open_subscriber(
        arguments.queue, arguments.name, types={PRICE}, create_timeout=10.0
    ) as reader:
        for record in reader.follow(timeout=arguments.idle):
            if seen == 0:
                print(f"{arguments.name}: starting at seq {record.seq}", flush=True)
            seen += 1
            symbol, bid, ask = record.view(PRICE_DTYPE)[0].tolist()[:3]  # in place: no copy
            middle = (bid + ask) / 2
            average = averages.setdefault(symbol, middle)
            averages[symbol] = average + (middle - average) / 50
            if abs(middle - average) > 20:  # far from its average, so expected to revert
                signals += 1
                if orders is not None:
                    high = middle > average
                    side, price = (Side.SELL, bid) if high else (Side.BUY, ask)
                    orders.send(record, symbol.decode(), side, price)
            if seen % COMMIT_EVERY == 0:
                reader.commit()  # earlier records are not read again
            if seen == arguments.records:
                break
        reader.commit()
        print(f"{arguments.name}: {seen} prices, {signals} signals, stopped at {reader.last_seq}")


if __name__ == "__main__":
    main()
