"""Random logs of one instrument: books with gaps, resets and empty sides, and trades."""

import random

import tapewire as tw
from tapewire import replay
from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.protocol.market import TradeTick, l2_diff, l2_snapshot, l3_event, reset
from tests.support.book_tapes import BTC, ETH, ORDERS, START_NS, L2Feed, trade
from tests.support.plain_features import SECOND, Event

BOOK_EVENT, TRADE_TICK = 0x1000, 0x1004
NAMES = [
    *("bid", "ask", "bid_size", "ask_size", "mid", "spread", "spread_bps", "microprice"),
    *("imbalance1", "imbalance3", "imbalance50", "bid_depth2", "ask_depth2", "bid_depth50", "ofi"),
    *("trade_sign", "trade_price", "trade_size", "time_since_trade"),
    *("trade_flow_300ms", "trade_flow_5s", "volume_300ms", "volume_5s", "vwap_300ms", "vwap_5s"),
    *("volatility_1s", "volatility_3s"),
]
# Features that look back less than an hour: snapshots shorten the reading of their slices.
LONG_MEMORY = ("trade_sign", "trade_price", "trade_size", "time_since_trade")
SHORT_NAMES = [name for name in NAMES if name not in LONG_MEMORY]


def random_tape(seed, count, *, start=1_700_000_000 * SECOND, largest=50, offset=1000):
    """A book that moves, becomes untrusted and recovers; times repeat and jump."""
    rng = random.Random(seed)
    time, middle = start + rng.randrange(SECOND), offset
    bids, asks, trusted = {}, {}, False
    tape = []
    for _ in range(count):
        time += rng.choice([0, 0, 1, 1000, 10**6, 7 * 10**6, 10**8, 3 * 10**8])
        if rng.random() < 0.004:
            time += rng.randrange(90 * SECOND)
        # Now and then the recorded clock goes back; the log's clock does not.
        stamp = time - rng.randrange(SECOND) if rng.random() < 0.02 else time
        if rng.random() < 0.35:
            tape.append(
                Event(
                    stamp,
                    "trade",
                    price=middle + rng.randint(-3, 3),
                    size=rng.randint(1, largest),
                    maker=rng.choice([0, 0, 1, 1, 2]),
                )
            )
            continue
        middle += rng.choice([-1, 0, 0, 0, 1])
        if rng.random() < (0.01 if trusted else 0.5):
            bids = {middle - i: rng.randint(1, largest) for i in range(1, rng.randint(1, 9))}
            asks = {middle + i: rng.randint(1, largest) for i in range(1, rng.randint(1, 9))}
            tape.append(Event(stamp, "snapshot", tuple(bids.items()), tuple(asks.items())))
            trusted = True
            continue
        if rng.random() < 0.008:
            tape.append(Event(stamp, rng.choice(["reset", "lost"])))
            bids, asks, trusted = {}, {}, False
            continue
        changes = []
        for side, way in ((bids, -1), (asks, 1)):
            prices = [middle + way * rng.randint(-1, 8) for _ in range(rng.randrange(3))]
            if side and rng.random() < 0.05:
                prices = list(side)  # the complete side is removed
            levels = {}
            for price in prices:
                size = 0 if price in side and rng.random() < 0.6 else rng.randint(1, largest)
                if len(prices) > 2:
                    size = 0 if price in side else size
                levels[price] = size
                side.pop(price, None)
                if size:
                    side[price] = size
            changes.append(tuple(levels.items()))
        tape.append(Event(stamp, "diff", *changes))
    return tape


class TapeWriter:
    """Writes events into logs: one for all, or one for the book and one for trades."""

    def __init__(self, directory, instrument, *, apart=False):
        self.instrument = instrument
        self.book = directory / "book"
        self.trades = directory / "trades" if apart else self.book
        directory.mkdir(exist_ok=True)
        Instruments([instrument]).save(directory)
        self.update = 100

    @property
    def logs(self):
        return list(dict.fromkeys([self.book, self.trades]))

    def payload(self, event):
        one = self.instrument
        if event.kind == "trade":
            return TRADE_TICK, bytes(
                TradeTick(
                    timestamp_ns=event.time,
                    price=event.price,
                    size=event.size,
                    trade_id=0,
                    buyer_order_id=0,
                    seller_order_id=0,
                    symbol_hash=one.symbol_hash,
                    market_id=one.market_id,
                    price_scale=one.price_scale,
                    size_scale=one.size_scale,
                    is_buyer_maker=event.maker,
                )
            )
        if event.kind == "reset":
            return BOOK_EVENT, reset(one, event.time)
        if event.kind == "snapshot":
            levels = {"bids": list(event.bids), "asks": list(event.asks)}
            return BOOK_EVENT, l2_snapshot(one, event.time, **levels, native_seq=self.update)
        lost = 5 if event.kind == "lost" else 0
        self.update += 1 + lost
        ids = {"first": self.update, "last": self.update, "prev": self.update - 1}
        levels = {"bids": list(event.bids), "asks": list(event.asks)}
        return BOOK_EVENT, l2_diff(one, event.time, **levels, **ids)

    def write(self, tape, *, snapshots_every=None):
        """Append all events, then save a book snapshot every so many records."""
        writers = {log: tw.open_publisher(log, segment_bytes=1 << 20) for log in self.logs}
        for event in tape:
            type_id, payload = self.payload(event)
            log = self.trades if type_id == TRADE_TICK else self.book
            writers[log].append(type_id, payload, timestamp_ns=event.time)
        for writer in writers.values():
            writer.close()
        if snapshots_every:
            every = replay.Every(seconds=None, records=snapshots_every)
            replay.Snapshotter(self.book, every=every, keep=None).run(follow=False)


def instrument(price_scale=2, size_scale=3):
    return Instrument.of("venue", "SYM", price_scale=price_scale, size_scale=size_scale)


def write_three(path, count):
    """A log of two L2 books and one of orders, with trades of each, a few milliseconds apart."""
    rng = random.Random(count)
    feeds = [L2Feed(BTC, seed=1), L2Feed(ETH, seed=2)]
    orders, live = iter(range(1, count)), []
    Instruments([BTC, ETH, ORDERS]).save(path.parent)
    with tw.open_publisher(path, segment_bytes=1 << 20) as writer:
        for n in range(count):
            time = START_NS + n * 17 * 10**6
            one = rng.choice([BTC, ETH, ORDERS])
            if n < 2:
                writer.append(BOOK_EVENT, feeds[n].snapshot(time), timestamp_ns=time)
            elif rng.random() < 0.3:
                tick = trade(one, time, 10_000 + rng.randint(-5, 5), rng.randint(1, 9), n)
                writer.append(TRADE_TICK, tick, timestamp_ns=time)
            elif one is not ORDERS:
                payload = feeds[one is ETH].diff(time)
                writer.append(BOOK_EVENT, payload, timestamp_ns=time)
            else:
                side = 1 + n % 2
                fields = {"type": 1, "side": side, "order_id": next(orders), "qty": n % 7 + 1}
                fields["price"] = 10_000 + (2 * side - 3) * rng.randint(1, 20)
                if len(live) > 8:
                    fields = {"type": 2, "order_id": live.pop(rng.randrange(len(live))), "qty": 0}
                else:
                    live.append(fields["order_id"])
                payload = l3_event(ORDERS, time, **fields)
                writer.append(BOOK_EVENT, payload, timestamp_ns=time)


def segmented_book(directory, records):
    """A log of one instrument's book in small segments, a snapshot every 70 records; its path."""
    tape = TapeWriter(directory, instrument())
    with tw.open_publisher(directory / "book", segment_bytes=8192) as writer:
        for n in range(records):
            kind = "snapshot" if n % 70 == 0 else "diff"
            event = Event(1_000 + n, kind, ((1000 - n % 5, 1 + n),), ((1010 + n % 7, 1 + n),))
            type_id, payload = tape.payload(event)
            writer.append(type_id, payload, timestamp_ns=event.time)
    return directory / "book"
