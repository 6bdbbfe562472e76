"""A hot loop: answers every price of examples/feed.py without a system call.

    python examples/feed.py /tmp/prices --seconds 60 &
    strace -f -o calls.txt python examples/hot_loop.py /tmp/prices /tmp/orders

The thread makes no system call between pinning itself to a core and its last answer.
"""

import argparse
import gc
import os

from feed import PRICE

import tapewire as tw

ORDER = 0x3001


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("prices", help="directory of the queue to follow")
    parser.add_argument("orders", help="directory of the queue for the answers")
    parser.add_argument("--records", type=int, default=10_000, help="stop after this many")
    parser.add_argument("--core", type=int, help="run on this core; default: the last")
    arguments = parser.parse_args()

    with (
        tw.open_subscriber(
            arguments.prices, "hot", types={PRICE}, wait=tw.BusySpin(), create_timeout=10.0
        ) as reader,
        # `live` returns when the next segment is ready; memlock would need a raised limit.
        tw.open_publisher(arguments.orders, tw.WriterConfig.live(memlock=False)) as writer,
    ):
        poll, answer = reader.next, writer.append
        left = arguments.records
        gc.collect()
        gc.freeze()
        gc.disable()
        # After opening, since native threads inherit the core.
        core = max(os.sched_getaffinity(0)) if arguments.core is None else arguments.core
        os.sched_setaffinity(0, {core})
        while left:
            if (price := poll()) is not None:
                answer(ORDER, price.payload)
                left -= 1
        print(f"hot_loop: answered {arguments.records} prices, the last was {reader.last_seq}")
        reader.commit()


if __name__ == "__main__":
    main()
