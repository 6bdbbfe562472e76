"""Binance, spot and USD-M: diffs chained by update ids, REST snapshots; no checksum."""

import itertools
import json

from tests.mutation.altered import json_line
from tests.mutation.levels import Walk, crossed, set_levels, sides_of, whole
from tests.mutation.mutants import rows_of
from tests.mutation.sweep import Feed, Followed, Point

SYMBOL = "BTCUSDT"
START_NS = 1_721_347_020 * 10**9
SNAPSHOTS = {3: 2, 45: 43, 90: 88}  # after this diff, the book after that one


class Binance(Feed):
    """Diffs, trades and tickers of one symbol; snapshots, all but the first one needless."""

    def __init__(self, market):
        self.format = f"binance-{market}"
        self._spot = market == "spot"
        self.alter = json_line(" ")

    def capture(self, rng):
        walk, last, lines = Walk(rng), 1000, []
        books = {}

        def add(document):
            stamp = START_NS + len(lines) * 1_000_003
            lines.append(f"{stamp} {json.dumps(document, separators=(',', ':'))}".encode())

        for number in range(130):
            bids, asks = walk.step()
            previous = last
            first = previous + 1 + (0 if self._spot else rng.randrange(3))
            last = first + rng.randrange(4)
            books[number] = last, walk.levels()
            add({"stream": "s", "data": self._diff(number, previous, first, last, bids, asks)})
            if number in SNAPSHOTS:
                update, (bids, asks) = books[SNAPSHOTS[number]]
                sides = {"bids": _texts(bids), "asks": _texts(asks)}
                add({"lastUpdateId": update, "symbol": SYMBOL, **sides})
            if rng.random() < 0.3:
                add({"data": self._trade(number)})
        return rows_of(lines)

    def _diff(self, number, previous, first, last, bids, asks):
        time = START_NS // 10**6 + number
        head = {"e": "depthUpdate", "E": time, "s": SYMBOL, "U": first, "u": last}
        if not self._spot:
            head |= {"T": time, "pu": previous}
        return head | {"b": _texts(bids), "a": _texts(asks)}

    def _trade(self, number):
        time = START_NS // 10**6 + number
        made = {"e": "trade", "E": time, "s": SYMBOL, "t": number, "p": "100.0", "q": "1.5"}
        return made | {"T": time, "m": True} | ({"M": True} if self._spot else {})

    def key(self, event):
        return event.ingest_ts_ns, event.event_type == 1

    def follow(self, rows):
        followed, chains = Followed(), {}
        for row in rows:
            try:
                stamp, _, text = row.data.decode().partition(" ")
                document, time = json.loads(text), _time_ns(stamp)
                if "lastUpdateId" in document:
                    chain = _chain_of(document.get("symbol", SYMBOL), chains, followed)
                    chain.snapshot(row, time, document)
                    continue
                data = document.get("data", document)
                if data["e"] == "depthUpdate":
                    previous = data["U"] - 1 if self._spot else data["pu"]
                    chain = _chain_of(data["s"], chains, followed)
                    chain.diff(row, time, data, previous)
                elif data["e"] not in ("trade", "aggTrade"):
                    raise ValueError(f"unknown message: {data['e']}")
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                followed.faults.append(f"row {row.origin}: {error!r}")
        for chain in chains.values():
            chain.finish()
        return followed


def _texts(levels):
    return [[f"{price // 10}.{price % 10}", f"{size}.5" if size else "0"] for price, size in levels]


def _time_ns(stamp):
    value = int(stamp)
    return value * (10**6 if value < 10**14 else 10**3 if value < 10**17 else 1)


def _scaled(levels):
    return [(whole(price, 8), whole(size, 8)) for price, size, *_ in levels]


def _ids(*values):
    if any(type(value) is not int or value < 0 for value in values):
        raise ValueError(f"not update ids: {values}")
    return values


def _chain_of(symbol, chains, followed):
    if type(symbol) is not str or not symbol:
        raise ValueError("no symbol")
    return chains.setdefault(symbol, _Chain(symbol, followed))


class _Chain:
    """One book by the update ids of the venue."""

    def __init__(self, symbol, followed):
        self.followed = followed
        self._symbol = symbol
        self._book = None  # two dicts
        self._diffs = []  # (previous, last, bids, asks)
        self._known = set()
        self._last = None  # of the stream
        self._begins = None  # the update id of the first snapshot that counts, and of the last one
        self._update = 0
        self._broken = ""
        self._moved = []

    def snapshot(self, row, time, document):
        (update,) = _ids(document["lastUpdateId"])
        bids, asks = _scaled(document["bids"]), _scaled(document["asks"])
        if self._book is None or self._broken:
            after = [diff for diff in self._diffs if diff[1] > update]
            chained = not after or after[0][0] <= update
            for one, two in itertools.pairwise(after):
                chained = chained and two[0] == one[1]
            if chained:
                self._broken = ""
                self._book = dict(bids), dict(asks)
                for _, _, more_bids, more_asks in after:
                    self._set(more_bids, more_asks)
                self._update = update
                self._begins = update if self._begins is None else self._begins
            self._last = max(update, self._last or 0) if chained else self._last
        self._point(row, (time, True), update)

    def diff(self, row, time, data, previous):
        _, last, previous = _ids(data["U"], data["u"], previous)
        bids, asks = _scaled(data["b"]), _scaled(data["a"])
        again = (previous, last) in self._known
        self._known.add((previous, last))
        if not again:
            if self._last is not None and previous > self._last:
                self._break(row, f"update ids: {previous} after {self._last}", moved=True)
            elif (
                self._last is not None
                and previous < self._last
                and self._update < last <= self._last  # an older one may come after its snapshot
            ):
                self._break(row, f"{previous} to {last} after {self._last}", moved=True)
            # Otherwise it follows, or its absolute sizes overlap those of the last one.
            self._last = max(last, self._last or 0)
            self._diffs.append((previous, last, bids, asks))
            if self._book is not None and not self._broken:
                self._set(bids, asks)
                if crossed(*self._book):
                    self._break(row, "crossed")
        if self._book is not None:
            self._point(row, (time, False))

    def _set(self, bids, asks):
        for side, levels in zip(self._book, (bids, asks), strict=True):
            set_levels(side, levels)

    def _break(self, row, why, moved=False):
        self._broken = self._broken or why
        # What follows a diff that was moved is no fault if that can be put into its place.
        moved = moved or bool(self._moved)
        (self._moved if moved else self.followed.faults).append(f"row {row.origin}: {why}")

    def finish(self):
        """Diffs out of order are no fault if they can be put into their order.

        Nor are those that are missing before the first snapshot.
        """
        begins = self._begins or 0
        in_order = sorted(self._known, key=lambda ids: ids[1])
        if any(two[0] > max(one[1], begins) for one, two in itertools.pairwise(in_order)):
            self.followed.faults.extend(self._moved)

    def _point(self, row, key, identity=None):
        state = sides_of(*self._book) if self._book is not None else None
        self.followed.points.append(
            Point(self._symbol, key, (row.origin,), state, self._broken, identity or self._last)
        )
