"""ITCH 5.0: binary messages of a session; no sequence numbers in the file."""

import struct

from tests.mutation.altered import packed
from tests.mutation.matching import BUY, Exchange
from tests.mutation.mutants import rows_of
from tests.mutation.orders import OrderBook
from tests.mutation.sweep import Feed, Followed

STOCKS = (b"ACME    ", b"B       ")
START_NS = 34_200 * 10**9
# After type, locate, tracking number and time: name, format, and the letters that it may have.
_BODIES = {
    "S": [("event", "c", b"OSQMEC")],
    "R": [("stock", "8s", None), ("rest", "20s", None)],
    "H": [
        ("stock", "8s", None),
        ("state", "c", b"HPQT"),
        ("reserved", "c", b" "),
        ("why", "4s", None),
    ],
    "A": [
        ("order", ">Q", None),
        ("side", "c", b"BS"),
        ("shares", ">I", None),
        ("stock", "8s", None),
        ("price", ">I", None),
    ],
    "E": [("order", ">Q", None), ("shares", ">I", None), ("match", ">Q", None)],
    "X": [("order", ">Q", None), ("shares", ">I", None)],
    "D": [("order", ">Q", None)],
    "U": [
        ("order", ">Q", None),
        ("new", ">Q", None),
        ("shares", ">I", None),
        ("price", ">I", None),
    ],
}
_HEAD = [("type", "c", b"AEXDU"), ("locate", ">H", None), ("time", ">Q", None)]


def _message(kind, locate, time_ns, *values):
    body = b"".join(
        struct.pack(form, value) for (_, form, _), value in zip(_BODIES[kind], values, strict=True)
    )
    head = kind.encode() + struct.pack(">HH", locate, 0) + time_ns.to_bytes(6, "big")
    return head + body


def _fields(data):
    """The fields that can be altered: their offset is after the length of the message."""
    fields = [("length", ">H", 0, None), ("locate", ">H", 3, None), ("time", ">I", 9, None)]
    offset = 13
    for name, form, letters in _BODIES[chr(data[2])]:
        if (letters and len(letters) > 1) or form.startswith(">"):
            fields.append((name, form, offset, letters))
        offset += struct.calcsize(form)
    return fields


class Itch(Feed):
    """Two stocks from the start of messages on."""

    format = "itch"
    options = {"date": "2023-11-14"}  # noqa: RUF012 - never changed
    alter = staticmethod(packed(_fields))

    def capture(self, rng):
        exchange = Exchange(rng)
        made, matches = [], 0

        def add(kind, locate, *values):
            message = _message(kind, locate, START_NS + 1000 * len(made), *values)
            made.append(struct.pack(">H", len(message)) + message)

        add("S", 0, b"O")
        for locate, stock in enumerate(STOCKS, 1):
            add("R", locate, stock, b" " * 20)
            add("H", locate, stock, b"T", b" ", b"    ")
        sizes = {}
        for _ in range(200):
            if sizes and rng.random() < 0.2:
                self._changed(rng, exchange, sizes, add)
                continue
            done = exchange.step()
            locate = done.stock + 1
            for order, _, size in done.fills:
                matches += 1
                add("E", locate, order, size, matches)
                sizes[order][1] -= size
                if not sizes[order][1]:
                    del sizes[order]
            if done.kind == "cancel":
                add("D", locate, done.order)
                del sizes[done.order]
            elif done.left:
                side = b"B" if done.side == BUY else b"S"
                add("A", locate, done.order, side, done.left, STOCKS[done.stock], done.price)
                sizes[done.order] = [locate, done.left]
        return rows_of(made)

    def _changed(self, rng, exchange, sizes, add):
        """Reduce an order, or replace it by a smaller one at its price."""
        order = rng.choice(list(sizes))
        locate, left = sizes[order]
        if left < 2:
            return
        if rng.random() < 0.5:
            exchange.reduce(locate - 1, order, 1)
            add("X", locate, order, 1)
            sizes[order][1] -= 1
            return
        new, price = exchange.replace(locate - 1, order, left - 1)
        add("U", locate, order, new, left - 1, price)
        del sizes[order]
        sizes[new] = [locate, left - 1]

    def write(self, directory, rows):
        path = directory / "day.itch"
        path.write_bytes(b"".join(row.data for row in rows))
        return [path]

    def key(self, event):
        return event.native_seq or None

    def follow(self, rows):
        follower = _Session()
        for number, row in enumerate(rows, 1):
            follower.message(number, row)
        return follower.followed


class _Session:
    """The books of all stocks."""

    def __init__(self):
        self.followed = Followed()
        self._books = {}  # stock → OrderBook
        self._stocks = {}  # locate → stock
        self._of_order = {}  # order → locate
        self._sides = {}
        self._trading = set()
        self._matches = set()
        self._time = 0
        self._lost = ""  # in all books

    def message(self, number, row):
        data = row.data
        kind = chr(data[2]) if len(data) > 2 else ""
        try:
            if row.cut:
                # Only the message after it shows that bytes are missing.
                self._lost = self._lost or "bytes are missing"
                self.followed.faults.append(f"row {row.origin}: bytes are missing")
                for book in self._books.values():
                    self.followed.points.append(book.point(number, row.origin))
                    book.broken = book.broken or self._lost
                return
            if struct.unpack(">H", data[:2])[0] != len(data) - 2:
                self._lost = self._lost or "not the length of its type"
                raise ValueError(self._lost)
            values = self._values(kind, data)
        except (ValueError, KeyError) as error:
            self._lost = self._lost or repr(error)
            self.followed.faults.append(f"row {row.origin}: {error!r}")
            return
        locate = struct.unpack(">H", data[3:5])[0]
        time = int.from_bytes(data[7:13], "big")
        if number == 1 and (kind != "S" or values["event"] != b"O"):
            self._lost = "the file begins within the session"
        if time < self._time:
            self._lost = self._lost or "the time goes back"
        self._time = time
        self._take(number, row, kind, locate, values)
        if self._lost:
            self.followed.faults.append(f"row {row.origin}: {self._lost}")

    def _values(self, kind, data):
        values, offset = {}, 13
        for name, form, _ in _BODIES[kind]:
            size = struct.calcsize(form)
            (values[name],) = struct.unpack(form, data[offset : offset + size])
            offset += size
            if name == "side" and values[name] not in (b"B", b"S"):
                raise ValueError("not a side")
        if int.from_bytes(data[7:13], "big") >= 86_400 * 10**9:
            raise ValueError("not a time of day")
        return values

    def _take(self, number, row, kind, locate, values):
        stock = values.get("stock")
        if stock is not None:
            codes = [code for code, name in self._stocks.items() if name == stock]
            if self._stocks.setdefault(locate, stock) != stock or codes not in ([], [locate]):
                self._lost = self._lost or "not the locate code of the stock"
        if kind == "H":
            (self._trading.add if values["state"] == b"T" else self._trading.discard)(locate)
        if kind in "SRH":
            return
        if locate not in self._stocks:
            self._lost = self._lost or "unknown stock"
            return
        name = self._stocks[locate].decode().strip()
        book = self._books.setdefault(name, OrderBook(name))
        order = values["order"]
        if self._of_order.setdefault(order, locate) != locate:
            self._lost = self._lost or "the order of another stock"
        if kind == "E" and values["match"] in self._matches:
            self._lost = self._lost or "a match number twice"
        self._matches.add(values.get("match"))
        for one in self._books.values():
            one.broken = one.broken or self._lost
        for event in self._events(kind, locate, values):
            before = book.broken
            book.apply(auction=locate not in self._trading, **event)
            if book.broken and not before:
                self.followed.faults.append(f"row {row.origin}: {book.broken}")
            self.followed.points.append(book.point(number, row.origin))

    def _events(self, kind, locate, values):
        order = values["order"]
        if kind == "A":
            side = 1 if values["side"] == b"B" else 2
            self._sides[order] = side
            shares, price = values["shares"], values["price"]
            yield {"type": "add", "order": order, "side": side, "qty": shares, "price": price}
        elif kind == "E":
            yield {"type": "trade", "order": order, "qty": values["shares"], "price": 0}
        elif kind == "X":
            if values["shares"]:
                yield {"type": "cancel", "order": order, "qty": values["shares"], "price": 0}
        elif kind == "D":
            yield {"type": "cancel", "order": order, "qty": 0, "price": 0}
        else:
            new, side = values["new"], self._sides.get(order, 1)
            self._sides[new] = side
            self._of_order[new] = locate
            shares, price = values["shares"], values["price"]
            yield {"type": "cancel", "order": order, "qty": 0, "price": 0}
            yield {"type": "add", "order": new, "side": side, "qty": shares, "price": price}
