"""A small exchange: orders of some stocks that match by price and time, in one numbered channel."""

from dataclasses import dataclass, field

BUY, SELL = 1, 2


@dataclass
class Happened:
    """What one incoming order or cancel did.

    Attributes:
        kind: "order" or "cancel".
        fills: (resting order, price, size) of an order.
        left: What rests of an order; the size that a cancel removed.
        full: The size of the order.
    """

    kind: str
    stock: int
    order: int
    side: int
    price: int
    full: int
    fills: list = field(default_factory=list)
    left: int = 0


class Exchange:
    """Random orders and cancels; prices are ticks, sizes lots."""

    def __init__(self, rng, stocks=2):
        self._rng = rng
        self._books = [{} for _ in range(stocks)]  # order → [side, price, left], by age
        self._orders = 0

    def auction(self, stock):
        """An order that does not match, as before the opening."""
        return self._order(stock, matching=False)

    def step(self):
        """The next order or cancel."""
        stock = self._rng.randrange(len(self._books))
        book = self._books[stock]
        if len(book) > 4 and self._rng.random() < 0.3:
            order = self._rng.choice(list(book))
            side, price, left = book.pop(order)
            return Happened("cancel", stock, order, side, price, left, left=left)
        return self._order(stock, matching=self._rng.random() < 0.4)

    def reduce(self, stock, order, size):
        """Reduce a resting order, which keeps its place."""
        self._books[stock][order][2] -= size

    def replace(self, stock, order, size):
        """Replace a resting order by a new one at its price; returns its number and price."""
        side, price, _ = self._books[stock].pop(order)
        self._orders += 1
        self._books[stock][self._orders] = [side, price, size]
        return self._orders, price

    def resting(self, stock):
        """``(order, side, price, size)`` of all orders, by age."""
        return [(order, *values) for order, values in self._books[stock].items()]

    def _order(self, stock, matching):
        rng, book = self._rng, self._books[stock]
        self._orders += 1
        side = rng.choice((BUY, SELL))
        away = rng.randrange(1, 8) * (-1 if matching else 1)
        price = 1000 + (-away if side == BUY else away)
        size = rng.randrange(1, 20)
        made = Happened("order", stock, self._orders, side, price, size)
        made.left = size
        if matching:
            self._match(book, made)
        else:
            made.price = self._passive(book, side, price)
        if made.left:
            book[made.order] = [side, made.price, made.left]
        return made

    def _passive(self, book, side, price):
        """A price that does not cross."""
        others = [p for s, p, _ in book.values() if s != side]
        if not others:
            return price
        return min(price, min(others) - 1) if side == BUY else max(price, max(others) + 1)

    def _match(self, book, made):
        better = 1 if made.side == BUY else -1
        against = sorted(
            ((order, *values) for order, values in book.items() if values[0] != made.side),
            key=lambda row: row[2] * better,
        )
        for order, _, price, left in against:
            if not made.left or (price - made.price) * better > 0:
                return
            size = min(left, made.left)
            made.fills.append((order, price, size))
            made.left -= size
            if size == left:
                del book[order]
            else:
                book[order][2] = left - size
