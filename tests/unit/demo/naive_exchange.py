"""Price-time matching written for clarity: one list, searched and sorted for every order."""

from tapewire.demo.events import MARKET, Cancel, Close, New, SetLevel, Side


class NaiveExchange:
    """`orders`: [owner, order_id, side, price, qty], the oldest first."""

    def __init__(self):
        self.orders = []
        self.fills = []  # (owner, order_id, price, qty) of strategies, taker first
        self.trades = []  # (price, qty)
        self.closed = False

    def apply(self, what):
        match what:
            case New():
                self._new(what)
            case Cancel(owner, order_id):
                self.orders = [o for o in self.orders if o[:2] != [owner, order_id]]
            case SetLevel(side, price, qty) if not self.closed:
                order_id = price * 2 + (side is Side.SELL)
                self.orders = [o for o in self.orders if o[:2] != [MARKET, order_id]]
                self._new(New(MARKET, order_id, side, price, qty))
            case Close():
                self.closed = True
                self.orders = [o for o in self.orders if o[0] == MARKET]

    def _new(self, new):
        known = any(o[:2] == [new.owner, new.order_id] for o in self.orders)
        if self.closed or known or new.qty <= 0 or new.price <= 0:
            return
        left = new.qty
        buying = new.side is Side.BUY
        others = [o for o in self.orders if o[2] is not new.side]
        others.sort(
            key=lambda o: o[3] if buying else -o[3]
        )  # stable: keeps time order within a price
        for maker in others:
            crosses = maker[3] <= new.price if buying else maker[3] >= new.price
            if not left or not crosses:
                break
            qty = min(left, maker[4])
            left -= qty
            maker[4] -= qty
            self.trades.append((maker[3], qty))
            for owner, order_id in ((new.owner, new.order_id), maker[:2]):
                if owner != MARKET:
                    self.fills.append((owner, order_id, maker[3], qty))
        self.orders = [o for o in self.orders if o[4]]
        if left and not new.immediate:
            self.orders.append([new.owner, new.order_id, new.side, new.price, left])

    def levels(self):
        total = {}
        for _, _, side, price, qty in self.orders:
            total[int(side), price] = total.get((int(side), price), 0) + qty
        return {(side, price, qty) for (side, price), qty in total.items()}
