"""Book events of a batch as columns, and batches of orders written from an array."""

import numpy as np
import pytest

import tapewire as tw
from tapewire.protocol import market
from tapewire.protocol.instruments import Instrument
from tests.support import market_format as page

BTC = Instrument.of("binance", "BTCUSDT", 2, 3)
ORDERS = Instrument.of("szse", "000001", 2, 0, book_mode="l3")


@pytest.fixture
def book(tmp):
    """A snapshot, another type, a diff, a reset and an order, over several segments."""
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        for round_ in range(20):
            time = 1_000 * round_
            writer.append(
                market.BOOK_EVENT,
                market.l2_snapshot(
                    BTC, time, bids=[(round_, 1), (-round_, 2)], asks=[(7, 3)], native_seq=round_
                ),
                timestamp_ns=time,
            )
            writer.append(1, b"something else", timestamp_ns=time)
            writer.append(
                market.BOOK_EVENT,
                market.l2_diff(BTC, time, asks=[(round_, 0)], last=5, prev=4),
                timestamp_ns=time,
            )
            writer.append(market.BOOK_EVENT, market.reset(BTC, time), timestamp_ns=time)
            order = market.l3_event(ORDERS, time, type=market.L3Type.ADD, order_id=9)
            writer.append(market.BOOK_EVENT, order, timestamp_ns=time)
    return tmp / "q"


def test_levels_of_a_batch_are_those_of_its_events(book):
    with tw.open_log(book) as log:
        batch = log.read_batch()
    events = [record.decode() for record in batch if record.type_id == market.BOOK_EVENT]
    want = [
        (i, side, price, size)
        for i, event in enumerate(events)
        for side, levels in ((1, event.bids), (2, event.asks))
        for price, size in levels.tolist()
    ]
    levels = market.levels_of(batch)
    assert levels.dtype == market.LEVEL_ROW_DTYPE
    assert levels.tolist() == want
    assert len(want) == 20 * 4


def test_headers_of_a_batch_are_those_of_its_events(book):
    with tw.open_log(book) as log:
        batch = log.read_batch()
    headers = market.headers_of(batch)
    is_event = batch.type_id == market.BOOK_EVENT
    assert headers["seq"].tolist() == batch.seq[is_event].tolist()
    assert headers["ingest_ts_ns"].tolist() == batch.timestamp_ns[is_event].tolist()
    assert headers["event_type"].tolist() == [1, 2, 3, 2] * 20
    levels = market.levels_of(batch)
    assert set(headers[levels["event"]]["market_id"]) == {BTC.market_id}


def test_part_of_a_batch_has_its_own_levels(book):
    with tw.open_log(book) as log:
        batch = log.read_batch()
    part = market.levels_of(batch[5:10])
    assert part.tolist() == [(0, 1, 1, 1), (0, 1, -1, 2), (0, 2, 7, 3), (1, 2, 1, 0)]
    assert len(market.levels_of(batch[1:2])) == len(market.headers_of(batch[1:2])) == 0


def test_an_invalid_event_in_a_batch_is_named_by_its_seq(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        writer.append(market.BOOK_EVENT, page.diff([], []), timestamp_ns=1_000)
        writer.append(market.BOOK_EVENT, page.diff([], [], event_type=9), timestamp_ns=1_000)
    with tw.open_log(tmp / "q") as log:
        batch = log.read_batch()
    for columns in (market.levels_of, market.headers_of):
        with pytest.raises(tw.CorruptRecord, match="event_type=9, seq=1"):
            columns(batch)
        with pytest.raises(TypeError):
            columns(None)


def test_orders_are_written_as_an_array(tmp):
    rows = market.l3_rows(ORDERS, 3)
    times = np.arange(5, 8)
    rows["head"]["ingest_ts_ns"] = times
    rows["head"]["native_seq"] = [1, 2, 3]
    rows["order"]["event_type"] = [1, 3, 5]
    rows["order"]["price"] = [1050, -1, 0]
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        writer.append_batch(market.BOOK_EVENT, rows, timestamps_ns=times)
    with tw.open_log(tmp / "q") as log:
        batch = log.read_batch()
    events = [record.decode() for record in batch]
    assert [event.order.price for event in events] == [1050, -1, 0]
    assert [event.native_seq for event in events] == [1, 2, 3]
    assert {(event.market_id, event.price_scale, event.flags) for event in events} == {
        (ORDERS.market_id, 2, 5)
    }
    same = market.l3_event(ORDERS, 5, type=1, price=1050, native_seq=1)
    assert bytes(batch[0].payload) == same
    assert batch.view(market.L3_RECORD_DTYPE)["order"]["price"].tolist() == [1050, -1, 0]


def test_trades_of_a_batch_are_an_array(tmp):
    ticks = [
        market.TradeTick(n, 10 + n, n, n, 0, 0, BTC.symbol_hash, BTC.market_id, 2, 3)
        for n in range(5)
    ]
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        for tick in ticks:
            writer.append_message(tick)
    with tw.open_log(tmp / "q") as log:
        rows = market.TradeTick.decode(log.read_batch())
    assert rows["price"].tolist() == [10, 11, 12, 13, 14]
    assert set(rows["is_buyer_maker"].tolist()) == {market.Maker.UNKNOWN}
