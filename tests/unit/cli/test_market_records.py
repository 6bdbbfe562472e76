"""Market data in `tail` and `export`: names, decimals, and a row for each level."""

import csv
import io

import pyarrow.parquet as pq
import pytest

import tapewire as tw
from tapewire.protocol import market
from tapewire.protocol.instruments import Instrument, Instruments
from tests.support.commands import tapewire

BTC = Instrument.of("binance", "BTCUSDT", 2, 3)
STOCK = Instrument.of("szse", "000001", 2, 0, rules="szse", book_mode="l3")
IDS = {"venue_id": BTC.venue_id, "market_id": BTC.market_id, "stream_id": 0}


@pytest.fixture
def log(tmp):
    """A snapshot, a diff, an order, a reset, two kinds of trades and a venue's own bytes."""
    Instruments([BTC, STOCK]).save(tmp)
    events = [
        market.l2_snapshot(BTC, 1, bids=[(9_999_950, 1_250)], asks=[(9_999_960, 10)], native_seq=6),
        market.l2_diff(BTC, 1, bids=[(-5, 0)], first=7, last=9, prev=6, exchange_ns=8),
        market.l3_event(
            STOCK, 1, type=1, side=1, order_id=7, price=1_050, qty=300, ord_type=ord("2"), flags=2
        ),
        market.reset(BTC, 1),
    ]
    with tw.open_publisher(tmp / "log", segment_bytes=1 << 20) as writer:
        for event in events:
            writer.append(market.BOOK_EVENT, event, timestamp_ns=1)
        tick = market.TradeTick(8, 10_150, 2_500, 1, 2, 3, BTC.symbol_hash, BTC.market_id, 2, 3, 1)
        writer.append_batch(market.TRADE_TICK, [bytes(tick)], timestamps_ns=1)  # not declared
        writer.append_message(market.Trade(8, float("nan"), 2.5, 1, 2, 3, 1, 4), timestamp_ns=1)
        writer.append_message(market.VenueRaw(b'{"u":1}'), timestamp_ns=1)
    return tmp / "log"


def fields(log, *arguments):
    return [record.get("fields") for record in tapewire("tail", log, "--json", *arguments).json]


def test_a_book_event_is_shown_with_names_and_decimals(log):
    snapshot, diff, order, reset = fields(log, "--type", "BookEvent")
    assert snapshot == {
        "event": "snapshot",
        "book": "l2",
        "venue": "binance",
        "symbol": "BTCUSDT",
        **IDS,
        "exchange_ts_ns": 0,
        "native_seq": 6,
        "bids": [["99999.50", "1.250"]],
        "asks": [["99999.60", "0.010"]],
    }
    assert diff["delta"] is False
    assert (diff["update_first"], diff["update_last"], diff["update_prev"]) == (7, 9, 6)
    assert (diff["bids"], diff["asks"]) == ([["-0.05", "0.000"]], [])
    assert {name: order[name] for name in ("event", "book", "symbol", "side", "price", "qty")} == {
        "event": "add",
        "book": "l3",
        "symbol": "000001",
        "side": "buy",
        "price": "10.50",
        "qty": "300",
    }
    assert (order["ord_type"], order["exec_type"]) == ("2", None)
    assert order["flags"] == ["opening_auction"]
    assert reset["event"] == "reset"
    assert "bids" not in reset


def test_a_trade_that_was_never_declared_is_shown(log):
    (tick,) = fields(log, "--type", "TradeTick")
    assert (tick["symbol"], tick["price"], tick["size"]) == ("BTCUSDT", "101.50", "2.500")
    (trade,) = fields(log, "--type", "0x1002")
    assert (trade["price"], trade["qty"]) == (None, 2.5)


def test_a_venues_own_bytes_are_text_if_they_are_utf8(log):
    assert fields(log, "--type", "VenueRaw") == [{"text": '{"u":1}'}]
    with tw.open_publisher(log) as writer:
        writer.append_message(market.VenueRaw(b"\xff\x00"))
    assert fields(log, "-n", 1) == [None]


def test_a_line_of_text_shows_the_same(log):
    shown = tapewire("tail", log, "--type", "BookEvent", "--grep", "snapshot").out
    assert 'symbol="BTCUSDT"' in shown
    assert 'bids=[["99999.50", "1.250"]]' in shown


def test_bytes_that_only_have_the_type_id_are_shown_as_bytes(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        for type_id in (*market.MESSAGES, market.BOOK_EVENT):
            writer.append(type_id, b"mine")
        writer.append(market.TRADE_TICK, b"\xff" * 64)  # invalid scales
        writer.append(market.BOOK_EVENT, b"\xff" * 64)
    records = tapewire("tail", tmp / "q", "--json").json
    assert [record["type"] for record in records[:5]] == [None] * 5
    assert [record.get("payload") for record in records[:5]] == ["bWluZQ=="] * 5
    assert "payload" in records[-1]
    assert tapewire("tail", tmp / "q").code == 0


def test_a_damaged_file_of_instruments_is_reported_and_ignored(log):
    (log.parent / "instruments.json").write_text("{")
    ran = tapewire("tail", log, "--json", "--type", "BookEvent")
    assert "instruments are shown by their ids" in ran.err
    assert [record["fields"]["symbol"] for record in ran.json] == [None] * 4


def test_book_events_become_a_row_for_each_level(log):
    ran = tapewire("export", log, "--to", "-", "--format", "csv", "--decode", "BookEvent")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [(row["seq"], row["side"], row["price"], row["size"]) for row in rows] == [
        ("0", "1", "9999950", "1250"),
        ("0", "2", "9999960", "10"),
        ("1", "1", "-5", "0"),
        ("2", "1", "1050", "300"),
        ("3", "", "", ""),
    ]
    assert [row["order_id"] for row in rows] == ["", "", "", "7", ""]
    assert rows[2]["update_prev"] == "6"


def test_book_events_become_columns_of_parquet(log, tmp):
    file = tmp / "book.parquet"
    assert tapewire("export", log, "--to", file, "--decode", "BookEvent").code == 0
    table = pq.read_table(file)
    assert table["price"].to_pylist() == [9_999_950, 9_999_960, -5, 1_050, None]
    assert table["market_id"].to_pylist()[3] == STOCK.market_id
    assert table.schema.field("price_scale").type == "uint8"


def test_an_invalid_event_is_reported_or_skipped(log, tmp):
    with tw.open_publisher(log) as writer:
        writer.append(market.BOOK_EVENT, b"junk")
        writer.append(market.BOOK_EVENT, market.reset(BTC, 2), timestamp_ns=2)
    command = ("export", log, "--to", tmp / "x.csv", "--decode", "BookEvent")
    ran = tapewire(*command)
    assert (ran.code, "payload=4, seq=7" in ran.err) == (3, True)
    assert not (tmp / "x.csv").exists()
    ran = tapewire(*command, "--skip-damaged", "--json")
    assert ran.json[0]["records"] == 5
    assert len((tmp / "x.csv").read_text().splitlines()) == 1 + 6


def test_trades_become_columns_without_being_declared(log):
    ran = tapewire("export", log, "--to", "-", "--format", "csv", "--decode", "TradeTick")
    (row,) = csv.DictReader(io.StringIO(ran.out))
    assert (row["price"], row["price_scale"], row["is_buyer_maker"]) == ("10150", "2", "1")
