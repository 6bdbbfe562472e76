from decimal import Decimal

import pytest

import tapewire as tw
from tapewire import bus
from tapewire.protocol import market, replace
from tapewire.protocol.instruments import Instrument, Instruments, UnknownInstrument
from tests.support.spark_views import table

BTC = Instrument.of("okx", "BTC-USDT", 1, 8)
ETH = Instrument.of("okx", "ETH-USDT", 2, 6)


def tick(one, price, *, maker=market.Maker.UNKNOWN, trade_id=1):
    scales = one.price_scale, one.size_scale
    return market.TradeTick(
        5, price, 3, trade_id, 11, 12, one.symbol_hash, one.market_id, *scales, maker
    )


def write(path, *ticks):
    with tw.open_publisher(path, segment_bytes=1 << 20, index_stride=2) as writer:
        for each in ticks:
            writer.append_message(each, timestamp_ns=1_000)
    return path


@pytest.fixture
def queue(tmp):
    Instruments([BTC, ETH]).save(tmp)
    makers = market.Maker
    return write(
        tmp / "q",
        tick(BTC, 1005, maker=makers.BUYER),
        market.Quote(1, 1, 1, 2, 2, 3, 4, 5, 6),
        tick(ETH, -1, maker=makers.SELLER),
        tick(ETH, 250),
    )


def test_a_trade_has_all_fields_of_the_message(queue):
    first = table(queue, view="trades").to_pylist()[0]
    first.pop("timestamp")
    assert first == {
        "seq": 0,
        "timestamp_ns": 1_000,
        "venue": "okx",
        "symbol": "BTC-USDT",
        "exchange_ts_ns": 5,
        "price": 1005,
        "size": 3,
        "price_scale": 1,
        "size_scale": 8,
        "side": "sell",
        "trade_id": 1,
        "buyer_order_id": 11,
        "seller_order_id": 12,
        "queue": "q",
    }


def test_the_side_is_that_of_the_aggressor(queue):
    assert table(queue, view="trades").column("side").to_pylist() == ["sell", "buy", None]


def test_an_unknown_maker_gives_a_null_side(tmp):
    Instruments([BTC]).save(tmp)
    write(tmp / "q", replace(tick(BTC, 1), is_buyer_maker=77))
    assert table(tmp / "q", view="trades").column("side").to_pylist() == [None]


@pytest.mark.parametrize("partitions", [1, 4])
def test_symbols_select_rows_of_a_log_of_many_symbols(queue, partitions):
    found = table(queue, view="trades", symbols="okx:ETH-USDT", partitions=partitions)
    assert found.column("seq").to_pylist() == [2, 3]


def test_decimal_prices_have_the_largest_scale(queue):
    found = table(queue, view="trades", prices="decimal", columns="price")
    assert str(found.schema.field("price").type) == "decimal128(38, 2)"
    assert found.column("price").to_pylist() == [
        Decimal("100.50"),
        Decimal("-0.01"),
        Decimal("2.50"),
    ]


def test_a_decimal_is_exact_beyond_64_bits(tmp):
    Instruments([BTC, Instrument.of("okx", "TINY", 18, 0)]).save(tmp)
    write(tmp / "q", tick(BTC, 2**63 - 1), tick(BTC, -(2**63)), tick(BTC, 1))
    found = table(tmp / "q", view="trades", prices="decimal").column("price").to_pylist()
    assert found == [Decimal(2**63 - 1) / 10, Decimal(-(2**63)) / 10, Decimal("0.1")]


def test_a_price_with_more_decimals_than_its_instrument_raises(tmp):
    Instruments([BTC]).save(tmp)
    write(tmp / "q", replace(tick(BTC, 12345), price_scale=4))
    with pytest.raises(tw.InvalidMessage, match=r"column=price, type=decimal128\(38, 1\)"):
        table(tmp / "q", view="trades", prices="decimal")


def test_decimals_without_instruments_are_refused(tmp):
    write(tmp / "q", tick(BTC, 1))
    with pytest.raises(tw.InvalidOption, match=r"prices=decimal needs .*option instruments"):
        table(tmp / "q", view="trades", prices="decimal")


def test_the_error_for_an_unknown_instrument_names_it_and_the_queue(tmp):
    write(tmp / "q", tick(BTC, 1))
    with pytest.raises(UnknownInstrument, match=f"market_id={BTC.market_id}, .*queue=q"):
        table(tmp / "q", view="trades")


@pytest.mark.parametrize("where", ["known", "known/instruments.json"])
def test_instruments_may_be_stored_elsewhere(tmp, where):
    (tmp / "known").mkdir()
    Instruments([BTC]).save(tmp / "known")
    write(tmp / "bus" / "q", tick(BTC, 1))
    found = table(tmp / "bus", view="trades", instruments=tmp / where)
    assert found.column("symbol").to_pylist() == ["BTC-USDT"]


def test_missing_instruments_are_refused(tmp):
    write(tmp / "bus" / "q", tick(BTC, 1))
    with pytest.raises(tw.InvalidOption, match=r"instruments must be an instruments\.json"):
        table(tmp / "bus", view="trades", instruments=tmp / "none.json")


def test_the_path_of_a_log_names_its_instrument(tmp):
    where = bus.ArchiveLayout(tmp).log("okx", "BTC-USDT", "2026-01-31", "trades")
    write(where, tick(BTC, 1))
    assert table(tmp, view="trades").column("venue").to_pylist() == ["okx"]


def test_the_path_of_a_log_does_not_name_another_instrument(tmp):
    where = bus.ArchiveLayout(tmp).log("okx", "ETH-USDT", "2026-01-31", "trades")
    write(where, tick(BTC, 1))
    with pytest.raises(UnknownInstrument):
        table(tmp, view="trades")


def test_a_record_with_an_invalid_size_raises(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        writer.append(market.TRADE_TICK, b"short")
    with pytest.raises(tw.CorruptRecord, match="not a message of its type: queue=q, seq=0"):
        table(tmp / "q", view="trades")
    assert len(table(tmp / "q", view="trades", on_damage="skip")) == 0


def test_the_hash_of_a_trade_determines_its_instrument_as_in_a_replay(tmp):
    """Ids are assigned by a file, and another file may assign one to another instrument."""
    taken = Instrument("cme", "GOLD", 2, 2, 1, BTC.market_id)
    Instruments([taken]).save(tmp)
    write(tmp / "q", tick(BTC, 1))
    with pytest.raises(UnknownInstrument, match="symbol_hash=0x"):
        table(tmp / "q", view="trades")
    where = bus.ArchiveLayout(tmp).log("okx", "BTC-USDT", "2026-01-31", "trades")
    write(where, tick(BTC, 1))
    assert table(where, view="trades").column("symbol").to_pylist() == ["BTC-USDT"]


def test_unknown_instruments_do_not_matter_if_symbols_selects_others(tmp):
    Instruments([BTC]).save(tmp)
    write(tmp / "q", tick(BTC, 1), tick(ETH, 2), tick(BTC, 3))
    found = table(tmp / "q", view="trades", symbols="BTC-USDT")
    assert found.column("price").to_pylist() == [1, 3]
    with pytest.raises(UnknownInstrument):  # the unknown one may be it
        table(tmp / "q", view="trades", symbols="ETH-USDT")
