"""A book of single orders that follows a feed and finds contradictions among its events."""

from tests.mutation.sweep import Point
from tests.support.naive_books import NaiveL3

SIDE = {1: "buy", 2: "sell"}


class OrderBook:
    """One stock. `broken` is why its events so far cannot be of a good capture."""

    def __init__(self, symbol, rules=None, never_crossed=True):
        self.symbol = symbol
        self.broken = ""
        self._rules = rules
        self._never_crossed = never_crossed
        self._book = NaiveL3("resync", rules, "distrust")

    def reset(self):
        """Orders end: the book is known again."""
        self.broken = ""
        self._book.reset()

    def apply(self, *, auction=False, **event):
        """Apply an event; in an auction, orders may match."""
        if self.broken:
            return
        if self._rules == "szse" and event["type"] != "trade" and self._crossed():
            self.broken = "crossed"
        self.broken = self.broken or self._contradiction(event, auction)
        if self.broken:
            return
        self._book.event(**event)
        self.broken = self._book.cause or ""
        if not self.broken and self._rules != "szse" and not auction and self._crossed():
            self.broken = "crossed"

    def _contradiction(self, event, auction):
        """Whether what an event says of an order is not so."""
        named = [event.get("order")] if event["type"] != "trade" else []
        if event["type"] == "trade":
            named = [event.get("bid"), event.get("ask"), event.get("order")]
        if event["type"] == "add":
            return ""
        for order in filter(None, named):
            known = self._book.orders.get(order)
            if known is None:
                continue
            side, price, _ = known
            sides = {event.get("bid"): 1, event.get("ask"): 2, event.get("order"): None}
            if side != (sides[order] or event.get("of_side") or side):
                return "another side than the order's"
            of_price = event.get("of_price", price)
            if None not in (price, of_price) and price != of_price and not auction:
                return "another price than the order's"
        return ""

    def _crossed(self):
        bids, asks = self._book.prices(1), self._book.prices(2)
        return bool(self._never_crossed and bids and asks and bids[0] >= asks[0])

    def state(self):
        """Both sides: price and orders of each level."""
        book = self._book
        return tuple(
            tuple(
                (price, tuple((i, book.orders[i][2]) for i in book.queues[side, price]))
                for price in book.prices(side)
            )
            for side in (1, 2)
        )

    def point(self, key, row):
        """The state after an event."""
        return Point(self.symbol, key, (row,), self.state(), self.broken)
