"""Tardis CSV through an archive to a book: every level of every row of the independent book."""

import csv
import gzip
from decimal import Decimal

import numpy as np
import pytest

from tapewire import book, ingest
from tapewire.protocol.market import TradeTick
from tests.support.archives import batches_of, count_of, records_of
from tests.support.marketdata import capture, report_count

VENUE, SYMBOL = "binance-futures", "BTCUSDT"
PREFIX = "tardis/binance-futures_2024-08-08_BTCUSDT_"
SCALE = 8


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    kinds = ("incremental_book_L2", "trades", "book_snapshot_25")
    files = [capture(f"{PREFIX}{kind}.csv.gz") for kind in kinds]
    archive = tmp_path_factory.mktemp("tardis")
    return archive, ingest.run("tardis", files, archive)


def scaled(text):
    return int(Decimal(text).scaleb(SCALE))


def rows_of(name):
    with gzip.open(capture(f"{PREFIX}{name}.csv.gz"), "rt", newline="") as file:
        yield from csv.DictReader(file)


def side_of(row, side, depth=25):
    return [
        (scaled(row[f"{side}[{i}].price"]), scaled(row[f"{side}[{i}].amount"]))
        for i in range(depth)
        if row[f"{side}[{i}].price"]
    ]


def test_every_row_is_read(imported):
    archive, summary = imported
    report_count("tardis rows", summary.rows, 445_262 + 21_313 + 6_223)
    report_count("tardis bad rows", sum(summary.bad.values()), 0)
    report_count("tardis trades", count_of(archive, VENUE, SYMBOL, "trades"), 21_313)
    levels = sum(
        len(event.bids) + len(event.asks)
        for event in (record.decode() for record in records_of(archive, VENUE, SYMBOL, "book"))
    )
    report_count("tardis levels in the book's events", levels, 445_262)


def test_25_levels_equal_those_of_the_independent_book_row_for_row(imported):
    archive, _ = imported
    replayed = book.L2Book(SCALE, SCALE)
    states = {}
    for record in records_of(archive, VENUE, SYMBOL, "book"):
        event = record.decode()
        replayed.apply(record)
        states[(event.ingest_ts_ns, event.exchange_ts_ns)] = (
            replayed.bids(25).tolist(),
            replayed.asks(25).tolist(),
        )
    rows = right = 0
    for row in rows_of("book_snapshot_25"):
        rows += 1
        key = (int(row["local_timestamp"]) * 1000, int(row["timestamp"]) * 1000)
        right += states.get(key) == (side_of(row, "bids"), side_of(row, "asks"))
    assert rows > 0
    report_count("tardis rows of 25 levels that are equal", right, rows)


def test_the_stream_of_snapshots_is_the_file(imported):
    archive, _ = imported
    records = records_of(archive, VENUE, SYMBOL, "book_snapshot_25")
    right = rows = 0
    for row, record in zip(rows_of("book_snapshot_25"), records, strict=True):
        event = record.decode()
        rows += 1
        right += (event.bids.tolist(), event.asks.tolist()) == (
            side_of(row, "bids"),
            side_of(row, "asks"),
        )
    report_count("tardis snapshots in their own stream", right, rows)


def test_trades_are_those_of_the_file(imported):
    archive, _ = imported
    ticks = np.concatenate(
        [TradeTick.decode(batch) for batch in batches_of(archive, VENUE, SYMBOL, "trades")]
    )
    got = zip(
        *(ticks[name].tolist() for name in ("timestamp_ns", "price", "size", "trade_id")),
        ticks["is_buyer_maker"].tolist(),
        strict=True,
    )
    want = [
        (
            int(row["timestamp"]) * 1000,
            scaled(row["price"]),
            scaled(row["amount"]),
            int(row["id"]),
            {"buy": 0, "sell": 1}[row["side"]],
        )
        for row in rows_of("trades")
    ]
    right = sum(a == b for a, b in zip(got, want, strict=True))
    report_count("tardis trades that are equal", right, len(want))


@pytest.mark.parametrize(
    ("name", "log", "records"),
    [
        ("binance-futures_book_snapshot_25_BTCUSDT.csv", "BTCUSDT/2020-09-01/book_snapshot_25", 10),
        ("bitmex_trades_XBTUSD.csv", "XBTUSD/2020-03-01/trades", 10),
        ("deribit_incremental_book_L2_BTC-PERPETUAL.csv", "BTC-PERPETUAL/2020-04-01/book", 1),
    ],
)
def test_real_samples_have_the_names_and_types_that_are_expected(tmp, name, log, records):
    summary = ingest.run("tardis", [capture(f"tardis/{name}")], tmp / "archive")
    report_count(f"{name}, bad rows", sum(summary.bad.values()), 0)
    (only,) = summary.logs.values()
    assert only.log.endswith(log)
    report_count(name, only.records, records)
