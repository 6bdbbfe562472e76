"""The days of each symbol of an archive."""

import pytest

import tapewire as tw
from tapewire.bus import ArchiveLayout
from tapewire.scan.options import ReadOptions
from tapewire.scan.symbol_days import days_of, on_dates, symbols_option


def test_a_day_continues_the_consecutive_days_before_it(tmp_path):
    layout = ArchiveLayout(tmp_path)
    for date in ("2023-04-05", "2024-02-29", "2024-03-01"):
        for stream in ("book", "trades"):
            tw.open_publisher(layout.log("v", "S", date, stream), segment_bytes=1 << 20).close()
    old, first, second = days_of(tmp_path, ReadOptions())

    assert old.before == first.before == ()
    assert [(log.date, log.stream) for log in second.before] == [("2024-02-29", "book")]


@pytest.fixture
def two_days(tmp):
    for date in ("2024-02-29", "2024-03-01"):
        where = ArchiveLayout(tmp).log("v", "S", date, "book")
        tw.open_publisher(where, segment_bytes=1 << 20).close()
    return tmp


def test_a_missing_date_is_an_error_with_those_available(two_days):
    days = days_of(two_days, ReadOptions())
    assert [day.date for day in on_dates(days, ["2024-03-01", "2024-03-02"])] == ["2024-03-01"]
    with pytest.raises(tw.NotALog, match=r"date=2024-03-02, available=2024-02-29 … 2024-03-01"):
        on_dates(days, "2024-03-02")


def test_a_missing_symbol_is_an_error(two_days):
    with pytest.raises(tw.NotALog, match="of this symbol: symbol=v:T"):
        days_of(two_days, ReadOptions(symbols=symbols_option(["v:T"])))
