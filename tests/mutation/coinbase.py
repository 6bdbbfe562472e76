"""Coinbase: a snapshot, then changes with the exchange's time; no update ids, no checksum."""

import datetime as dt
import json

from tests.mutation.altered import json_line
from tests.mutation.levels import Walk, crossed, received, set_levels, sides_of, whole
from tests.mutation.mutants import rows_of
from tests.mutation.sweep import Feed, Followed, Point

START = dt.datetime(2021, 4, 17, 16, 43, 37, tzinfo=dt.UTC)
SIDES = ("buy", "sell")


class Coinbase(Feed):
    """Two products, with matches in between."""

    format = "coinbase"
    alter = staticmethod(json_line(": "))

    def capture(self, rng):
        lines = []
        books = {name: Walk(rng) for name in ("BTC-USD", "ETH-USD")}

        def add(document):
            time = int(START.timestamp() * 1000) + 40 + 7 * len(lines)
            text = json.dumps(document, separators=(",", ":"))
            lines.append(f"{time // 1000}.{time % 1000:03}5: {text}".encode())

        for number in range(160):
            name = rng.choice(list(books)) if number > 1 else list(books)[number]
            time = (START + dt.timedelta(milliseconds=7 * len(lines))).isoformat()
            time = time.replace("+00:00", "Z")
            if number < 2 or number in (90, 91):
                bids, asks = map(_texts, books[name].levels())
                add({"type": "snapshot", "product_id": name, "bids": bids, "asks": asks})
                continue
            changes = [
                [side, *level]
                for side, levels in zip(SIDES, books[name].step(), strict=True)
                for level in _texts(levels)
            ]
            add({"type": "l2update", "product_id": name, "changes": changes, "time": time})
            if rng.random() < 0.2:
                match = {"type": "match", "trade_id": number, "product_id": name, "side": "buy"}
                add(match | {"size": "1.5", "price": "100.1", "time": time})
        return rows_of(lines)

    def key(self, event):
        return event.ingest_ts_ns, event.event_type == 1

    def follow(self, rows):
        follower = _Books()
        for row in rows:
            follower.row = row
            try:
                time, document = received(row.data)
                kind = document["type"]
                if kind == "match":
                    continue
                if kind not in ("snapshot", "l2update"):
                    raise ValueError(f"unknown type: {kind}")
                follower.message(time, document)
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                follower.invalid(repr(error))
        return follower.followed


def _texts(levels):
    return [[f"{price // 10}.{price % 10}", f"{size}.5" if size else "0"] for price, size in levels]


class _Book:
    def __init__(self):
        self.sides = {}, {}
        self.broken = ""
        self.latest = None  # the exchange's time


class _Books:
    """The books of all products."""

    def __init__(self):
        self.followed = Followed()
        self.row = None
        self._books = {}
        self._local = 0

    def invalid(self, why):
        self.followed.faults.append(f"row {self.row.origin}: {why}")
        try:
            document = json.loads(self.row.data.partition(b": ")[2])
            name = document["product_id"] if document["type"] != "match" else ""
            named = [name] if isinstance(name, str) else list(self._books)
        except (ValueError, KeyError, TypeError):
            named = list(self._books)
        for name in named:
            if name in self._books:
                self._books[name].broken = why

    def message(self, time, document):
        name = document["product_id"]
        if document["type"] == "snapshot":
            sides = [_levels(document[side]) for side in ("bids", "asks")]
            latest = self._books[name].latest if name in self._books else None
            book = self._books[name] = _Book()
            book.latest = latest
        else:
            exchange = dt.datetime.fromisoformat(document["time"])
            sides = [
                _levels([[p, s] for side, p, s in document["changes"] if side == one])
                for one in SIDES
            ]
            if sum(map(len, sides)) != len(document["changes"]):
                raise ValueError("neither a buy nor a sell")
            book = self._books.get(name)
            if book is None:
                return
            if book.latest is not None and exchange < book.latest:
                self._break(book, "the exchange's time goes back")
            book.latest = exchange
        for side, levels in zip(book.sides, sides, strict=True):
            set_levels(side, levels)
        if crossed(*book.sides):
            self._break(book, "crossed")
        key = time, document["type"] == "snapshot"
        state = sides_of(*book.sides)
        self.followed.points.append(Point(name, key, (self.row.origin,), state, book.broken))

    def _break(self, book, why):
        book.broken = book.broken or why
        self.followed.faults.append(f"row {self.row.origin}: {why}")


def _levels(rows):
    levels = [(whole(price, 8), whole(size, 8)) for price, size, *_ in rows]
    if any(size < 0 for _, size in levels):
        raise ValueError("a size below zero")
    return levels
