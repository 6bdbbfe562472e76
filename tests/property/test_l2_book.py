"""An L2 book equals one dict per side, for any events and every policy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapewire import book
from tapewire.errors import CorruptRecord, GapDetected
from tapewire.protocol import market
from tapewire.protocol.instruments import Instrument
from tests.support.naive_books import BUY, LEAST, MOST, SELL, NaiveL2, Raised

BTC = Instrument.of("binance", "BTCUSDT", price_scale=1, size_scale=3)

near = st.integers(-8, 8)
prices = st.one_of(near, near, near.map(lambda n: n * 10**7), st.sampled_from([LEAST, -1, 0, MOST]))
sizes = st.one_of(st.integers(0, 5), st.integers(0, 5), st.sampled_from([MOST, MOST - 1]))
changes = st.one_of(st.integers(-3, 5), st.integers(-3, 5), st.sampled_from([MOST, LEAST, -MOST]))


def levels(size):
    return st.lists(st.tuples(prices, size), max_size=6)


# How the ids of a diff relate to those of the book: see `Driver.diff`.
steps = st.one_of(
    st.tuples(st.just("diff"), levels(sizes), levels(sizes), st.just("next"), st.just(False)),
    st.tuples(
        st.just("diff"),
        levels(changes),
        levels(changes),
        st.sampled_from(["next", "next", "stale", "overlap", "gap", "unnumbered"]),
        st.booleans(),
    ),
    st.tuples(st.just("snapshot"), levels(sizes), levels(sizes), st.integers(-6, 4)),
    st.tuples(st.just("snapshot"), levels(sizes), levels(changes), st.integers(-6, 4)),
    st.tuples(st.sampled_from(["reset", "heartbeat", "release", "record_gap", "reload"])),
)


class Driver:
    """Apply one step to both books and compare them."""

    def __init__(self, on_gap: str) -> None:
        self.real = book.L2Book(1, 3, on_gap=on_gap)
        self.naive = NaiveL2(on_gap)
        self.top_id = 100  # the last update id that the venue has given
        self.time = 0

    def run(self, real, naive) -> None:
        wanted = raised = None
        try:
            wanted = naive()
        except Raised as error:
            raised = error.args
        if raised is None:
            assert real() == wanted
        elif raised[0] in ("venue_gap", "record_gap"):
            with pytest.raises(GapDetected) as caught:
                real()
            assert (caught.value.first, caught.value.last) == raised[1:]
        else:
            with pytest.raises(CorruptRecord):
                real()

    def apply(self, payload: bytes, naive) -> None:
        self.run(lambda: self.real.apply(payload), naive)

    def diff(self, bids, asks, where, delta) -> None:
        known = self.naive.last or self.top_id
        prev, last = {
            "next": (known, known + 2),
            "stale": (max(known - 5, 0), known),
            "overlap": (max(known - 3, 0), known + 2),
            "gap": (known + 4, known + 6),
            "unnumbered": (0, 0),
        }[where]
        if not delta:
            bids, asks = ([(p, abs(s) & MOST) for p, s in side] for side in (bids, asks))
        self.top_id = max(self.top_id, last)
        payload = market.l2_diff(
            BTC,
            self.time,
            bids=bids,
            asks=asks,
            first=prev and prev + 1,
            last=last,
            prev=prev,
            delta=delta,
        )
        self.apply(payload, lambda: self.naive.diff(bids, asks, prev, last, delta))

    def snapshot(self, bids, asks, ahead) -> None:
        native_seq = 0 if ahead == 4 else self.top_id + ahead
        self.apply(
            market.l2_snapshot(BTC, self.time, bids=bids, asks=asks, native_seq=native_seq),
            lambda: self.naive.snapshot(bids, asks, native_seq),
        )

    def reset(self) -> None:
        self.apply(market.reset(BTC, self.time), self.naive.reset)

    def heartbeat(self) -> None:
        self.apply(market.heartbeat(BTC, self.time), self.naive.heartbeat)

    def release(self) -> None:
        self.run(self.real.release, self.naive.release)

    def record_gap(self) -> None:
        self.run(lambda: self.real.record_gap(7, 9), lambda: self.naive.record_gap(7, 9))

    def reload(self) -> None:
        """Save the book, load it, and continue with the loaded one."""
        if self.real.trusted and not self.naive.gaps:
            payload = self.real.save()
            self.real = book.L2Book.load(payload, on_gap=self.real.on_gap)
            assert self.real.save() == payload

    def compare(self) -> None:
        real, naive = self.real, self.naive
        assert real.bids().tolist() == naive.rows(BUY)
        assert real.asks().tolist() == naive.rows(SELL)
        assert real.bids(2).tolist() == naive.rows(BUY)[:2]
        assert real.best_bid == next(iter(naive.rows(BUY)), None)
        assert real.best_ask == next(iter(naive.rows(SELL)), None)
        assert real.depth("ask", 3) == min(MOST, sum(size for _, size in naive.rows(SELL)[:3]))
        assert (real.distrust, real.quarantined) == (naive.cause, naive.quarantined)
        assert real.last_update == naive.last
        assert real.waiting == len(naive.waiting)
        assert real.hash() == naive.hash()
        found = [[g.cause, g.first, g.last, g.resynced] for g in real.gaps]
        assert found == naive.gaps


@given(st.sampled_from(["raise", "quarantine", "resync"]), st.lists(steps, max_size=25))
@settings(max_examples=120, deadline=None)
def test_any_events_give_what_a_dict_gives(on_gap, steps):
    driver = Driver(on_gap)
    driver.snapshot([(1, 5)], [(3, 5)], 0)
    for name, *arguments in steps:
        driver.time += 1
        getattr(driver, name)(*arguments)
        driver.compare()


@pytest.mark.parametrize("tick", [1, 7, 10**7, 2**40])
def test_a_price_that_wanders_gives_what_a_dict_gives(tick):
    """Enough changes that the window of ticks is placed, left and placed again."""
    rng = np.random.default_rng(tick)
    driver = Driver("raise")
    driver.snapshot([], [], 0)
    middle = 0
    for round_ in range(60):
        middle += int(rng.integers(-300, 400))
        count = 400
        away = np.minimum(2.0 ** rng.normal(6, 3, count), 2.0**17).astype(np.int64)
        size = rng.integers(0, 3, count)  # a third of them removes a level
        odd = np.where(rng.random(count) < 0.01, 1, 0) if tick > 1 and round_ > 20 else 0
        bids = np.stack([(middle - away) * tick + odd, size], 1)
        asks = np.stack([(middle + 1 + away) * tick - odd, size[::-1]], 1)
        driver.diff(bids.tolist(), asks.tolist(), "next", False)
        driver.compare()


def test_more_levels_than_a_diff_can_count():
    count = 70_000
    levels = np.stack([np.arange(count) * 3 - count, np.arange(count) % 11 + 1], 1)
    above = np.array([10 * count, 0])
    driver = Driver("raise")
    driver.snapshot(levels.tolist(), (levels + above).tolist(), 0)
    driver.compare()
    half = levels[::2] * [1, 0]
    driver.diff(half.tolist(), (half[:100] + above).tolist(), "next", False)
    driver.compare()
    driver.reload()
    driver.compare()
    assert driver.real.level_count("bid") == count // 2
