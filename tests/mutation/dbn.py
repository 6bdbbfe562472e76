"""DBN: single orders with sequence numbers that are not contiguous, and books of ten levels."""

import struct

from tests.mutation.altered import packed
from tests.mutation.levels import Walk
from tests.mutation.matching import BUY, Exchange
from tests.mutation.mutants import rows_of
from tests.mutation.orders import OrderBook
from tests.mutation.sweep import Feed, Followed, Point
from tests.support.dbn_files import LAST, NANO, UNDEFINED_PRICE, T, plain_header, plain_mbo

_MBO = [
    ("length", "B", 0, None),
    ("rtype", "B", 1, None),
    ("instrument", "<I", 4, None),
    ("ts_event", "<Q", 8, None),
    ("order_id", "<Q", 16, None),
    ("price", "<q", 24, None),
    ("size", "<I", 32, None),
    ("action", "c", 38, b"ACMRTFN"),
    ("side", "c", 39, b"ABN"),
    ("ts_recv", "<Q", 40, None),
    ("sequence", "<I", 52, None),
]
SYMBOLS = {7: "7", 8: "8"}


class _Dbn(Feed):
    format = "dbn"
    schema = 0

    def write(self, directory, rows):
        path = directory / "day.dbn"
        head = plain_header(schema=self.schema)
        path.write_bytes(head + b"".join(row.data for row in rows))
        return [path]


class Orders(_Dbn):
    """mbo of two instruments: a clear each, then orders, cancels and fills."""

    alter = staticmethod(packed(lambda data: _MBO))

    def capture(self, rng):
        exchange, made = Exchange(rng), []
        sequence = 100

        def add(action, stock, order=0, side=b"N", price=None, size=0):
            time = T + 1000 * len(made)
            ticks = UNDEFINED_PRICE if price is None else price * NANO // 100
            values = {"instrument": 7 + stock, "event": time - 300, "recv": time}
            made.append(plain_mbo(action, order, side, ticks, size, sequence=sequence, **values))

        for stock in (0, 1):
            add(b"R", stock)
        for number in range(180):
            done = exchange.step()
            sequence += rng.randrange(1, 5)
            side = b"B" if done.side == BUY else b"A"
            other = b"A" if done.side == BUY else b"B"
            if done.fills:
                size = sum(size for *_, size in done.fills)
                add(b"T", done.stock, 0, side, done.fills[-1][1], size)
            for order, price, size in done.fills:
                add(b"F", done.stock, order, other, price, size)
                add(b"C", done.stock, order, other, price, size)
            if done.kind == "cancel":
                add(b"C", done.stock, done.order, side, done.price, done.left)
            elif done.left:
                add(b"A", done.stock, done.order, side, done.price, done.left)
            if number == 120:  # a clear in the middle: the orders are added again
                self._clear(exchange, add)
        return rows_of(made)

    def _clear(self, exchange, add):
        for stock in (0, 1):
            add(b"R", stock)
            for order, side, price, left in exchange.resting(stock):
                add(b"A", stock, order, b"B" if side == BUY else b"A", price, left)

    def key(self, event):
        if event.order is None or event.event_type == 3:
            return None
        return event.ingest_ts_ns

    def follow(self, rows):
        follower = _OrderFile()
        for row in rows:
            follower.row(row)
        return follower.followed


class _OrderFile:
    def __init__(self):
        self.followed = Followed()
        self._books = {}
        self._sequences = {}
        self._time = 0
        self._lost = ""

    def row(self, row):
        data = row.data
        if row.cut:
            self._lost = "bytes are missing"
            self.followed.faults.append(f"row {row.origin}: bytes are missing")
            return
        if data[:2] != b"\x0e\xa0":
            self._lost = "not the length of its type"
            self.followed.faults.append(f"row {row.origin}: {self._lost}")
            return
        number, _, order, price, size = struct.unpack("<IQQqI", data[4:36])
        action, side = data[38:39], data[39:40]
        (time,), (sequence,) = struct.unpack("<Q", data[40:48]), struct.unpack("<I", data[52:56])
        name = str(number)
        if action in b"TFN":
            self._time = max(self._time, time)
            return
        book = self._books.get(name)
        if book is None:
            book = self._books[name] = OrderBook(name, never_crossed=False)
            book.broken = "" if action == b"R" else "the file begins within the session"
        why = self._lost
        if time >= 1 << 63:
            why = why or "no time"
        if time < self._time:
            why = why or "the time of receipt goes back"
            self._lost = self._lost or why
        self._time = time
        if sequence < self._sequences.get(name, 0) and action != b"R":
            why = why or "sequence numbers go back"
        event = self._event(action, side, order, price, size)
        if isinstance(event, str):
            why = why or event
        self._sequences[name] = sequence
        if why and not (action == b"R" and not self._lost):
            book.broken = book.broken or why
        elif action == b"R":
            book.reset()
        elif event is not None:
            book.apply(**event)
        if book.broken:
            self.followed.faults.append(f"row {row.origin}: {book.broken}")
        if action != b"R" and event is not None:
            self.followed.points.append(book.point(time, row.origin))

    def _event(self, action, side, order, price, size):
        """What a record does to its book: None nothing, a text if it is invalid."""
        of_side = {b"B": 1, b"A": 2}.get(side)
        if action == b"R":
            return None
        if action not in b"ACM":
            return "unknown action"
        if size in (0, (1 << 32) - 1) and action != b"M":
            return "size is zero"
        if action == b"C":
            named = {"of_side": of_side, "of_price": price, "price": 0}
            return {"type": "cancel", "order": order, "qty": size, **named}
        if of_side is None or price == UNDEFINED_PRICE:
            return "no side or no price"
        kind = "add" if action == b"A" else "modify"
        return {"type": kind, "order": order, "side": of_side, "price": price, "qty": size}


DEPTH = 10
_LEVEL = [("bid_price", "<q"), ("ask_price", "<q"), ("bid_size", "<I"), ("ask_size", "<I")]
_LEVELS_AT, _LEVEL_BYTES = 48, 32


def _level_fields(data):
    fields = [
        (name, form, offset, None)
        for name, form, offset in (
            ("length", "B", 0),
            ("instrument", "<I", 4),
            ("ts_recv", "<Q", 32),
            ("sequence", "<I", 44),
        )
    ]
    for i in range(DEPTH):
        offset = _LEVELS_AT + i * _LEVEL_BYTES
        for name, form in _LEVEL:
            fields.append((name, form, offset, None))
            offset += struct.calcsize(form)
    return fields


class Levels(_Dbn):
    """mbp-10 of two instruments: each record is a complete book of ten levels."""

    schema = 2
    stream = f"book_snapshot_{DEPTH}"
    alter = staticmethod(packed(_level_fields))

    def capture(self, rng):
        walks, made = [Walk(rng, depth=12) for _ in SYMBOLS], []
        for number in range(150):
            stock, time = rng.randrange(2), T + 1000 * number
            walks[stock].step()
            head = struct.pack("<BBHIQ", 92, 10, 2, 7 + stock, time - 300)
            head += struct.pack("<qIccBBQiI", NANO, 1, b"A", b"B", LAST, 0, time, 0, 100 + number)
            bids, asks = walks[stock].levels()
            body = b""
            for i in range(DEPTH):
                levels = [side[i] if i < len(side) else None for side in (bids, asks)]
                prices = [
                    UNDEFINED_PRICE if one is None else one[0] * NANO // 100 for one in levels
                ]
                sizes = [0 if one is None else one[1] for one in levels]
                body += struct.pack("<qqIIII", *prices, *sizes, 1, 1)
            made.append(head + body)
        return rows_of(made)

    def key(self, event):
        return event.ingest_ts_ns

    def follow(self, rows):
        followed, lost = Followed(), ""
        for row in rows:
            data = row.data
            if row.cut or data[:2] != b"\x5c\x0a":
                lost = "bytes are missing, or not the length of its type"
                followed.faults.append(f"row {row.origin}: {lost}")
                continue
            (number,), (time,) = struct.unpack("<I", data[4:8]), struct.unpack("<Q", data[32:40])
            sides = [], []
            for i in range(DEPTH):
                at = _LEVELS_AT + i * _LEVEL_BYTES
                bid, ask, bid_size, ask_size = struct.unpack("<qqII", data[at : at + 24])
                for side, price, size in ((0, bid, bid_size), (1, ask, ask_size)):
                    if (price == UNDEFINED_PRICE) != (size == 0):
                        lost = lost or "a price without a size, or a size without a price"
                    elif size:
                        sides[side].append((price, size))
            state = tuple(map(tuple, sides))
            bids, asks = ([price for price, _ in side] for side in state)
            why = lost
            if bids != sorted(set(bids), reverse=True) or asks != sorted(set(asks)):
                why = why or "levels out of order"
            if lost.startswith("a price"):
                lost = ""  # the next record is complete again
            if why:
                followed.faults.append(f"row {row.origin}: {why}")
            followed.points.append(Point(str(number), time, (row.origin,), state, why))
        return followed
