"""Features of real captures: slices of any size give the bits of one pass, with snapshots and without."""

import random

import pytest

from tapewire import replay
from tests.support.binance_captures import SPOT_BTC_DAY_1, USDM_BTC_2024
from tests.support.tables import assert_same

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

SECOND = 10**9
NAMES = [
    *("bid", "ask", "mid", "spread_bps", "microprice", "imbalance1", "imbalance5", "bid_depth20"),
    *("ask_depth20", "ofi", "trade_sign", "trade_price", "time_since_trade", "trade_flow_1s"),
    *("volume_10s", "vwap_1s", "vwap_10s", "volatility_2s", "volatility_30s"),
]
CAPTURES = {
    "spot": ("binance-spot", SPOT_BTC_DAY_1),
    "futures": ("binance-usdm", USDM_BTC_2024),
}
SLICES = {"0.1 s": SECOND // 10, "1 s": SECOND, "60 s": 60 * SECOND}
SAMPLES = ["event", "trade", "100ms"]


def logs_of(imported, market):
    format, files = CAPTURES[market]
    one = imported(format, *(f"binance/{name}" for name in files))
    folders = {p.parent for p in one.archive.rglob("control.meta")}
    logs = sorted(p for p in folders if p.name in ("book", "trades") or p.parent.name == "trades")
    assert len(logs) >= 2, sorted(folders)
    return logs


def pieces(logs, sample, cuts, **options):
    for time_from, time_to in zip(cuts, cuts[1:], strict=False):
        times = {"time_from": time_from, "time_to": time_to}
        yield replay.features(logs, NAMES, sample, symbols="BTCUSDT", **times, **options)


def check(logs, sample, span, count, seed, **options):
    """Slices of about `span` one after the other, from a random moment on."""
    whole = replay.features(logs, NAMES, sample, symbols="BTCUSDT")
    times = whole["timestamp_ns"].to_numpy()
    rng = random.Random(seed)
    first, last = int(times[0]), int(times[-1]) + 1
    begin = rng.randrange(first, max(first + 1, last - count * span))
    cuts = [begin]
    while len(cuts) <= count and cuts[-1] < last:
        cuts.append(cuts[-1] + rng.randint(span * 4 // 5, span * 6 // 5))
    want = whole.slice(
        int((times < begin).sum()), int(((times >= begin) & (times < cuts[-1])).sum())
    )
    assert want.num_rows > 0 or sample == "trade"
    assert_same(pa.concat_tables(pieces(logs, sample, cuts, **options)), want)
    return want


@pytest.fixture(scope="module")
def with_snapshots(imported):
    """The logs of a capture, their books saved every two seconds of the tape."""
    made = {}

    def get(market):
        if market not in made:
            made[market] = logs_of(imported, market)
            for log in made[market]:
                every = replay.Every(seconds=2)
                replay.Snapshotter(log, every=every, keep=None).run(follow=False)
        return made[market]

    return get


@pytest.mark.parametrize("market", CAPTURES)
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("size", SLICES)
def test_slices_of_a_capture_give_the_bits_of_one_pass(with_snapshots, market, sample, size):
    logs = with_snapshots(market)
    check(logs, sample, SLICES[size], 4, f"{market} {sample} {size}")


@pytest.mark.parametrize("market", CAPTURES)
def test_slices_without_snapshots_give_the_same_bits(with_snapshots, market):
    check(with_snapshots(market), "100ms", 40 * SECOND, 3, market, snapshots=False)


@pytest.mark.parametrize("market", CAPTURES)
def test_a_capture_has_values_in_every_column(with_snapshots, market):
    table = replay.features(with_snapshots(market), NAMES, "100ms", symbols="BTCUSDT")
    for name in NAMES:
        assert table[name].null_count < table.num_rows, name
