"""Shanghai and Shenzhen: orders and trades numbered together in a channel."""

import re

from tests.mutation.altered import csv_row, pairs
from tests.mutation.levels import whole
from tests.mutation.matching import BUY, Exchange
from tests.mutation.mutants import rows_of
from tests.mutation.orders import OrderBook
from tests.mutation.sweep import Feed, Followed

CHANNEL = 6
CALL_ORDERS = 40  # before the opening
EVENTS = 150
_PAIR = re.compile(r"(?:^|[^\w])([\w\[\].]+)=(\S+)")


def _seconds(number):
    """The exchange's time of an event: from 09:20 in the call, from 09:30 after it."""
    return 33_600 + number if number < CALL_ORDERS else 34_200 + number


class _Channel(Feed):
    """A channel of two stocks; a subclass says how its rows are written and read."""

    rules = ""
    stocks = ()

    def happened(self, rng):
        """Orders of the call, then orders, trades and cancels of the session."""
        exchange = Exchange(rng)
        for number in range(CALL_ORDERS):
            yield exchange.auction(number % 2)
        for _ in range(EVENTS):
            yield exchange.step()

    def key(self, event):
        return (event.stream_id, event.native_seq) if event.native_seq else None

    def read(self, row):
        """``((channel, number), stock, auction, event)``; ValueError if it is invalid."""
        raise NotImplementedError

    def follow(self, rows):
        followed = Followed()
        read = []
        for row in rows:
            try:
                read.append((row, *self.read(row)))
            except (ValueError, KeyError) as error:
                followed.faults.append(f"row {row.origin}: {error!r}")
        # Files are merged by channel and number.
        read.sort(key=lambda entry: entry[1])
        numbers = _Numbers(self, followed)
        for at, entry in enumerate(read):
            equal = at > 0 and read[at - 1][1] == entry[1]
            numbers.event(*entry, again=equal and read[at - 1][2:] == entry[2:])
        return followed


class _Numbers:
    """The books of the stocks of all channels, in the order of channels and numbers."""

    def __init__(self, feed, followed):
        self._rules = feed.rules
        self._followed = followed
        self._books = {stock: OrderBook(stock, feed.rules) for stock in feed.stocks}
        self._channels = {}  # stock → channel
        self._last = 0
        self._lost = ""

    def event(self, row, place, stock, auction, event, *, again):
        channel, number = place
        book = self._books.setdefault(stock, OrderBook(stock, self._rules))
        if self._channels.setdefault(stock, channel) != channel:
            self._break(book, "a stock in two channels")
        if channel == CHANNEL and not again:
            if number == self._last:
                self._lost = self._lost or f"two events with number {number}"
            elif number != self._last + 1:
                self._lost = self._lost or f"{self._last + 1} to {number - 1} are missing"
            self._last = number
        if self._lost:
            for one in self._books.values():
                self._break(one, self._lost)
        if again:
            return
        before = book.broken
        book.apply(auction=auction, **event)
        if book.broken and not before:
            self._followed.faults.append(f"row {row.origin}: {book.broken}")
        self._followed.points.append(book.point(place, row.origin))

    def _break(self, book, why):
        if not book.broken:
            book.broken = why
            self._followed.faults.append(why)


class ShanghaiLog(_Channel):
    """Shanghai as key=value text."""

    format = "sse"
    rules = "sse"
    stocks = ("600519", "600000")
    options = {"date": "2023-11-14"}  # noqa: RUF012 - never changed
    alter = staticmethod(pairs)

    def capture(self, rng):
        lines = []
        for n, made in enumerate(self.happened(rng)):
            clock = _hhmmss(_seconds(n)) * 100

            def add(kind, n=n, made=made, clock=clock, **values):
                stock = self.stocks[made.stock]
                head = f"//SecurityID={stock} ChannelNo={CHANNEL} BizIndex={len(lines) + 1}"
                texts = " ".join(f"{key}={value}" for key, value in values.items())
                lines.append(f"{head} MsgType={kind} {texts} TransactTime={clock}".encode())

            for order, price, size in made.fills:
                bid, ask = (made.order, order) if made.side == BUY else (order, made.order)
                names = {"BidApplSeqNum": bid, "OfferApplSeqNum": ask}
                add(
                    191,
                    **names,
                    LastPx=price * 10,
                    LastQty=size * 100_000,
                    ExecType=ord("B" if made.side == BUY else "S"),
                )
            if made.left:
                add(
                    192,
                    OrderNo=made.order,
                    Price=made.price * 10,
                    OrderQty=made.left * 100_000,
                    OrdType=ord("A" if made.kind == "order" else "D"),
                    Side=ord("B" if made.side == BUY else "S"),
                )
        return rows_of(lines)

    def read(self, row):
        values = {}
        for key, value in _PAIR.findall(row.data.decode()):
            if key in values:
                raise ValueError(f"duplicate key: {key}")
            values[key] = value
        stock = values.pop("SecurityID")
        numbers = {key: whole(value, 0) for key, value in values.items()}
        if min(numbers.values()) < 0:
            raise ValueError("below zero")
        clock = numbers["TransactTime"] // 100
        auction = not 93_000 <= clock < 145_700
        if numbers["MsgType"] == 192:
            event = _shanghai_order(numbers)
        elif numbers["MsgType"] == 191:
            event = _shanghai_trade(numbers)
        else:
            raise ValueError("neither an order nor a trade")
        return (numbers["ChannelNo"], numbers["BizIndex"]), stock, auction, event


def _shanghai_order(numbers):
    side = {66: 1, 83: 2}[numbers["Side"]]
    kind = {65: "add", 68: "cancel"}[numbers["OrdType"]]
    event = {"type": kind, "order": numbers["OrderNo"], "qty": numbers["OrderQty"]}
    if kind == "add":
        return event | {"side": side, "price": numbers["Price"]}
    return event | {"of_side": side, "of_price": numbers["Price"], "price": 0}


def _shanghai_trade(numbers):
    side = {66: 1, 83: 2, 78: 0}[numbers["ExecType"]]
    return {
        "type": "trade",
        "side": side,
        "bid": numbers["BidApplSeqNum"],
        "ask": numbers["OfferApplSeqNum"],
        "price": numbers["LastPx"],
        "of_price": numbers["LastPx"],
        "qty": numbers["LastQty"],
    }


def _hhmmss(seconds):
    return seconds // 3600 * 10_000 + seconds // 60 % 60 * 100 + seconds % 60


ORDERS = "code,time,price,volume,order_kind,function_code,channel,order_index"
TRADES = "code,time,price,volume,bid_order,ask_order,function_code,channel,trade_index"


class Shenzhen(_Channel):
    """Shenzhen: a file of orders, and one of trades and cancels."""

    format = "szse"
    rules = "szse"
    stocks = ("000001", "000002")
    options = {"date": "2023-11-14"}  # noqa: RUF012 - never changed

    def __init__(self):
        self._orders, self._trades = csv_row(ORDERS.split(",")), csv_row(TRADES.split(","))

    def capture(self, rng):
        lines, files, numbers = [], [], {}

        def add(file, stock, n, *values):
            seconds = _seconds(n)
            clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.010"
            fields = (self.stocks[stock], clock, *values, CHANNEL, len(lines) + 1)
            lines.append(",".join(map(str, fields)).encode())
            files.append(file)

        for n, made in enumerate(self.happened(rng)):
            price = f"{made.price // 100}.{made.price % 100:02}"
            if made.kind == "cancel":
                order = numbers[made.order]
                names = (order, 0) if made.side == BUY else (0, order)
                add(1, made.stock, n, 0, made.left, *names, 52)
                continue
            numbers[made.order] = len(lines) + 1
            add(0, made.stock, n, price, made.full, 50, 49 if made.side == BUY else 50)
            for order, at, size in made.fills:
                own, other = numbers[made.order], numbers[order]
                names = (own, other) if made.side == BUY else (other, own)
                add(1, made.stock, n, f"{at // 100}.{at % 100:02}", size, *names, 70)
        return rows_of(lines, files)

    def alter(self, rng, data):
        return (self._orders if data.count(b",") == 7 else self._trades)(rng, data)

    def write(self, directory, rows):
        paths = [directory / "orders.csv", directory / "trades.csv"]
        for file, (path, header) in enumerate(zip(paths, (ORDERS, TRADES), strict=True)):
            lines = [header.encode(), *(row.data for row in rows if row.file == file)]
            path.write_bytes(b"".join(line + b"\n" for line in lines))
        return paths

    def read(self, row):
        names = (TRADES if row.file else ORDERS).split(",")
        fields = row.data.decode().split(",")
        values = dict(zip(names, fields, strict=True))
        hours, minutes, seconds = values["time"].split(":")
        clock = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
        if not (0 <= int(hours) < 24 and 0 <= int(minutes) < 60 and 0 <= float(seconds) < 60):
            raise ValueError("not a time")
        price, qty = whole(values["price"], 4), whole(values["volume"], 2)
        stock, channel = values["code"], int(values["channel"])
        if not stock or channel < 0:
            raise ValueError("no stock, or no channel")
        auction = not 34_200 <= clock < 53_820
        place = channel, int(values["trade_index" if row.file else "order_index"])
        code = int(values["function_code"])
        if not row.file:
            side = {49: 1, 50: 2}[code]
            kind = {49: "1", 50: "2", 85: "U"}[int(values["order_kind"])]
            event = {"type": "add", "side": side, "order": place[1], "price": price, "qty": qty}
            return place, stock, auction, event | {"ord_type": kind}
        bid, ask = int(values["bid_order"]), int(values["ask_order"])
        if code == 52 and (bid > 0) + (ask > 0) == 1:
            event = {"type": "cancel", "order": bid or ask, "of_side": 1 if bid else 2}
        elif code == 70 and bid > 0 and ask > 0:
            event = {"type": "trade", "side": 0, "bid": bid, "ask": ask}
        else:
            raise ValueError("not a trade or a cancel")
        return place, stock, auction, event | {"price": price, "qty": qty}
