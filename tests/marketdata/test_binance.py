"""Captures of Binance → archive → native book: its best prices are those of the venue's bookTicker.

At each update id that a diff and a bookTicker share, over both days of a pair.
"""

from decimal import Decimal

import pytest

import tapewire as tw
from tapewire.book import L2Book
from tests.support.binance_captures import (
    SPOT_BTC,
    SPOT_BTC_DAY_1,
    USDM_BTC_2023,
    USDM_BTC_2024,
    USDM_ETH_2024,
    is_diff,
    is_snapshot,
    messages,
    tickers,
)
from tests.support.captures import book_logs
from tests.support.marketdata import report_count

SCALE = Decimal(10) ** 8


def agreements(one, venue, symbol):
    """``(agree, shared)``: for how many of the shared ids book and bookTicker agree."""
    published = tickers(one.files)
    book = L2Book(8, 8)  # raises at a gap
    agree = shared = 0
    for directory in book_logs(one.archive, venue, symbol):
        with tw.open_log(directory) as log:
            for record in log:
                event = record.decode()
                if book.apply(event) != "changed" or event.event_type != 2:
                    continue
                want = published.get(event.update_last)
                if want is not None:
                    shared += 1
                    bid, ask = book.best_bid, book.best_ask
                    got = (bid.price, bid.size, ask.price, ask.size)
                    agree += got == tuple(value * SCALE for value in want)
    assert book.trusted
    assert book.gaps == []
    return agree, shared


def check(imported, name, venue, files, want):
    one = imported(venue.replace("_", "-"), *(f"binance/{file}" for file in files))
    assert one.summary.clean, one.summary
    agree, shared = agreements(one, venue, "ETHUSDT" if "eth" in name else "BTCUSDT")
    report_count(f"{name} shared ids", shared, want)
    report_count(name, agree, want)


@pytest.mark.parametrize(
    ("name", "files", "want"),
    [
        ("usdm_btc 2023", USDM_BTC_2023, 1565),
        ("usdm_btc 2024-07", USDM_BTC_2024, 625),
        ("usdm_eth 2024-07", USDM_ETH_2024, 834),
    ],
)
def test_the_best_prices_of_futures_are_the_venues(imported, name, files, want):
    check(imported, name, "binance_usdm", files, want)


def test_the_best_prices_of_spot_are_the_venues(imported):
    check(imported, "spot_btc", "binance_spot", SPOT_BTC, 1072)


def test_the_best_prices_of_the_first_day_of_spot_are_the_venues(imported):
    """The second day of this pair may be missing; shared ids are counted in the first."""
    one = imported("binance-spot", *(f"binance/{file}" for file in SPOT_BTC_DAY_1))
    rows = [message for _, message in messages(one.files)]
    published = tickers(one.files)
    since = next(m["lastUpdateId"] for m in rows if is_snapshot(m))
    ids = [m["u"] for m in rows if is_diff(m) and m["u"] > since]
    check(
        imported, "spot_btc day 1", "binance_spot", SPOT_BTC_DAY_1, sum(i in published for i in ids)
    )


def test_every_message_of_a_pair_is_a_record(imported):
    one = imported("binance-usdm", *(f"binance/{file}" for file in USDM_BTC_2024))
    carried = 1  # the book at midnight
    assert one.summary.records == sum(1 for _ in messages(one.files)) + carried
    assert one.summary.rows + carried == one.summary.records


def test_the_second_day_stands_alone(imported):
    """Its log begins with a snapshot of the book, and gives the same book as both days together."""
    one = imported("binance-usdm", *(f"binance/{file}" for file in USDM_BTC_2024))
    days = book_logs(one.archive, "binance_usdm", "BTCUSDT")
    both, second = L2Book(8, 8), L2Book(8, 8)
    for directory in days:
        with tw.open_log(directory) as log:
            both.apply_batch(log.read_batch(1 << 20))
    with tw.open_log(days[1]) as log:
        second.apply_batch(log.read_batch(1 << 20))
    assert second.trusted
    assert second.hash() == both.hash()
