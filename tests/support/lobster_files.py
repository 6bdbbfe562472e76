"""Seeded days of LOBSTER: messages, and the order book kept in plain Python."""

import random

import tapewire as tw
from tapewire import book
from tests.support.archives import logs_of

NO_ASK, NO_BID = (9_999_999_999, 0), (-9_999_999_999, 0)
MIDNIGHT_NS = 1_340_251_200 * 10**9  # 2012-06-21T00:00:00-04:00


class Day:
    """Random orders, with the row of the order book after each message.

    Times are in pairs: each message with an even number has that of the one before it.

    Args:
        rows: How many messages there are, of all levels.
        levels: How many levels a row has.
        before: How many messages there are before those of the file: their orders rest.
        limited: As in files of LOBSTER, omit messages of orders outside the levels.
    """

    def __init__(self, rows, seed=1, levels=3, before=0, limited=False):
        self.levels = levels
        self.messages = []
        self.orderbook = []
        self.live = {}  # id → [direction, price, size]
        self.limited = limited
        rng = random.Random(seed)
        for number in range(1, before + rows + 1):
            half = (number + 1) // 2
            self.step(rng, number, f"{34_200 + half // 500}.{half % 500 * 2:03}004241")
            if number == before:
                self.messages.clear()
                self.orderbook.clear()

    def step(self, rng, number, time):
        roll = rng.random()
        if not self.live or (roll < 0.5 and len(self.live) < 60):
            direction = rng.choice((1, -1))
            price = 1_000_000 - direction * 100 * rng.randrange(1, 12)
            self.live[number] = [direction, price, size := rng.randrange(1, 300)]
            self.add(time, 1, number, size, price, direction)
        elif roll < 0.9:
            order_id = rng.choice(list(self.live))
            direction, price, left = self.live[order_id]
            kind = rng.choice((2, 3, 4)) if left > 1 else 3
            size = left if kind == 3 else rng.randrange(1, left + (kind == 4))
            self.live[order_id][2] -= size
            if not self.live[order_id][2]:
                del self.live[order_id]
            self.add(time, kind, order_id, size, price, direction)
        elif roll < 0.97:
            self.add(time, 5, 0, rng.randrange(1, 50), 1_000_050, rng.choice((1, -1)))
        elif roll < 0.99:
            self.add(time, 6, -1, 500, 1_000_000, -1)
        else:
            self.add(time, 7, 0, 0, rng.choice((-1, 0, 1)), -1)

    def add(self, *message):
        row = self.row()
        if self.limited and message[1] <= 4 and self.orderbook and row == self.orderbook[-1]:
            return
        self.messages.append(",".join(map(str, message)))
        self.orderbook.append(row)

    def row(self):
        sides = []
        for direction, empty in ((-1, NO_ASK), (1, NO_BID)):
            sizes = {}
            for side, price, size in self.live.values():
                if side == direction:
                    sizes[price] = sizes.get(price, 0) + size
            best = sorted(sizes.items(), reverse=direction == 1)[: self.levels]
            sides.append(best + [empty] * (self.levels - len(best)))
        levels = [level for pair in zip(*sides, strict=True) for level in pair]
        return row_of(levels)

    def truth(self):
        """The row after the last message of each time, by the time in nanoseconds."""
        return {
            MIDNIGHT_NS + ns_of(message): row
            for message, row in zip(self.messages, self.orderbook, strict=True)
        }

    def write(self, directory, ticker="ACME", date="2012-06-21"):
        """Both files, the messages' first."""
        paths = []
        for kind, lines in (("message", self.messages), ("orderbook", self.orderbook)):
            path = directory / f"{ticker}_{date}_34200000_57600000_{kind}_{self.levels}.csv"
            path.write_text("".join(f"{line}\n" for line in lines))
            paths.append(path)
        return paths


def ns_of(message):
    """The time of a message since midnight."""
    seconds, _, fraction = message.partition(",")[0].partition(".")
    return int(seconds) * 10**9 + int(f"{fraction:0<9}")


def row_of(levels):
    """The row of an order book: price and size of the ask, then of the bid, level by level."""
    return ",".join(f"{price},{size}" for price, size in levels)


def book_states(archive, levels, symbol="ACME"):
    """The imported book of levels after each record: its time, line, trust, and row.

    A loss has the line of the record before it.
    """
    l2 = book.L2Book(4, 0, on_gap="resync")
    line = 0
    for log in logs_of(archive, "nasdaq", symbol, "book"):
        with tw.open_log(log) as reader:
            while (record := reader.next()) is not None:
                event = record.decode()
                l2.apply(record)
                line = event.native_seq or line
                sides = []
                for side, empty in ((l2.asks(), NO_ASK), (l2.bids(), NO_BID)):
                    shown = list(zip(side["price"].tolist(), side["size"].tolist(), strict=True))
                    assert len(shown) <= levels
                    sides.append(shown + [empty] * (levels - len(shown)))
                both = [level for pair in zip(*sides, strict=True) for level in pair]
                yield event.ingest_ts_ns, line, l2.trusted, row_of(both)


def by_line(archive, levels, count, symbol="ACME"):
    """After each line, whether the book is trusted, and its row."""
    states = {line: state for _, line, *state in book_states(archive, levels, symbol)}
    latest, found = [False, ""], []
    for line in range(1, count + 1):
        latest = states.get(line, latest)
        found.append(tuple(latest))
    return found


def by_time(archive, levels, times_ns, symbol="ACME"):
    """At each of these times, whether the book is trusted, and its row."""
    states = iter([*book_states(archive, levels, symbol), (2**63, 0, False, "")])
    state, latest, found = next(states), (False, ""), {}
    for time_ns in sorted(times_ns):
        while state[0] <= time_ns:
            latest, state = state[2:], next(states)
        found[time_ns] = latest
    return found
