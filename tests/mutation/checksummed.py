"""OKX and Bitget: snapshots and updates without ids, each with a CRC-32 of the best 25 levels."""

import json
import zlib
from decimal import Decimal

from tests.mutation.altered import json_line
from tests.mutation.levels import Walk, crossed, received, set_levels, sides_of, whole
from tests.mutation.mutants import rows_of
from tests.mutation.sweep import Feed, Followed, Point

START_MS = 1_652_459_225_000
CHECKED = 25


class Checksummed(Feed):
    """Two instruments: a snapshot each, updates, another snapshot, trades in between."""

    def __init__(self, format):
        self.format = format
        self.alter = json_line(": ")

    def capture(self, rng):
        lines = []
        names = ("BTC-USDT", "ETH-USDT") if self.format == "okx" else ("BTCUSDT", "ETHUSDT")
        books = {name: (Walk(rng, depth=30), {}, {}) for name in names}

        def add(channel, name, action, data):
            time = START_MS + len(lines) * 7
            arg = {"channel": channel, "instId": name}
            if self.format == "bitget":
                arg = {"instType": "sp", **arg}
            document = {"arg": arg, "action": action, "data": data}
            text = json.dumps(document, separators=(",", ":"))
            lines.append(f"{time // 1000}.{time % 1000:03}5: {text}".encode())

        for number in range(150):
            name = names[number % 2] if number < 2 else rng.choice(names)
            walk, bids, asks = books[name]
            if not bids or number in (80, 81):
                action, levels = "snapshot", walk.levels()
                bids.clear()
                asks.clear()
            else:
                action, levels = "update", walk.step()
            texts = [_texts(side) for side in levels]
            for book, side in zip((bids, asks), texts, strict=True):
                _apply(book, side)
            data = {"asks": texts[1], "bids": texts[0], "ts": str(START_MS + number)}
            data["checksum"] = _signed(_crc(bids, asks))
            add("books", name, action, [data])
            if rng.random() < 0.2:
                add(*self._trade(name, number))
        return rows_of(lines)

    def _trade(self, name, number):
        if self.format == "bitget":
            return "trade", name, "update", [[str(START_MS), "100.5", "1", "buy"]]
        trade = {"tradeId": str(number), "px": "100.5", "sz": "1", "side": "buy"}
        return "trades", name, "update", [trade | {"ts": str(START_MS)}]

    def key(self, event):
        return event.ingest_ts_ns, event.event_type == 1

    def follow(self, rows):
        follower = _Books()
        for row in rows:
            follower.row = row
            try:
                time, document = received(row.data)
                arg = document["arg"]
                if arg["channel"] == "books":
                    if self.format == "bitget" and arg["instType"].lower() != "sp":
                        raise ValueError("another market")
                    follower.message(time, document, arg["instId"])
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                follower.invalid(repr(error), _name_in(row.data))
        return follower.followed


def _texts(levels):
    return [
        [f"{price // 10}.{price % 10}", f"{size}.50" if size else "0"] for price, size in levels
    ]


def _apply(book, levels):
    """Keep the text of each level, by its price."""
    set_levels(
        book,
        [(Decimal(p), f"{p}:{s}" if Decimal(s) else "") for p, s, *_ in levels],
    )


def _crc(bids, asks):
    sides = [
        [bids[price] for price in sorted(bids, reverse=True)[:CHECKED]],
        [asks[price] for price in sorted(asks)[:CHECKED]],
    ]
    texts = []
    for i in range(CHECKED):
        texts += [side[i] for side in sides if i < len(side)]
    return zlib.crc32(":".join(texts).encode())


def _signed(crc):
    return crc - (1 << 32) if crc >> 31 else crc


def _name_in(data):
    """The instrument of a row that may be damaged; None if it cannot be read."""
    try:
        document = json.loads(data.partition(b": ")[2])
        arg = document["arg"]
        return arg["instId"] if arg["channel"] == "books" else ""
    except (ValueError, KeyError, TypeError):
        return None


class _Books:
    """The books of all instruments."""

    def __init__(self):
        self.followed = Followed()
        self.row = None
        self._books = {}  # name → bids, asks, why it is broken

    def invalid(self, why, name):
        """A row that cannot be read: of one instrument, or of any."""
        self.followed.faults.append(f"row {self.row.origin}: {why}")
        for known in [name] if name is not None else list(self._books):
            if known in self._books:
                self._books[known][2] = why

    def message(self, time, document, name):
        (data,) = document["data"]
        checksum = data["checksum"]
        if type(checksum) is not int or type(document["action"]) is not str:
            raise ValueError("not a checksum or action")
        levels = [
            [(whole(level[0], 8), whole(level[1], 8)) for level in data[side]]
            for side in ("bids", "asks")
        ]
        if any(size < 0 for side in levels for _, size in side):
            raise ValueError("a size below zero")
        if document["action"] == "snapshot":
            self._books[name] = [{}, {}, ""]
        elif document["action"] != "update":
            raise ValueError("unknown action")
        if name not in self._books:
            return
        book = self._books[name]
        for side, texts in zip(book, (data["bids"], data["asks"]), strict=False):
            _apply(side, texts)
        if not book[2] and _crc(book[0], book[1]) != checksum & 0xFFFFFFFF:
            book[2] = "checksum"
        if not book[2] and crossed(book[0], book[1]):
            book[2] = "crossed"
        if book[2]:
            self.followed.faults.append(f"row {self.row.origin}: {book[2]}")
        key = time, document["action"] == "snapshot"
        self.followed.points.append(Point(name, key, (self.row.origin,), _state(book), book[2]))


def _state(book):
    sides = []
    for side in book[:2]:
        texts = {whole(str(p), 8): whole(text.split(":")[1], 8) for p, text in side.items()}
        sides.append(texts)
    return sides_of(*sides)
