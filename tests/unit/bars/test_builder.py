"""Bars of batches of any size equal those built one trade at a time, to the last digit."""

import random
from dataclasses import asdict
from fractions import Fraction

import numpy as np
import pytest

from tapewire.bars.builder import BarBuilder, BarSpec
from tapewire.errors import InvalidOption, TapewireError
from tests.support.plain_bars import plain_bars

DAY = 20_000 * 86_400 * 10**9
SECOND = 10**9
MARKETS = {
    "small numbers": (2, 3, 10_000, 5_000),
    "numbers whose products need 128 bits": (8, 8, 6 * 10**12, 10**13),
    "prices around zero": (2, 0, 0, 50),
}
SIZES = {
    "time": [("1s", SECOND), ("1m", 60 * SECOND)],
    "tick": [(1, 1), (7, 7), (5_000, 5_000)],
    "volume": [("12.5", "12.5"), ("1000000", "1000000"), ("0.001", "0.001")],
    "dollar": [("250.75", "250.75"), ("12345678", "12345678")],
}
CASES = [(kind, *size) for kind, sizes in SIZES.items() for size in sizes]


def random_trades(seed, market, count=2_000):
    _, _, middle, largest = MARKETS[market]
    rng = random.Random(seed)
    time, trades = DAY, []
    for _ in range(count):
        time += rng.choice([0, 0, 1, 10**6, 3 * 10**8, 2 * SECOND])
        price = middle + rng.randint(-50, 50)
        trades.append((time, price, rng.randint(0, largest), rng.random() < 0.5))
    return trades


def built(trades, spec, scales, portions):
    builder, made, at = BarBuilder(spec, *scales), [], 0
    while at < len(trades):
        some = trades[at : at + portions()]
        at += len(some)
        times, prices, sizes = (np.array([t[i] for t in some], np.int64) for i in range(3))
        made += builder.add(times, prices, sizes, np.array([t[3] for t in some]))
    last = builder.finish()
    return [asdict(bar) for bar in ([*made, last] if last else made)]


@pytest.mark.parametrize("market", MARKETS)
@pytest.mark.parametrize(("kind", "size", "plain_size"), CASES)
def test_batches_of_any_size_give_the_plain_bars(kind, size, plain_size, market):
    trades, scales = random_trades(f"{kind} {size}", market), MARKETS[market][:2]
    want = plain_bars(trades, kind, plain_size, *scales)
    spec = BarSpec.parse(kind, size)
    rng = random.Random(1)
    assert built(trades, spec, scales, lambda: len(trades)) == want
    assert built(trades, spec, scales, lambda: 1) == want
    assert built(trades, spec, scales, lambda: rng.randint(1, 300)) == want
    assert sum(bar["trades"] for bar in want) == len(trades)


def test_sums_beyond_64_bits_stay_exact():
    builder = BarBuilder(BarSpec.parse("tick", 3), 8, 8)
    huge = np.full(3, 2**62, np.int64)
    [bar] = builder.add(np.arange(3), huge, huge, np.ones(3, bool))
    assert bar.volume == bar.buy_volume == 3 * 2**62
    assert bar.notional == 3 * 2**124
    assert bar.vwap(8) == 2**62 / 10**8


def test_the_mean_price_is_rounded_once():
    builder = BarBuilder(BarSpec.parse("tick", 2), 2, 0)
    columns = np.array([[0, 1], [33_333, 33_334], [3, 7]])
    [bar] = builder.add(*columns, np.zeros(2, bool))
    assert bar.vwap(2) == float(Fraction(33_333 * 3 + 33_334 * 7, 10 * 100))
    [empty] = builder.add(np.arange(2), np.ones(2, int), np.zeros(2, int), np.zeros(2, bool))
    assert empty.vwap(2) is None


def test_a_trade_of_negative_size_is_refused():
    builder = BarBuilder(BarSpec.parse("tick", 2), 2, 0)
    with pytest.raises(TapewireError, match="a negative size: size=-4"):
        builder.add(np.arange(2), np.ones(2, int), np.array([1, -4]), np.ones(2, bool))


@pytest.mark.parametrize(
    ("kind", "size", "message"),
    [
        ("tock", 1, "unknown kind of bar: kind='tock'"),
        ("tick", 0, "size=0"),
        ("tick", 1.5, "size=1.5, must be a positive integer"),
        ("volume", "-1", "size='-1'"),
        ("volume", "nan", "size='nan'"),
        ("dollar", "much", "size='much'"),
        ("dollar", float("inf"), "size=inf"),
        ("dollar", "1e999999999", "size='1e999999999'"),
        ("volume", "1e-999999999", "must be a positive number"),
        ("time", "7h", "size='7h', must divide a day"),
    ],
)
def test_an_invalid_size_is_refused(kind, size, message):
    with pytest.raises(InvalidOption, match=message):
        BarSpec.parse(kind, size)
