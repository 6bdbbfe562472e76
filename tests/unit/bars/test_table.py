"""Bars of tables of trades, without Spark."""

import random
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tapewire as tw
from tapewire import bars
from tapewire.errors import TapewireError
from tapewire.protocol.market import Maker, TradeTick
from tests.support.plain_bars import DAY_NS, plain_bars


def trades_of(seed, count=500, **columns):
    """A table of trades over three days, and the same as tuples."""
    dice = random.Random(seed)
    times = sorted(dice.randrange(3 * DAY_NS) for _ in range(count))
    rows = [(t, dice.randrange(90, 110), dice.randrange(20), dice.random() < 0.5) for t in times]
    table = pa.table(
        {
            "timestamp_ns": pa.array([row[0] for row in rows], pa.int64()),
            "price": pa.array([row[1] for row in rows], pa.int64()),
            "size": pa.array([row[2] for row in rows], pa.int64()),
            "side": ["buy" if row[3] else "sell" for row in rows],
            "price_scale": pa.array([2] * count, pa.int32()),
            "size_scale": pa.array([0] * count, pa.int32()),
            **{name: [value] * count for name, value in columns.items()},
        }
    )
    return table, rows


def plain(table):
    """The columns of `plain_bars`, in its form."""
    names = [name for name in table.column_names if name not in ("venue", "date", "symbol", "bar")]
    rows = table.select([n for n in names if n not in ("vwap", "price_scale", "size_scale")])
    exact = ("volume", "buy_volume", "notional")
    return [row | {name: int(row[name]) for name in exact} for row in rows.to_pylist()]


@pytest.mark.parametrize(
    ("kind", "size", "plain_size"),
    [("time", "1h", 3600 * 10**9), ("tick", 7, 7), ("volume", 50, 50), ("dollar", 90, 90)],
)
def test_bars_of_a_table_are_those_of_one_trade_at_a_time(kind, size, plain_size):
    table, rows = trades_of(1)
    made = bars.from_trades(table, kind=kind, size=size)
    expected = plain_bars(rows, kind, plain_size, 2, 0)
    assert plain(made) == [{name: bar[name] for name in plain(made)[0]} for bar in expected]
    assert made.schema == bars.SCHEMA


def test_symbols_and_days_have_separate_bars():
    first, _ = trades_of(2, venue="v", symbol="A")
    second, _ = trades_of(3, venue="v", symbol="B")
    mixed = pa.concat_tables([first, second]).sort_by("timestamp_ns")
    made = bars.from_trades(mixed, kind="tick", size=10)
    for symbol, table in (("A", first), ("B", second)):
        alone = bars.from_trades(table, kind="tick", size=10)
        mine = made.filter(np.array(made["symbol"]) == symbol)
        assert mine.to_pylist() == alone.to_pylist()
    assert set(made["date"].to_pylist()) == {"1970-01-01", "1970-01-02", "1970-01-03"}


@pytest.mark.parametrize("frame", [pa.Table.to_pandas, pl.from_arrow], ids=["pandas", "polars"])
def test_frames_are_accepted(frame):
    table, _ = trades_of(4)
    given = frame(table)
    assert isinstance(given, pd.DataFrame | pl.DataFrame)
    assert bars.from_trades(given, kind="tick", size=3) == bars.from_trades(
        table, kind="tick", size=3
    )


def write_ticks(queue, rows, markets=(7,)):
    columns = [
        TradeTick(
            timestamp_ns=time,
            price=price,
            size=size,
            trade_id=n,
            buyer_order_id=0,
            seller_order_id=0,
            symbol_hash=1,
            market_id=markets[n % len(markets)],
            price_scale=2,
            size_scale=0,
            is_buyer_maker=Maker.SELLER if is_buy else Maker.BUYER,
        )
        for n, (time, price, size, is_buy) in enumerate(rows)
    ]
    with tw.open_publisher(queue, segment_bytes=1 << 20) as writer:
        for tick in columns:
            writer.append_message(tick, timestamp_ns=tick.timestamp_ns)
            writer.append(0x3001, b"not a trade")


@pytest.mark.parametrize(("kind", "size"), [("time", "1h"), ("tick", 7), ("volume", 50)])
def test_bars_of_a_log_are_those_of_its_trades(tmp, kind, size):
    table, rows = trades_of(7)
    write_ticks(tmp / "trades", rows)
    made = bars.from_log(tmp / "trades", kind=kind, size=size, venue="v", symbol="A")
    named = table.append_column("venue", [["v"] * len(rows)])
    named = named.append_column("symbol", [["A"] * len(rows)])
    assert made == bars.from_trades(named, kind=kind, size=size)


def test_a_log_of_several_instruments_is_refused(tmp):
    write_ticks(tmp / "trades", trades_of(8, count=4)[1], markets=(7, 9))
    with pytest.raises(TapewireError, match="several instruments: market_id=7, 9"):
        bars.from_log(tmp / "trades")


def test_a_log_without_trades_has_no_bars(tmp):
    write_ticks(tmp / "trades", [])
    assert bars.from_log(tmp / "trades").num_rows == 0


def test_no_trades_have_no_bars():
    table, _ = trades_of(5)
    assert bars.from_trades(table.slice(0, 0)).num_rows == 0


def test_scales_that_change_within_a_day_are_refused():
    table, _ = trades_of(6, count=2)
    times = pa.array([1, 2], pa.int64())
    changed = table.set_column(0, "timestamp_ns", times).set_column(
        4, "price_scale", pa.array([2, 3], pa.int32())
    )
    with pytest.raises(TapewireError, match="scales of trades change within a day"):
        bars.from_trades(changed)


def test_bars_and_quality_need_no_spark():
    code = (
        "import sys; sys.modules['pyspark'] = None; import tapewire.bars, tapewire.quality, "
        "tapewire.quality.findings, tapewire.quality.report, tapewire.page.features_report"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
