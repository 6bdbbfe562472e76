"""Seeded days of LOBSTER: messages, and the order book kept in plain Python."""

import random

NO_ASK, NO_BID = (9_999_999_999, 0), (-9_999_999_999, 0)


class Day:
    """Random orders from an empty book, with the row of the order book after each message."""

    def __init__(self, rows, seed=1, levels=3):
        self.levels = levels
        self.messages = []
        self.orderbook = []
        self.live = {}  # id → [direction, price, size]
        rng = random.Random(seed)
        for number in range(1, rows + 1):
            time = f"{34_200 + number // 1000}.{rng.randrange(10**9):09}"
            self.step(rng, number, time)

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
        self.messages.append(",".join(map(str, message)))
        sides = []
        for direction, empty in ((-1, NO_ASK), (1, NO_BID)):
            sizes = {}
            for side, price, size in self.live.values():
                if side == direction:
                    sizes[price] = sizes.get(price, 0) + size
            best = sorted(sizes.items(), reverse=direction == 1)[: self.levels]
            sides.append(best + [empty] * (self.levels - len(best)))
        row = [
            number
            for ask, bid in zip(*sides, strict=True)
            for level in (ask, bid)
            for number in level
        ]
        self.orderbook.append(",".join(map(str, row)))

    def write(self, directory, ticker="ACME", date="2012-06-21"):
        """Both files, the messages' first."""
        paths = []
        for kind, lines in (("message", self.messages), ("orderbook", self.orderbook)):
            path = directory / f"{ticker}_{date}_34200000_57600000_{kind}_{self.levels}.csv"
            path.write_text("".join(f"{line}\n" for line in lines))
            paths.append(path)
        return paths
