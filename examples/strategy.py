"""A strategy: follows the prices of examples/feed.py, and goes on where it stopped.

    python examples/strategy.py /tmp/prices

Stop it (Ctrl-C, or even kill -9) and start it again: it resumes behind what it committed last.
"""

import argparse

from feed import PRICE, PRICE_DTYPE

import tapewire as tw

COMMIT_EVERY = 100


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("queue", help="folder of the queue")
    parser.add_argument("--name", default="strategy", help="the position is kept under this name")
    parser.add_argument("--records", type=int, default=None, help="stop after so many")
    parser.add_argument("--idle", type=float, default=3.0, help="stop after so many quiet seconds")
    arguments = parser.parse_args()

    averages = {}
    signals = seen = 0
    with tw.open_subscriber(
        arguments.queue, arguments.name, types={PRICE}, create_timeout=10.0
    ) as reader:
        for record in reader.follow(timeout=arguments.idle):
            if seen == 0:
                print(f"{arguments.name}: starting at number {record.seq}", flush=True)
            seen += 1
            price = record.view(PRICE_DTYPE)[0]  # in place: nothing is copied
            middle = (int(price["bid"]) + int(price["ask"])) / 2
            average = averages.setdefault(price["symbol"], middle)
            averages[price["symbol"]] = average + (middle - average) / 50
            signals += abs(middle - average) > 20  # so far from its average: buy or sell
            if seen % COMMIT_EVERY == 0:
                reader.commit()  # whatever is behind this will not be seen again
            if seen == arguments.records:
                break
        reader.commit()
        print(f"{arguments.name}: {seen} prices, {signals} signals, stopped at {reader.last_seq}")


if __name__ == "__main__":
    main()
