"""A passive subscriber: waits for a feed, follows it, and reports when its writer ends or returns.

    python examples/passive_subscriber.py /tmp/bus/streams/raw/demo/queue

It may be started first. Your program decides what a lost feed means, "cancel all" or "wait"; this
one only prints it.
"""

import argparse
import time

from tapewire import bus


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("queue", help="directory of the queue; may be created later")
    parser.add_argument("--name", default="passive", help="name of the reader")
    parser.add_argument("--idle", type=float, default=None, help="stop after so many idle seconds")
    arguments = parser.parse_args()

    records = 0
    busy_at = time.monotonic()
    with bus.SubscriberDiscovery(arguments.queue, arguments.name) as discovery:
        while arguments.idle is None or time.monotonic() - busy_at < arguments.idle:
            match discovery.poll():
                case bus.Waiting(reason):
                    print(f"{arguments.name}: waiting, {reason}", flush=True)
                case bus.Connected(reader):
                    print(f"{arguments.name}: connected to {reader.path}", flush=True)
                case bus.Disconnected(reason):
                    print(f"{arguments.name}: the writer went: {reason.value}", flush=True)
            if discovery.reader is None:
                time.sleep(0.05)
                continue
            for record in discovery.reader.follow(timeout=0.1):
                records += 1
                busy_at = time.monotonic()
                if records % 1_000 == 0:
                    late = (time.time_ns() - record.timestamp_ns) / 1e3
                    print(f"{arguments.name}: {records} records, the last {late:.0f} µs old")
                    break  # poll the discovery again
            discovery.reader.commit()
    print(f"{arguments.name}: {records} records")


if __name__ == "__main__":
    main()
