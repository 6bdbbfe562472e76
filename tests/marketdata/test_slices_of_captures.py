"""Books and features of real captures in slices of 1 s, of 60 s and in one pass: the same bits."""

import pytest

from tapewire import ingest, replay
from tests.support.binance_captures import SPOT_BTC_DAY_1, USDM_BTC_2024
from tests.support.marketdata import capture

pytest.importorskip("pyspark", reason="pyspark is not installed")

from tests.support.replayed import Query, assert_same_rows

SECOND = 10**9
# Features that look back a few seconds, and features that look back an hour.
SHORT = "mid,spread_bps,microprice,imbalance5,bid_depth20,ofi,trade_flow_1s,vwap_3s,volatility_2s"
LONG = f"{SHORT},trade_sign,trade_price,time_since_trade"
TARDIS = "tardis/binance-futures_2024-08-08_BTCUSDT"
# Format, files, options of the import; the futures cross midnight.
CAPTURES = {
    "spot": ("binance-spot", [f"binance/{name}" for name in SPOT_BTC_DAY_1], {}),
    "futures": ("binance-usdm", [f"binance/{name}" for name in USDM_BTC_2024], {}),
    "tardis": ("tardis", [f"{TARDIS}_{k}.csv.gz" for k in ("incremental_book_L2", "trades")], {}),
    "sse": ("sse", ["sse/600519_20230207.zip"], {}),
    "szse": ("szse", ["szse/Orders.csv", "szse/Trans.csv"], {"date": "2023-02-07"}),
}
QUERIES = {
    "book by event": {"view": "book", "levels": 5},
    "book on a grid": {"view": "book", "levels": 20, "sample": "250ms"},
    "features by event": {"view": "features", "features": SHORT},
    "features by trade": {"view": "features", "features": LONG, "sample": "trade"},
    "features on a grid": {"view": "features", "features": SHORT, "sample": "100ms"},
}
SPANS = {"1 s": SECOND, "60 s": 60 * SECOND}
# A few slices of each are enough for every day; all of them take long.
MOST_SLICES = 6


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The archive of a capture, with a snapshot of its books every few seconds."""
    made = {}

    def get(name):
        if name not in made:
            format, files, options = CAPTURES[name]
            sources = [capture(file) for file in files]
            directory = tmp_path_factory.mktemp(name)
            ingest.run(format, sources, directory, **options)
            for log in sorted(directory.rglob("book/control.meta")):
                every = replay.Every(seconds=60 if name == "sse" else 5)
                replay.Snapshotter(log.parent, every=every, keep=None).run(follow=False)
            made[name] = directory
        return made[name]

    return get


@pytest.fixture(scope="module")
def one_pass(archive):
    """The query and the rows of one pass, each computed once."""
    made = {}

    def get(name, query):
        if (name, query) not in made:
            asked = Query(archive(name), **QUERIES[query])
            made[name, query] = asked, asked.one_pass()
        return made[name, query]

    return get


def check(query, whole, span_ns, most):
    """Some slices, spread over the log, one of them two days long if there are two days."""
    parts = query.parts(span_ns=span_ns)
    assert len(parts) > 3
    step = max(1, len(parts) // most) if most else 1
    times = whole["timestamp_ns"].to_numpy()
    rows = 0
    for part in parts[::step]:
        low = 0 if part.time_from is None else int((times < part.time_from).sum())
        high = len(times) if part.time_to is None else int((times < part.time_to).sum())
        assert_same_rows(query.read([part]), whole.slice(low, high - low))
        rows += high - low
    assert rows > 0


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("name", CAPTURES)
def test_slices_of_a_capture_give_the_bits_of_one_pass(one_pass, name, query, span):
    check(*one_pass(name, query), SPANS[span], MOST_SLICES)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("name", CAPTURES)
def test_all_slices_of_a_capture_give_the_bits_of_one_pass(one_pass, name, query, span):
    check(*one_pass(name, query), SPANS[span], None)


# The sample of Shenzhen begins in the middle of a session: an untrusted book has no snapshots.
@pytest.mark.parametrize("query", ["book by event", "features on a grid"])
@pytest.mark.parametrize("name", sorted(CAPTURES.keys() - {"szse"}))
def test_slices_at_snapshots_are_complete(one_pass, name, query):
    asked, whole = one_pass(name, query)
    parts = asked.view.plan(asked.options.replace(partitions=6), asked.logs, 6)
    assert len(parts) > 3
    assert_same_rows(asked.read(parts), whole)
