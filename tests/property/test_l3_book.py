"""An L3 book equals one list per price, for any events and every rule and policy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapewire import book
from tapewire.errors import CorruptRecord, GapDetected, UnknownOrder
from tapewire.protocol import market
from tapewire.protocol.instruments import Instrument
from tests.support.naive_books import BUY, LEAST, MOST, SELL, NaiveL3, Raised

STOCK = Instrument.of("xshe", "000155", price_scale=2, size_scale=0, book_mode="l3")
TYPES = {"add": 1, "cancel": 2, "modify": 3, "trade": 4}

ids = st.integers(1, 12)
prices = st.one_of(st.integers(-2, 6), st.integers(1, 6), st.sampled_from([LEAST, MOST]))
qtys = st.one_of(st.integers(0, 6), st.integers(1, 6), st.sampled_from([MOST, -1]))
sides = st.sampled_from([BUY, SELL])
adds = st.fixed_dictionaries(
    {"type": st.just("add"), "order": ids, "side": sides, "price": prices, "qty": qtys},
    optional={"market": st.booleans(), "ord_type": st.sampled_from(["1", "2", "U"])},
)
cancels = st.fixed_dictionaries(
    {"type": st.just("cancel"), "qty": st.sampled_from([0, 0, 0, 1, 2]), "price": st.just(0)},
    optional={"order": ids, "bid": ids, "ask": ids, "side": sides},
)
modifies = st.fixed_dictionaries(
    {"type": st.just("modify"), "order": ids, "price": prices, "qty": qtys},
    optional={"market": st.booleans()},
)
trades = st.fixed_dictionaries(
    {"type": st.just("trade"), "price": st.integers(1, 6), "qty": st.integers(0, 4)},
    optional={"order": ids, "bid": ids, "ask": ids, "side": sides},
)
steps = st.one_of(
    adds, adds, adds, cancels, modifies, trades, trades,
    st.sampled_from(["reset", "release", "record_gap", "reload"]).map(lambda name: {"type": name}),
)  # fmt: skip


class Driver:
    def __init__(self, rules, on_gap, unknown) -> None:
        self.real = book.L3Book(rules, price_scale=2, size_scale=0, on_gap=on_gap, unknown=unknown)
        self.naive = NaiveL3(on_gap, rules, unknown)
        self.time = 0

    def run(self, real, naive) -> None:
        wanted = raised = None
        try:
            wanted = naive()
        except (Raised, KeyError) as error:
            raised = error
        if raised is None:
            assert real() == wanted
        elif isinstance(raised, KeyError):
            with pytest.raises(UnknownOrder):
                real()
        elif raised.args[0] == "record_gap":
            with pytest.raises(GapDetected):
                real()
        else:
            with pytest.raises(CorruptRecord):
                real()

    def event(self, e) -> None:
        payload = market.l3_event(
            STOCK, self.time, type=TYPES[e["type"]], side=e.get("side", 0),
            order_id=e.get("order", 0), bid_order_id=e.get("bid", 0),
            ask_order_id=e.get("ask", 0), price=e["price"], qty=e["qty"],
            ord_type=ord(e.get("ord_type", "\0")), flags=int(e.get("market", False)),
        )  # fmt: skip
        self.run(lambda: self.real.apply(payload), lambda: self.naive.event(**e))

    def step(self, e) -> None:
        self.time += 1
        if e["type"] in TYPES:
            self.event(e)
        elif e["type"] == "reset":
            payload = market.reset(STOCK, self.time, book_mode=1)
            self.run(lambda: self.real.apply(payload), self.naive.reset)
        elif e["type"] == "release":
            self.run(self.real.release, self.naive.release)
        elif e["type"] == "record_gap":
            self.run(lambda: self.real.record_gap(7, 9), lambda: self.naive.record_gap(7, 9))
        elif self.real.trusted and not self.naive.gaps:
            payload = self.real.save()
            self.real = book.L3Book.load(
                payload, on_gap=self.real.on_gap, unknown=self.real.unknown
            )
            assert self.real.save() == payload

    def compare(self) -> None:
        real, naive = self.real, self.naive
        assert real.bids().tolist() == naive.rows(BUY)
        assert real.asks().tolist() == naive.rows(SELL)
        assert (real.distrust, real.quarantined) == (naive.cause, naive.quarantined)
        assert real.unknown_count == naive.unknown_count
        assert real.order_count() == len(naive.orders)
        assert real.hash() == naive.hash()
        for number, (side, price, left) in naive.orders.items():
            name = "buy" if side == BUY else "sell"
            assert real.order(number) == (number, name, price, left)
            if price is None:
                assert real.queue_position(number) is None
                continue
            queue = naive.queues[side, price]
            ahead = queue[: queue.index(number)]
            size_ahead = sum(naive.orders[i][2] for i in ahead)
            assert real.queue_position(number) == (len(ahead), size_ahead)
            assert real.orders(name, price).tolist() == [(i, naive.orders[i][2]) for i in queue]
            assert real.order_count(name, price) == len(queue)


@given(
    st.sampled_from([None, "szse", "sse", "continuous"]),
    st.sampled_from(["raise", "quarantine", "resync"]),
    st.sampled_from(["ignore", "raise", "distrust"]),
    st.lists(steps, max_size=40),
)
@settings(max_examples=150, deadline=None)
def test_any_events_give_what_a_list_gives(rules, on_gap, unknown, steps):
    driver = Driver(rules, on_gap, unknown)
    for step in steps:
        driver.step(step)
        driver.compare()
