"""Features of real captures: slices of any size give the bits of one pass."""

import random
from itertools import pairwise

import pytest

from tapewire import replay
from tests.support.binance_captures import SPOT_BTC_DAY_1, USDM_BTC_2024
from tests.support.tables import assert_same

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

SECOND = 10**9
# Features that look back a few seconds: slices begin at snapshots. An hour: at the start of a
# capture.
NAMES = [
    *("bid", "ask", "mid", "spread_bps", "microprice", "imbalance1", "imbalance5", "bid_depth20"),
    *("ask_depth20", "ofi", "trade_flow_1s", "volume_3s", "vwap_1s", "vwap_3s", "volatility_2s"),
]
LONG_NAMES = [*NAMES, "trade_sign", "trade_price", "time_since_trade", "volatility_30s", "vwap_1m"]
CAPTURES = {
    "spot": ("binance-spot", SPOT_BTC_DAY_1),
    "futures": ("binance-usdm", USDM_BTC_2024),
}
SLICES = {"0.1 s": SECOND // 10, "1 s": SECOND, "60 s": 60 * SECOND}
SAMPLES = ["event", "trade", "100ms"]


def logs_of(imported, market):
    format, files = CAPTURES[market]
    one = imported(format, *(f"binance/{name}" for name in files))
    directories = {p.parent for p in one.archive.rglob("control.meta")}
    logs = sorted(
        p for p in directories if p.name in ("book", "trades") or p.parent.name == "trades"
    )
    assert len(logs) >= 2, sorted(directories)
    return logs


def check(logs, names, sample, span, seed, count=4, late=False, **options):
    """Slices of about `span` one after the other, from a random moment on; records they read."""
    options["symbols"] = "BTCUSDT"
    whole = replay.features(logs, names, sample, **options)
    times = whole["timestamp_ns"].to_numpy()
    rng = random.Random(seed)
    first, last = int(times[0]), int(times[-1]) + 1
    cuts = [rng.randrange(first, max(first + 1, last - count * span))]
    if late:
        cuts = [last - count * span]
    while len(cuts) <= count and cuts[-1] < last:
        cuts.append(cuts[-1] + rng.randint(span * 4 // 5, span * 6 // 5))
    wanted = (times >= cuts[0]) & (times < cuts[-1])
    want = whole.slice(int((times < cuts[0]).sum()), int(wanted.sum()))
    batches, records = [], []
    for time_from, time_to in pairwise(cuts):
        bounds = {"time_from": time_from, "time_to": time_to}
        with replay.FeatureStream(logs, names, sample, **bounds, **options) as stream:
            batches += stream
            records.append(stream.records)
    assert want.num_rows > 0 or sample == "trade"
    assert_same(pa.Table.from_batches(batches, whole.schema), want)
    return records


@pytest.fixture(scope="module")
def with_snapshots(imported):
    """The logs of a capture, with a snapshot of their books every two seconds."""
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
    check(logs, NAMES, sample, SLICES[size], f"{market} {sample} {size}")


@pytest.mark.parametrize("market", CAPTURES)
def test_slices_without_snapshots_give_the_same_bits(with_snapshots, market):
    check(with_snapshots(market), LONG_NAMES, "100ms", 40 * SECOND, market, snapshots=False)


@pytest.mark.parametrize("market", CAPTURES)
def test_a_slice_reads_little_where_there_are_snapshots(with_snapshots, market):
    logs = with_snapshots(market)
    few = check(logs, NAMES, "100ms", SECOND, market, late=True)
    all_of_them = check(logs, NAMES, "100ms", SECOND, market, late=True, snapshots=False)
    assert sum(few) < sum(all_of_them) / 2


@pytest.mark.parametrize("market", CAPTURES)
def test_a_capture_has_values_in_every_column(with_snapshots, market):
    table = replay.features(with_snapshots(market), LONG_NAMES, "100ms", symbols="BTCUSDT")
    for name in LONG_NAMES:
        assert table[name].null_count < table.num_rows, name
