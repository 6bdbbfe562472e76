"""Units: files that go through one importer together."""

import zipfile

import pytest

from tapewire.errors import InvalidOption
from tapewire.ingest.file_units import files_of, units_of


def test_days_of_a_capture_follow_each_other_in_one_unit():
    files = ["/d/usdm_btc_20240719.gz", "/d/usdm_eth_20240718.gz", "/d/usdm_btc_20240718.gz"]
    assert units_of("binance-usdm", files) == {
        "usdm_btc": ["/d/usdm_btc_20240718.gz", "/d/usdm_btc_20240719.gz"],
        "usdm_eth": ["/d/usdm_eth_20240718.gz"],
    }


def test_orders_and_trades_of_an_exchange_are_one_unit():
    assert units_of("sse", ["/d/SHorders.zip", "/d/SHtrans.zip"]) == {
        "SH": ["/d/SHorders.zip", "/d/SHtrans.zip"]
    }
    assert list(units_of("szse", ["/d/Orders.csv", "/d/Trans.csv"])) == ["files"]


def test_messages_and_order_book_of_a_stocks_day_are_one_unit():
    name = "/d/{}_2012-06-{}_34200000_57600000_{}_10.csv".format
    kinds = ("message", "orderbook")
    files = [name(stock, day, kind) for stock in "AB" for day in (21, 22) for kind in kinds]
    units = units_of("lobster", files)
    assert list(units) == [f"{stock}_2012-06-{day}" for stock in "AB" for day in (21, 22)]
    assert list(units.values()) == [files[i : i + 2] for i in (0, 2, 4, 6)]


def test_each_file_of_databento_is_a_unit():
    files = [f"/d/xnas-itch-2024010{day}.{kind}.dbn.zst" for day in (2, 3) for kind in ("mbo", "x")]
    assert [len(unit) for unit in units_of("dbn", files).values()] == [1, 1, 1, 1]


def test_directories_distinguish_markets_if_names_do_not():
    files = ["/d/BTC/2024-01-01.csv", "/d/ETH/2024-01-01.csv"]
    assert list(units_of("tardis", files)) == ["BTC_2024-01-01", "ETH_2024-01-01"]


@pytest.mark.parametrize(("unit", "count"), [("file", 3), ("all", 1), ("symbol", 2), ("day", 3)])
def test_the_unit_can_be_chosen(unit, count):
    files = ["/d/a_2024-01-01.csv", "/d/a_2024-01-02.csv", "/d/b_2024-01-01.csv"]
    assert len(units_of("okx", files, unit)) == count


def test_an_unknown_unit_is_refused():
    with pytest.raises(InvalidOption, match="unit='week'"):
        units_of("okx", ["/d/a"], "week")


def test_a_directory_stands_for_all_files_below_it_except_hidden_ones(tmp_path):
    for name in ("b.csv", "sub/a.csv", ".hidden", ".cache/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert files_of(tmp_path) == [str(tmp_path / "b.csv"), str(tmp_path / "sub" / "a.csv")]


def test_a_pattern_stands_for_the_files_that_match_it_and_a_file_for_itself(tmp_path):
    for name in ("a1.csv", "a2.csv", "b.csv"):
        (tmp_path / name).write_text("x")
    assert files_of(tmp_path / "a*.csv") == [str(tmp_path / "a1.csv"), str(tmp_path / "a2.csv")]
    assert files_of([tmp_path / "b.csv", tmp_path / "b.csv"]) == [str(tmp_path / "b.csv")]


def test_a_source_without_files_is_an_error_that_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        files_of(tmp_path / "none*")


def test_each_member_of_a_zip_is_a_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "day.zip", "w") as archive:
        archive.writestr("orders.txt", "x")
        archive.writestr("trades.txt", "x")
    path = str(tmp_path / "day.zip")
    assert files_of(path) == [f"{path}!orders.txt", f"{path}!trades.txt"]
    assert len(units_of("sse", files_of(path))) == 1


def test_a_damaged_zip_is_left_to_its_importer(tmp_path):
    (tmp_path / "day.zip").write_bytes(b"PK\x03\x04 not a zip")
    assert files_of(tmp_path / "day.zip") == [str(tmp_path / "day.zip")]
