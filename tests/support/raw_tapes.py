"""Raw multiplexed logs generated from a seed, and their split in one plain pass."""

import random

import tapewire as tw
from tapewire import bus
from tapewire.config import WriterConfig
from tapewire.protocol import market
from tapewire.protocol.instruments import Instrument, Instruments

SECOND = 10**9
DAY_NS = 86_400 * SECOND
START_NS = 1_704_153_600 * SECOND - 100 * SECOND  # 100 s before 2024-01-02
VENUE = "okx"
INSTRUMENTS = [Instrument.of(VENUE, symbol, 2, 3) for symbol in ("BTC-USDT", "ETH-USDT", "000001")]
STRANGER = Instrument.of("nowhere", "X", 2, 3)


def raw_rows(count, *, seed=1, late_every=0, stranger_every=0):
    """``(timestamp_ns, type_id, flags, payload)`` of a feed of three symbols over midnight."""
    rng = random.Random(seed)
    updates = dict.fromkeys(INSTRUMENTS, 100)
    rows = []
    step = 200 * SECOND // count
    for i in range(count):
        time_ns = START_NS + i * step
        if late_every and i % late_every == late_every - 1:
            time_ns -= 5 * SECOND
        one = STRANGER if stranger_every and i % stranger_every == 0 else rng.choice(INSTRUMENTS)
        kind = rng.choice(("diff", "diff", "trade", "quote", "raw", "other"))
        if one is STRANGER:
            kind = rng.choice(("diff", "trade"))
        if i < len(INSTRUMENTS):
            one, kind = INSTRUMENTS[i], "snapshot"
        levels = [(10_000 - rng.randrange(50), rng.randrange(5) * 1000) for _ in range(3)]
        asks = [(10_100 + rng.randrange(50), rng.randrange(5) * 1000) for _ in range(3)]
        if kind == "snapshot":
            payload = market.l2_snapshot(one, time_ns, bids=[(9_990, 5)], asks=[(10_200, 5)],
                                         native_seq=100, exchange_ns=time_ns - 7)  # fmt: skip
            rows.append((time_ns, market.BOOK_EVENT, 0, payload))
        elif kind == "diff":
            first = updates.get(one, 100) + 1
            updates[one] = first
            payload = market.l2_diff(one, time_ns, bids=levels, asks=asks, first=first, last=first,
                                     prev=first - 1, exchange_ns=time_ns - 7)  # fmt: skip
            rows.append((time_ns, market.BOOK_EVENT, 0x300, payload))
        elif kind == "trade":
            tick = market.TradeTick(time_ns - 9, 10_050, 7, i + 1, 0, 0, one.symbol_hash,
                                    one.market_id, 2, 3)  # fmt: skip
            rows.append((time_ns, market.TRADE_TICK, 0, bytes(tick)))
        elif kind == "quote":
            quote = market.Quote(time_ns - 9, 10_000, 1, 10_100, 2, one.symbol_hash,
                                 one.market_id, 2, 3)  # fmt: skip
            rows.append((time_ns, market.QUOTE, 0, bytes(quote)))
        elif kind == "raw":
            rows.append((time_ns, market.VENUE_RAW, 0, b'{"wire":"bytes"}'))
        else:
            rows.append((time_ns, 0x7777, 0, b"short"))
    return rows


def write_raw(path, rows, *, first_seq=0, **options):
    """A raw log of these rows; None in `rows` is a missing record."""
    config = WriterConfig.archive(segment_bytes=1 << 16, sparse=True, index_stride=32, **options)
    with tw.open_publisher(path, config=config) as writer:
        for seq, row in enumerate(rows, first_seq):
            if row is not None and seq >= writer.next_seq:
                time_ns, type_id, flags, payload = row
                writer.append(type_id, payload, timestamp_ns=time_ns, flags=flags, seq=seq)


def archive_raw(root, rows):
    """Raw logs by day, as a tap writes them."""
    layout = bus.ArchiveLayout(root)
    days = sorted({row[0] // DAY_NS for row in rows if row is not None})
    for day in days:
        mine = [row if row is not None and row[0] // DAY_NS == day else None for row in rows]
        write_raw(layout.raw(VENUE, _date(day)), mine)
    Instruments(INSTRUMENTS).save(root)


def plain_split(rows, *, late=None, lateness_ns=SECOND, day=None):
    """Clean logs by name: ``[(seq, timestamp_ns, type_id, flags, payload)]``, record by record."""
    by_id = {(one.venue_id, one.market_id): one for one in INSTRUMENTS}
    by_hash = {one.symbol_hash: one for one in INSTRUMENTS}
    streams = {market.BOOK_EVENT: "book", market.QUOTE: "quotes", market.TRADE_TICK: "trades"}
    logs = {}
    clock = 0
    for seq, row in enumerate(rows):
        if row is None or (day is not None and _date(row[0] // DAY_NS) != day):
            continue
        time_ns, type_id, flags, payload = row
        is_late, clock = time_ns < clock - lateness_ns, max(clock, time_ns)
        if type_id not in streams:
            continue
        if type_id == market.BOOK_EVENT:
            event = market.BookEvent.decode(payload)
            one = by_id.get((event.venue_id, event.market_id))
        else:
            cls = market.Quote if type_id == market.QUOTE else market.TradeTick
            one = by_hash.get(cls.decode(payload).symbol_hash)
        if one is None or (is_late and late == "drop"):
            continue
        stream = streams[type_id] + ("_late" if is_late and late == "separate" else "")
        name = f"{one.venue}/{one.symbol}/{_date(time_ns // DAY_NS)}/{stream}"
        logs.setdefault(name, []).append((seq, time_ns, type_id, flags, payload))
    return logs


def clean_logs(root):
    """The same for an archive."""
    found = {}
    for path in sorted((root / "v1").glob("*/*/*/*/control.meta")):
        with tw.open_log(path.parent) as log:
            found[path.parent.relative_to(root / "v1").as_posix()] = [
                (r.seq, r.timestamp_ns, r.type_id, r.flags, bytes(r.payload)) for r in log
            ]
    return found


def table_logs(table):
    """The same of a table of `refined_table`."""
    found = {}
    for row in table.to_pylist():
        name = f"{row['venue']}/{row['symbol']}/{_date(row['timestamp_ns'] // DAY_NS)}"
        record = tuple(row[n] for n in ("seq", "timestamp_ns", "type_id", "flags", "payload"))
        found.setdefault(f"{name}/{row['stream']}", []).append(record)
    return found


def _date(day):
    import datetime as dt

    return (dt.date(1970, 1, 1) + dt.timedelta(days=day)).isoformat()
