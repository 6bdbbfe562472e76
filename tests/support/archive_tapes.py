"""A random market of one instrument as an archive: per day a log of the book and one of trades."""

import datetime as dt
import random
from dataclasses import replace

import tapewire as tw
from tapewire import bus, replay
from tapewire.protocol.instruments import Instruments
from tapewire.protocol.market import l3_event
from tests.support.book_tapes import ORDERS, START_NS
from tests.support.feature_tapes import TRADE_TICK, TapeWriter, instrument, random_tape

VENUE, SYMBOL = "venue", "SYM"
FIRST_DAY, ONE_DAY = dt.date(2023, 11, 14), dt.timedelta(days=1)


def write_archive(
    root, seed, count, *, days=3, gap_ns=5 * 10**9, snapshots_every=25, segment_bytes=1 << 20
):
    """Events in `days` equal parts, in order; a new day does not begin with a snapshot.

    Returns:
        The events.
    """
    rng = random.Random(seed)
    writer = TapeWriter(root, instrument())
    layout = bus.ArchiveLayout(root)
    tape = []
    whole, size = random_tape(seed, count), -(-count // days)
    for day, begin in enumerate(range(0, count, size)):
        part = whole[begin : begin + size]
        shift = 0
        if tape:  # the time of no two days is the same
            shift = max(event.time for event in tape) - min(event.time for event in part)
            shift = max(shift, 0) + rng.randrange(1, gap_ns)
        events = [_later(event, shift) for event in part]
        logs = {}
        for event in events:
            type_id, payload = writer.payload(event)
            stream = "trades" if type_id == TRADE_TICK else "book"
            if stream not in logs:
                path = layout.log(VENUE, SYMBOL, FIRST_DAY + day * ONE_DAY, stream)
                logs[stream] = tw.open_publisher(path, segment_bytes=segment_bytes)
            logs[stream].append(type_id, payload, timestamp_ns=event.time)
        for log in logs.values():
            log.close()
        if snapshots_every and "book" in logs:
            save_books(
                layout.log(VENUE, SYMBOL, FIRST_DAY + day * ONE_DAY, "book"), snapshots_every
            )
        tape += events
    Instruments([instrument()]).save(root)
    return tape


def save_books(log, records):
    replay.Snapshotter(log, every=replay.Every(records=records), keep=None).run(follow=False)


def _later(event, shift):
    return replace(event, time=event.time + shift)


def write_orders(root, seed, count, *, days=2, snapshots_every=25, resets=()):
    """The same for single orders, many of which rest over several days.

    Days in `resets` begin with a reset.
    """
    rng = random.Random(seed)
    live, time = [], START_NS
    for day in range(days):
        path = bus.ArchiveLayout(root).log(
            ORDERS.venue, ORDERS.symbol, FIRST_DAY + day * ONE_DAY, "book"
        )
        with tw.open_publisher(path, segment_bytes=1 << 20) as writer:
            if day in resets:
                time += 10**9
                writer.append(0x1000, l3_event(ORDERS, time, type=5), timestamp_ns=time)
                live = []
            for n in range(count // days):
                time += rng.randrange(1, 40_000_000)
                fields = {"type": 1, "side": 1 + n % 2, "order_id": day * count + n + 1}
                fields |= {
                    "qty": n % 7 + 1,
                    "price": 10_000 + (2 * (n % 2) - 1) * rng.randint(1, 20),
                }
                if len(live) > 30 and rng.random() < 0.6:
                    fields = {"type": 2, "order_id": live.pop(rng.randrange(len(live))), "qty": 0}
                else:
                    live.append(fields["order_id"])
                writer.append(0x1000, l3_event(ORDERS, time, **fields), timestamp_ns=time)
        if snapshots_every:
            save_books(path, snapshots_every)
        time += 10**9
    Instruments([ORDERS]).save(root)
