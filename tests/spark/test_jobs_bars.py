"""The job `bars`: the bars of a plain loop, for any number of partitions."""

import random

import pytest

import tapewire as tw
from tapewire import spark as tws
from tapewire.bus import ArchiveLayout
from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.protocol.market import TradeTick
from tests.support.plain_bars import plain_bars

SECOND = 10**9
MIDNIGHT = 1_700_006_400 * SECOND
DAYS = ("2023-11-14", "2023-11-15")
# Prices times sizes of the second need more than 64 bits.
MARKETS = {"AAA": (2, 3, 10_000, 5_000), "BBB": (8, 8, 6 * 10**12, 10**13)}
KINDS = [
    ("time", "1s", SECOND),
    pytest.param("tick", 7, 7, marks=pytest.mark.long),  # in test_bars_start_over too
    ("volume", "12.5", "12.5"),
    ("dollar", "12345.678", "12345.678"),
]
FIELDS = ["start_ns", "end_ns", "open", "high", "low", "close", "volume", "buy_volume"]
FIELDS += ["notional", "trades", "complete"]


@pytest.fixture(scope="module")
def archive(module_tmp):
    """Trades of two symbols over midnight, many at equal times; ``(root, {symbol: trades})``."""
    root, made, known = module_tmp / "clean", {}, []
    for symbol, (price_scale, size_scale, middle, largest) in MARKETS.items():
        one = Instrument.of("venue", symbol, price_scale=price_scale, size_scale=size_scale)
        known.append(one)
        rng, time, trades, writers = random.Random(symbol), MIDNIGHT - 40 * SECOND, [], {}
        for number in range(1_500):
            time += rng.choice([0, 0, 0, 10**6, 10**8, 2 * 10**8])
            price, size = middle + rng.randint(-40, 40), rng.randint(1, largest)
            maker = rng.choice([0, 1, 2])
            ids = (number, 0, 0, one.symbol_hash, one.market_id, price_scale, size_scale)
            tick = TradeTick(time - 10**6, price, size, *ids, maker)
            day = DAYS[time >= MIDNIGHT]
            if day not in writers:
                path = ArchiveLayout(root).log("venue", symbol, day, "trades")
                writers[day] = tw.open_publisher(path, segment_bytes=1 << 20)
            writers[day].append_message(tick, timestamp_ns=time)
            trades.append((time, price, size, maker == 0))
        for writer in writers.values():
            writer.close()
        assert len(writers) == 2
        made[symbol] = trades
    Instruments(known).save(root)
    return root, made


def rows_of(spark, target, symbol):
    frame = spark.read.parquet(str(target)).where(f"symbol = '{symbol}'").orderBy("date", "bar")
    return [row.asDict() for row in frame.collect()]


@pytest.mark.parametrize(("kind", "size", "plain_size"), KINDS)
def test_bars_equal_those_of_a_plain_loop(spark, tmp, archive, kind, size, plain_size):
    root, trades = archive
    summary = tws.jobs.bars(spark, root, tmp / "bars", kind=kind, size=size)
    assert summary.done == 4
    for symbol, own in trades.items():
        price_scale, size_scale, *_ = MARKETS[symbol]
        want = plain_bars(own, kind, plain_size, price_scale, size_scale)
        got = rows_of(spark, tmp / "bars", symbol)
        assert [{name: row[name] for name in FIELDS} for row in got] == want
        assert len(want) > 20
        for row in got:
            exact = int(row["notional"]) / (int(row["volume"]) * 10**price_scale)
            assert row["vwap"] == exact
            assert (row["price_scale"], row["size_scale"]) == (price_scale, size_scale)
            assert row["date"].isoformat() == DAYS[row["start_ns"] >= MIDNIGHT]


def test_bars_start_over_with_each_day(spark, tmp, archive):
    root, _ = archive
    tws.jobs.bars(spark, root, tmp / "bars", kind="tick", size=7)
    got = rows_of(spark, tmp / "bars", "AAA")
    first = [row for row in got if row["date"].isoformat() == DAYS[0]]
    assert [row["complete"] for row in first[:-1]] == [True] * (len(first) - 1)
    assert first[-1]["end_ns"] < MIDNIGHT
    assert got[len(first)]["bar"] == 0
    assert sum(row["trades"] for row in got) == 1_500


@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.long), 16])
def test_the_number_of_partitions_changes_nothing(spark, tmp, archive, partitions):
    root, trades = archive
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    try:
        tws.jobs.bars(spark, root, tmp / "bars", kind="volume", size="12.5")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    want = plain_bars(trades["BBB"], "volume", "12.5", 8, 8)
    got = rows_of(spark, tmp / "bars", "BBB")
    assert [{name: row[name] for name in FIELDS} for row in got] == want


def test_symbols_and_dates_select_and_finished_days_are_skipped(spark, tmp, archive):
    root, _ = archive
    one = {"symbols": ["venue:AAA"], "dates": [DAYS[1]]}
    first = tws.jobs.bars(spark, root, tmp / "bars", kind="tick", size=10, **one)
    rest = tws.jobs.bars(spark, root, tmp / "bars", kind="tick", size=10)
    assert (first.done, rest.done, rest.skipped) == (1, 3, 1)


def test_a_day_that_fails_is_reported_and_the_others_are_done(spark, tmp):
    for symbol, scales in {"AAA": (2, 4), "BBB": (2, 2)}.items():
        one = Instrument.of("venue", symbol, price_scale=2, size_scale=3)
        path = ArchiveLayout(tmp).log("venue", symbol, DAYS[1], "trades")
        with tw.open_publisher(path, segment_bytes=1 << 16) as writer:
            for n, scale in enumerate(scales):
                ids = (n, 0, 0, one.symbol_hash, one.market_id, scale, 3)
                writer.append_message(TradeTick(1, 10, 1, *ids, 0), timestamp_ns=MIDNIGHT + n)
    Instruments([Instrument.of("venue", name, 2, 3) for name in ("AAA", "BBB")]).save(tmp)
    summary = tws.jobs.bars(spark, tmp, tmp / "bars", kind="tick", size=10)
    assert (summary.done, summary.failed, summary.exit_code) == (1, 1, 3)
    [finding] = summary.findings
    assert finding.part == f"venue/AAA/{DAYS[1]}"
    assert "scales of trades change within a day" in finding.what
    assert [row["trades"] for row in rows_of(spark, tmp / "bars", "BBB")] == [2]
