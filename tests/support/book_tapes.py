"""Logs of order books for tests: seeded, each with the naive book of its events."""

import random

import tapewire as tw
from tapewire.bus import ArchiveLayout
from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.protocol.market import TradeTick, l2_diff, l2_snapshot, l3_event

BTC = Instrument.of("binance", "BTCUSDT", price_scale=2, size_scale=3)
ETH = Instrument.of("binance", "ETHUSDT", price_scale=2, size_scale=3)
ORDERS = Instrument.of("nasdaq", "AAPL", price_scale=4, size_scale=0, book_mode="l3")
BOOK_EVENT = 0x1000
TRADE_TICK = 0x1004
START_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000  # one millisecond between records


class L2Feed:
    """The events of one L2 book: a snapshot, then diffs of absolute sizes with a chain of ids."""

    def __init__(self, instrument=BTC, seed=1, levels=20):
        self.instrument = instrument
        self.random = random.Random(seed)
        self.update = 100
        self.bids = {10_000 - i: 1 + i for i in range(levels)}
        self.asks = {10_001 + i: 1 + i for i in range(levels)}

    def snapshot(self, time):
        return l2_snapshot(
            self.instrument,
            time,
            bids=sorted(self.bids.items(), reverse=True),
            asks=sorted(self.asks.items()),
            native_seq=self.update,
        )

    def diff(self, time):
        changes = []
        for side, near in ((self.bids, 10_000), (self.asks, 10_001)):
            price = near + self.random.randint(0, 30) * (1 if side is self.asks else -1)
            size = self.random.choice([0, 1, 2, 3, 5, 8])
            side.pop(price, None)
            if size:
                side[price] = size
            changes.append([(price, size)])
        self.update += 1
        ids = {"first": self.update, "last": self.update, "prev": self.update - 1}
        return l2_diff(self.instrument, time, bids=changes[0], asks=changes[1], **ids)


def trade(instrument, time, price, size, trade_id):
    return bytes(
        TradeTick(
            timestamp_ns=time,
            price=price,
            size=size,
            trade_id=trade_id,
            buyer_order_id=0,
            seller_order_id=0,
            symbol_hash=instrument.symbol_hash,
            market_id=instrument.market_id,
            price_scale=instrument.price_scale,
            size_scale=instrument.size_scale,
            is_buyer_maker=0,
        )
    )


def write_l2(path, events=300, *, seed=1, feeds=None, snapshot_every=None, lose=(), **options):
    """A queue with the events of one or more L2 books, one record a millisecond.

    `lose`: diffs (by their place) that the venue sent but the log does not have.
    """
    feeds = feeds or [L2Feed(seed=seed)]
    Instruments([feed.instrument for feed in feeds]).save(path.parent)
    options = {"segment_bytes": 1 << 16, **options}
    with tw.open_publisher(path, **options) as writer:
        append_l2(writer, feeds, events, snapshot_every=snapshot_every, lose=lose)
    return feeds


def append_l2(writer, feeds, events, *, start=0, snapshot_every=None, lose=()):
    for n in range(start, start + events):
        time = START_NS + n * STEP_NS
        feed = feeds[n % len(feeds)]
        place = n // len(feeds)
        if place == 0 or (snapshot_every and place % snapshot_every == 0):
            payload = feed.snapshot(time)
        else:
            payload = feed.diff(time)
            if n in lose:
                continue
        writer.append(BOOK_EVENT, payload, timestamp_ns=time)


def write_l3(path, events=300, seed=1, first_id=1, **options):
    """A queue with the orders of one L3 book: adds, partial and complete cancels, trades."""
    chance = random.Random(seed)
    Instruments([ORDERS]).save(path.parent)
    live = []
    with tw.open_publisher(path, **{"segment_bytes": 1 << 16, **options}) as writer:
        for n in range(events):
            time = START_NS + n * STEP_NS
            if len(live) < 5 or chance.random() < 0.5:
                fields = {
                    "type": 1,
                    "side": 1 + n % 2,
                    "order_id": n + first_id,
                    "price": 10_000 + chance.randint(0, 20) * (1 if n % 2 else -1),
                    "qty": chance.randint(2, 9),
                }
                live.append(n + first_id)
            else:
                order = live.pop(chance.randrange(len(live)))
                fields = {"type": 2, "order_id": order, "qty": 0}
            event = l3_event(ORDERS, time, **fields)
            writer.append(BOOK_EVENT, event, timestamp_ns=time)


def archive_of_two_venues(root):
    """BTCUSDT of two venues in one archive; the logs."""
    spot, usdm = (Instrument.of(f"binance_{kind}", "BTCUSDT", 2, 3) for kind in ("spot", "usdm"))
    Instruments([spot, usdm]).save(root)
    logs = {}
    for one in (spot, usdm):
        log = ArchiveLayout(root).log(one.venue, one.symbol, "2023-11-14", "book")
        with tw.open_publisher(log, segment_bytes=1 << 16) as writer:
            append_l2(writer, [L2Feed(one)], 10)
        logs[one.venue] = log
    return logs
