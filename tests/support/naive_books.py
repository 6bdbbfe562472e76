"""Simple books to compare the native ones with: one dict per side, one list per price."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import xxhash

LEAST, MOST = -(2**63), 2**63 - 1
BUY, SELL = 1, 2


class Raised(Exception):
    """Raised by the policy `raise`: ``cause, first, last``."""


def ordered(side: int, prices):
    return sorted(prices, reverse=side == BUY)


@dataclass
class Trust:
    """Shared by both books: why they are untrusted, and what the policy does then."""

    on_gap: str
    cause: str | None
    quarantined: bool = False
    gaps: list = field(default_factory=list)
    raised: tuple | None = None

    def distrust(self, cause: str, first: int = 0, last: int = 0) -> str:
        self.gaps.append([cause, first, last, False])
        self.cause = self.cause or cause
        if self.on_gap == "quarantine":
            self.quarantined = True
        if self.on_gap == "raise" and cause not in ("unknown_order", "duplicate_order"):
            self.raised = cause, first, last
        return "ignored"

    def trust(self) -> None:
        self.cause = None
        for gap in self.gaps:
            gap[3] = True

    def done(self, applied: str) -> str:
        raised, self.raised = self.raised, None
        if raised:
            raise Raised(*raised)
        return applied

    def record_gap(self, first: int, last: int) -> None:
        self.distrust("record_gap", first, last)
        self.done("")

    def release(self) -> None:
        self.quarantined = False


class NaiveL2(Trust):
    def __init__(self, on_gap: str) -> None:
        super().__init__(on_gap, "no_snapshot")
        self.sides = {BUY: {}, SELL: {}}
        self.last = 0
        self.waiting = []

    def distrust(self, cause: str, first: int = 0, last: int = 0) -> str:
        super().distrust(cause, first, last)
        if self.quarantined:
            self.waiting = []
        return "ignored"

    def snapshot(self, bids, asks, native_seq: int) -> str:
        if self.quarantined:
            return "ignored"
        before, self.sides = self.sides, {BUY: {}, SELL: {}}
        if not self.levels(bids, asks, delta=False):
            self.sides = before
            return self.done("ignored")
        self.last = native_seq
        self.trust()
        waiting, self.waiting = self.waiting if native_seq else [], []
        for diff in waiting:
            if not self.quarantined:
                self.change(*diff)
        return self.done("changed")

    def reset(self) -> str:
        if self.quarantined:
            return "ignored"
        self.sides = {BUY: {}, SELL: {}}
        self.last, self.waiting, self.cause = 0, [], "reset"
        return "changed"

    def heartbeat(self) -> str:
        return "ignored" if self.quarantined else "unchanged"

    def diff(self, bids, asks, prev: int, last: int, delta: bool) -> str:
        if self.quarantined:
            return "ignored"
        return self.done(self.change(bids, asks, prev, last, delta))

    def change(self, bids, asks, prev: int, last: int, delta: bool) -> str:
        held = "ignored" if prev == last == 0 else "buffered"
        numbered, right = bool(prev or last), self.cause is None
        if right and numbered and self.last and prev != self.last:
            if last <= self.last:
                return "unchanged"
            if prev > self.last:
                right = not self.distrust("venue_gap", self.last + 1, prev)
            elif delta:
                right = not self.distrust("overlap")
        if right and self.levels(bids, asks, delta):
            if numbered:
                self.last = last
            return "changed"
        if self.quarantined:
            return "ignored"
        if held == "buffered":
            self.waiting.append((bids, asks, prev, last, delta))
        return held

    def levels(self, bids, asks, delta: bool) -> bool:
        """All of them, or none."""
        made = {side: dict(levels) for side, levels in self.sides.items()}
        for side, levels in ((BUY, bids), (SELL, asks)):
            for price, size in levels:
                new = made[side].get(price, 0) + size if delta else size
                if new > MOST or new < LEAST:
                    return not self.distrust("does_not_fit")
                if new < 0:
                    return not self.distrust("negative_size")
                made[side][price] = new
                if new == 0:
                    del made[side][price]
        self.sides = made
        return True

    def rows(self, side: int):
        return [(p, self.sides[side][p]) for p in ordered(side, self.sides[side])]

    def hash(self) -> str:
        rows = [(side, *row) for side in (BUY, SELL) for row in self.rows(side)]
        return xxhash.xxh3_128_hexdigest(b"".join(struct.pack("<Bqq", *row) for row in rows))


class NaiveL3(Trust):
    def __init__(self, on_gap: str, rules: str | None = None, unknown: str = "ignore") -> None:
        super().__init__(on_gap, None)
        self.rules, self.policy = rules, unknown
        self.unknown_count = 0
        self.clear()

    def clear(self) -> None:
        self.orders = {}  # id: [side, price or None, remaining]
        self.queues = {}  # (side, price): [id, ...]
        self.settling = None

    def reset(self) -> str:
        if self.quarantined:
            return "ignored"
        self.clear()
        self.trust()
        return "changed"

    def unknown(self, cause: str) -> str:
        self.unknown_count += 1
        if self.policy == "raise":
            raise KeyError(cause)
        return self.distrust(cause) if self.policy == "distrust" else "unchanged"

    def prices(self, side: int):
        return ordered(side, [price for s, price in self.queues if s == side])

    def size(self, side: int, price: int) -> int:
        return sum(self.orders[i][2] for i in self.queues.get((side, price), ()))

    def leave(self, order: int) -> None:
        side, price, _ = self.orders[order]
        if price is not None:
            self.queues[side, price].remove(order)
            if not self.queues[side, price]:
                del self.queues[side, price]

    def join(self, order: int, price: int, qty: int) -> bool:
        """To the end of the queue at a price; False where the level's sum would not fit."""
        side, old, left = self.orders[order]
        if self.size(side, price) - (left if old == price else 0) + qty > MOST:
            return False
        self.leave(order)
        self.orders[order] = [side, price, qty]
        self.queues.setdefault((side, price), []).append(order)
        return True

    def drop(self, order: int) -> None:
        self.leave(order)
        del self.orders[order]

    def settle(self) -> None:
        order, price = self.settling
        self.settling = None
        waits = order in self.orders and self.orders[order][1] is None
        if waits and not self.join(order, price, self.orders[order][2]):
            self.distrust("does_not_fit")

    def unpriced(self, e) -> bool:
        if e.get("market"):
            return True
        return self.rules in ("szse", "sse") and (
            e["price"] <= 0 or (self.rules == "szse" and e.get("ord_type") == "1")
        )

    def event(self, **e) -> str:
        if self.quarantined or self.cause:
            return "ignored"
        named = {e.get("order", 0), e.get("bid") or None, e.get("ask") or None}
        may_cross = self.rules is None or e["type"] == "trade"
        if self.rules == "szse" and not may_cross and self.crossed():
            return self.done(self.distrust("crossed"))
        if self.settling and self.settling[0] not in named:
            self.settle()
        if self.cause:
            return self.done("ignored")
        if e["qty"] < 0:
            return self.done(self.distrust("negative_size"))
        result = getattr(self, e["type"])(e)
        if self.rules != "szse" and not may_cross and self.crossed() and not self.cause:
            result = self.distrust("crossed")
        return self.done(result)

    def crossed(self) -> bool:
        bids, asks = self.prices(BUY), self.prices(SELL)
        return bool(bids and asks) and bids[0] >= asks[0]

    def contradicts(self, e, order: int) -> bool:
        """Whether an event of Shanghai repeats another price or side than the order's."""
        side, price, _ = self.orders[order]
        if self.rules != "sse" or price is None:
            return False
        given = e.get("side", 0)
        if e["type"] == "cancel" and given and given != side:
            return True
        return (e["type"] == "cancel" or given != 0) and e["price"] > 0 and e["price"] != price

    def add(self, e) -> str:
        if e["qty"] == 0:
            return "unchanged"
        if e["order"] in self.orders:
            return self.unknown("duplicate_order")
        price, unpriced = e["price"], self.unpriced(e)
        if self.rules == "szse" and e.get("ord_type") == "U":
            best = self.prices(e["side"])[:1]
            price, unpriced = (best[0], False) if best else (0, True)
        self.orders[e["order"]] = [e["side"], None, e["qty"]]
        if not unpriced and not self.join(e["order"], price, e["qty"]):
            del self.orders[e["order"]]
            return self.distrust("does_not_fit")
        return "changed"

    def cancel(self, e) -> str:
        order = e.get("order") or e.get("bid") or e.get("ask") or 0
        if order not in self.orders:
            return self.unknown("unknown_order")
        if self.contradicts(e, order):
            return self.unknown("unknown_order")
        if e["qty"] > self.orders[order][2]:
            return self.distrust("negative_size")
        self.reduce(order, e["qty"] or self.orders[order][2])
        return "changed"

    def reduce(self, order: int, qty: int) -> None:
        self.orders[order][2] -= qty
        if self.orders[order][2] == 0:
            self.drop(order)

    def modify(self, e) -> str:
        if e["order"] not in self.orders:
            return self.unknown("unknown_order")
        _, price, left = self.orders[e["order"]]
        if e["qty"] == 0:
            self.drop(e["order"])
        elif self.unpriced(e):
            self.leave(e["order"])
            self.orders[e["order"]][1:] = [None, e["qty"]]
        elif price == e["price"] and e["qty"] <= left:
            if e["qty"] == left:
                return "unchanged"
            self.orders[e["order"]][2] = e["qty"]
        elif not self.join(e["order"], e["price"], e["qty"]):
            return self.distrust("does_not_fit")
        if self.settling and self.settling[0] == e["order"]:
            self.settling = None
        return "changed"

    def trade(self, e) -> str:
        bid, ask = e.get("bid", 0), e.get("ask", 0)
        ids = [i for i in (bid, ask) if i] or [e.get("order", 0)]
        if self.rules == "sse" and e.get("side") and (bid or ask):
            ids = [i for i in (bid if e["side"] == SELL else ask,) if i]
        if e["qty"] == 0:
            return "unchanged"
        known = []
        for order in ids:
            if order not in self.orders:
                self.unknown("unknown_order")
                if self.cause:
                    return "ignored"
            elif self.contradicts(e, order):
                return self.unknown("unknown_order")
            elif self.orders[order][2] < e["qty"]:
                return self.distrust("negative_size")
            elif order not in known:
                known.append(order)
        for order in known:
            self.reduce(order, e["qty"])
            left = self.orders.get(order)
            if self.rules == "szse" and left and left[1] is None:
                if self.settling and self.settling[0] != order:
                    self.settle()
                self.settling = order, e["price"]
        return "changed" if known else "unchanged"

    def rows(self, side: int):
        return [(p, self.size(side, p), len(self.queues[side, p])) for p in self.prices(side)]

    def hash(self) -> str:
        content = b""
        for side in (BUY, SELL):
            for price in self.prices(side):
                content += struct.pack("<Bq", side, price)
                for i in self.queues[side, price]:
                    content += struct.pack("<Qq", i, self.orders[i][2])
        return xxhash.xxh3_128_hexdigest(content)
