"""Tardis CSV: rows of one moment are one event; no sequence numbers, no checksum."""

from dataclasses import dataclass, field

from tests.mutation.altered import csv_row
from tests.mutation.levels import Walk, crossed, set_levels, sides_of, whole
from tests.mutation.mutants import rows_of
from tests.mutation.sweep import Feed, Followed, Point

START_US = 1_700_006_410_000_000
SYMBOLS = ("AAA", "BBB")
COLUMNS = "exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount"


def _price(price):
    return f"{price // 10}.{price % 10}"


class _Csv(Feed):
    format = "tardis"
    venue = "x"
    header = ""

    def __init__(self):
        self.alter = csv_row(self.header.split(","))

    def write(self, directory, rows):
        path = directory / "capture.csv"
        path.write_bytes(b"".join(line + b"\n" for line in (self.header.encode(), *_data(rows))))
        return [path]


def _data(rows):
    return [row.data for row in rows]


class Incremental(_Csv):
    """incremental_book_L2 of two symbols: a snapshot each at the start and in the middle."""

    header = COLUMNS

    def capture(self, rng):
        lines, walks = [], {symbol: Walk(rng, depth=6) for symbol in SYMBOLS}
        for moment in range(90):
            time = START_US + moment * 1000
            symbol = SYMBOLS[moment % 2] if moment < 2 else rng.choice(SYMBOLS)
            snapshot = moment < 2 or moment in (45, 46)
            if moment in (45, 46):
                symbol = SYMBOLS[moment % 2]
            levels = walks[symbol].levels() if snapshot else walks[symbol].step()
            for side, rows in zip(("bid", "ask"), levels, strict=True):
                lines += [
                    f"x,{symbol},{time - 300},{time},{str(snapshot).lower()},{side},"
                    f"{_price(price)},{size}".encode()
                    for price, size in rows
                ]
        return rows_of(lines)

    def key(self, event):
        return event.ingest_ts_ns, event.event_type == 1

    def follow(self, rows):
        follower = _Moments()
        for row in rows:
            follower.row(row)
        follower.finish()
        return follower.followed


@dataclass
class _Book:
    sides: tuple = field(default_factory=lambda: ({}, {}))
    known: bool = False
    broken: str = ""
    begins: bool = False  # the moment begins a snapshot
    moment: tuple = ()  # local time, exchange's time, snapshot
    rows: list = field(default_factory=list)
    waiting: list = field(default_factory=list)  # (side, price, size) of the moment


class _Moments:
    """The books of all symbols, by rows of one moment."""

    def __init__(self):
        self.followed = Followed()
        self._books = {}
        self._latest = 0
        self._after_invalid = False

    def row(self, row):
        try:
            exchange, symbol, time, local, snapshot, side, price, amount = row.data.decode().split(
                ","
            )
            local, time = whole(local, 3), whole(time, 3)
            if snapshot not in ("true", "false") or side not in ("bid", "ask"):
                raise ValueError("not a side or a kind")
            price, amount = whole(price, 8), whole(amount, 8)
            if amount < 0 or local < 0 or time < 0 or not symbol or not exchange:
                raise ValueError("below zero, or no name")
        except ValueError as error:
            self._fault(row, repr(error), self._books.values())
            self._after_invalid = True
            return
        if local < self._latest:
            self._fault(row, "the local time goes back", self._books.values())
        self._latest = local
        if exchange != "x":
            return
        book = self._books.setdefault(symbol, _Book())
        moment = local, time, snapshot == "true"
        if book.rows and book.moment != moment:
            if book.moment[:2] == moment[:2] and moment[2]:
                self._fault(row, "a snapshot begins within a moment", [book])
            self._emit(symbol, book)
        if not book.rows:
            book.begins = moment[2] and book.moment[2:3] != (True,)
        if not book.rows and book.begins:
            book.sides, book.known = ({}, {}), True
            book.broken = "" if not self._after_invalid else book.broken
        self._after_invalid = False
        book.moment = moment
        book.rows.append(row.origin)
        book.waiting.append((side == "ask", price, amount))

    def _emit(self, symbol, book):
        for ask, price, amount in book.waiting:
            set_levels(book.sides[ask], [(price, amount)])
        if book.known and crossed(*book.sides):
            book.broken = book.broken or "crossed"
            self.followed.faults.append(f"{symbol}: crossed")
        key = book.moment[0], book.begins
        if book.known:
            state, rows = sides_of(*book.sides), tuple(book.rows)
            identity = book.moment[0]
            self.followed.points.append(Point(symbol, key, rows, state, book.broken, identity))
        book.rows, book.waiting = [], []

    def finish(self):
        for symbol, book in self._books.items():
            if book.rows:
                self._emit(symbol, book)

    def _fault(self, row, why, books):
        self.followed.faults.append(f"row {row.origin}: {why}")
        for book in books:
            book.broken = book.broken or why


DEPTH = 4


class Snapshots(_Csv):
    """book_snapshot_N: each row is a complete book."""

    stream = f"book_snapshot_{DEPTH}"
    header = "exchange,symbol,timestamp,local_timestamp," + ",".join(
        f"{side}[{i}].{what}"
        for i in range(DEPTH)
        for side in ("asks", "bids")
        for what in ("price", "amount")
    )

    def capture(self, rng):
        lines, walks = [], {symbol: Walk(rng) for symbol in SYMBOLS}
        for moment in range(150):
            symbol, time = rng.choice(SYMBOLS), START_US + moment * 1000
            walks[symbol].step()
            bids, asks = walks[symbol].levels()
            levels = [level for pair in zip(asks, bids, strict=False) for level in pair]
            texts = [f"{_price(price)},{size}" for price, size in levels[: 2 * DEPTH]]
            texts += [","] * (2 * DEPTH - len(texts))
            lines.append(",".join(("x", symbol, str(time - 300), str(time), *texts)).encode())
        return rows_of(lines)

    def key(self, event):
        return event.ingest_ts_ns

    def follow(self, rows):
        followed = Followed()
        broken = {}
        for row in rows:
            fields = row.data.decode().split(",")
            symbol = fields[1] if len(fields) > 1 else ""
            try:
                if len(fields) != 4 + 4 * DEPTH or not symbol or not fields[0]:
                    raise ValueError("not the fields of a row")
                whole(fields[2], 3)
                time, state = whole(fields[3], 3), _row_state(fields[4:])
                broken[symbol] = _contradiction(state)
            except ValueError as error:
                followed.faults.append(f"row {row.origin}: {error!r}")
                continue
            if fields[0] != "x":
                continue
            if broken[symbol]:
                followed.faults.append(f"row {row.origin}: {broken[symbol]}")
            followed.points.append(Point(symbol, time, (row.origin,), state, broken[symbol]))
        return followed


def _row_state(fields):
    sides = [], []
    for i in range(0, len(fields), 2):
        price, size = fields[i : i + 2]
        if bool(price) != bool(size):
            raise ValueError("a price without a size, or a size without a price")
        if price:
            level = whole(price, 8), whole(size, 8)
            if level[1] < 0:
                raise ValueError("a size below zero")
            sides[i // 2 % 2 == 0].append(level)
    return tuple(map(tuple, sides))


def _contradiction(state):
    """Why the levels of a row are not a book; empty if they are."""
    bids, asks = ([price for price, _ in side] for side in state)
    if bids != sorted(set(bids), reverse=True) or asks != sorted(set(asks)):
        return "levels out of order"
    if any(not size for side in state for _, size in side):
        return "a level without a size"
    return "crossed" if bids and asks and bids[0] >= asks[0] else ""
