"""A feed: generates random prices and appends them to a queue.

    python examples/feed.py /tmp/prices --seconds 5

Run examples/strategy.py on the same directory, in another terminal, before, during or after.
"""

import argparse
import random
import time

import numpy as np

import tapewire as tw

PRICE = 0x0100  # a message type: its id, and its layout
PRICE_DTYPE = np.dtype(
    [("symbol", "S8"), ("bid", "<i8"), ("ask", "<i8"), ("bid_size", "<i8"), ("ask_size", "<i8")]
)
SYMBOLS = (b"BTC-USD", b"ETH-USD", b"SOL-USD")


def prices(seed=None):
    """An endless random walk of prices, in integer cents."""
    choose = random.Random(seed)
    middle = dict.fromkeys(SYMBOLS, 1_000_000)
    row = np.zeros(1, PRICE_DTYPE)
    while True:
        symbol = choose.choice(SYMBOLS)
        middle[symbol] += choose.randint(-5, 5)
        sizes = choose.randint(1, 500), choose.randint(1, 500)
        row[0] = (symbol, middle[symbol] - 1, middle[symbol] + 1, *sizes)
        yield row.tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("queue", help="directory of the queue; created if missing")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=1_000.0, help="prices per second")
    arguments = parser.parse_args()

    with tw.open_publisher(arguments.queue) as writer:
        print(f"feed: appending to {arguments.queue} from seq {writer.next_seq}", flush=True)
        first = writer.next_seq
        end = time.monotonic() + arguments.seconds
        for payload in prices():
            if time.monotonic() >= end:
                break
            writer.append(PRICE, payload)
            time.sleep(1 / arguments.rate)
        print(f"feed: {writer.next_seq - first} prices appended, up to {writer.next_seq - 1}")


if __name__ == "__main__":
    main()
