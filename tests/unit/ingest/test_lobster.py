"""LOBSTER: messages to orders and trades, and the order book beside them."""

import gzip
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tapewire import ingest
from tapewire.book import L3Book
from tapewire.errors import CorruptSource, InvalidOption
from tapewire.ingest.formats.lobster_check import valid_steps
from tapewire.protocol.market import EventType, L3Type, LossCause, Maker, Side
from tests.support.archives import records_of
from tests.support.lobster_files import NO_ASK, NO_BID, Day

MIDNIGHT_S = 1_340_251_200  # 2012-06-21T00:00:00-04:00
NAME = "ACME_2012-06-21_34200000_57600000_message_1.csv"
RESTS = "34200.5,1,7,100,1000000,1"


def lobster(tmp, *rows, name=NAME, **options):
    path = tmp / name
    path.write_text("".join(f"{row}\n" for row in rows))
    return ingest.run("lobster", [path], tmp / "archive", **options)


def events(tmp, stream="book", symbol="ACME"):
    return [record.decode() for record in records_of(tmp / "archive", "nasdaq", symbol, stream)]


def orders_of(tmp, symbol="ACME"):
    """The events of orders after the reset and the loss at the start of a session."""
    first, second, *rest = events(tmp, "book_orders", symbol)
    assert (first.event_type, first.native_seq) == (EventType.RESET, 0)
    assert second.loss == (LossCause.PARTIAL, 0, 0)
    return [event for event in rest if event.loss is None]


def ignoring_loss(tmp, symbol="ACME"):
    """The events of orders without the losses that make their book untrusted."""
    for record in records_of(tmp / "archive", "nasdaq", symbol, "book_orders"):
        if record.decode().event_type != EventType.LOSS:
            yield record


def book_at_end(tmp, symbol="ACME"):
    book = L3Book(price_scale=4, size_scale=0, unknown="ignore")
    for record in ignoring_loss(tmp, symbol):
        book.apply(record)
    return book


def test_each_type_of_message_has_its_effect(tmp):
    summary = lobster(
        tmp,
        RESTS,
        "34201,1,8,50,1000100,-1",
        "34202,2,7,30,1000000,1",
        "34203,4,7,20,1000000,1",
        "34204,5,0,5,1000050,-1",
        "34205,6,-1,900,1000000,-1",
        "34206,7,0,0,-1,-1",
        "34207,3,8,50,1000100,-1",
    )
    assert summary.bad == {}
    assert summary.skipped == {"trading halted": 1}
    orders = [event.order for event in orders_of(tmp)]
    assert [(o.event_type, o.order_id, o.side, o.price, o.qty) for o in orders] == [
        (L3Type.ADD, 7, Side.BUY, 1_000_000, 100),
        (L3Type.ADD, 8, Side.SELL, 1_000_100, 50),
        (L3Type.CANCEL, 7, Side.BUY, 1_000_000, 30),
        (L3Type.TRADE, 7, Side.SELL, 1_000_000, 20),  # the aggressor sold to the order
        (L3Type.CANCEL, 8, Side.SELL, 1_000_100, 0),
    ]
    book = book_at_end(tmp)
    assert book.bids().tolist() == [(1_000_000, 50, 1)]
    assert book.asks().tolist() == []
    got = [
        (t.price, t.size, t.is_buyer_maker, t.buyer_order_id, t.trade_id)
        for t in events(tmp, "trades")
    ]
    assert got == [
        (1_000_000, 20, Maker.BUYER, 7, 4),
        (1_000_050, 5, Maker.SELLER, 0, 5),
        (1_000_000, 900, Maker.UNKNOWN, 0, 6),
    ]


@pytest.mark.parametrize(
    ("day", "midnight_s"), [("2012-06-21", MIDNIGHT_S), ("2012-01-20", 1_327_035_600)]
)
def test_times_are_since_midnight_in_new_york_to_the_nanosecond(tmp, day, midnight_s):
    lobster(tmp, "34200.004241176,1,7,100,1000000,1", name=NAME.replace("2012-06-21", day))
    (event,) = orders_of(tmp)
    assert event.exchange_ts_ns == midnight_s * 10**9 + 34_200_004_241_176
    assert event.ingest_ts_ns == event.exchange_ts_ns


def test_the_zone_can_be_another(tmp):
    lobster(tmp, RESTS, zone="UTC")
    assert orders_of(tmp)[0].exchange_ts_ns == 1_340_236_800 * 10**9 + 34_200_500_000_000


def test_stock_and_day_can_be_given_if_the_name_has_none(tmp):
    with pytest.raises(InvalidOption, match="the stock and the day"):
        lobster(tmp, RESTS, name="day.csv", ticker="ACME")
    lobster(tmp, RESTS, name="day.csv", ticker="A/B", date="2012-06-21")
    assert orders_of(tmp, symbol="A-B")[0].exchange_ts_ns == (MIDNIGHT_S * 10 + 342_005) * 10**8


def test_invalid_rows_are_bad_rows(tmp):
    summary = lobster(
        tmp,
        RESTS,
        "86400,1,8,1,1,1",
        "34200,8,8,1,1,1",
        "34200,1,8,0,1,1",
        "34200,1,8,1,-5,1",
        "34200,4,8,1,1,0",
        "34200,3,0,1,1,1",
        "34200.0000000001,1,8,1,1,1",
        "time,type,id,size,price,direction",
        "34200,1,8,1,1",
    )
    assert summary.bad == {
        "not a time of day": 1,
        "unknown message type": 1,
        "size or price is zero": 2,
        "neither a buy nor a sell": 1,
        "invalid order id": 1,
        "more decimals than the scale has": 1,
        "not a number": 1,
        "wrong number of fields": 1,
    }
    kept = [json.loads(line) for line in Path(summary.rejected).read_text().splitlines()]
    assert sorted(row["line"] for row in kept) == list(range(2, 11))
    assert len(orders_of(tmp)) == 1


def test_a_seventh_field_is_skipped(tmp):
    assert lobster(tmp, f"{RESTS},null", "34201,3,7,100,1000000,1,MPID").bad == {}
    assert len(orders_of(tmp)) == 2


def test_events_of_orders_from_before_the_file_are_counted_and_written(tmp):
    summary = lobster(
        tmp,
        "34200,2,1,5,1000000,1",
        RESTS,
        "34201,4,1,5,1000000,1",
        "34201,4,7,5,1000000,1",
        "34202,3,2,5,1000000,1",
        "34203,1,2,5,1000000,1",
    )
    assert summary.skipped == {"of an order that was never added": 3}
    assert len(orders_of(tmp)) == 6
    book = book_at_end(tmp)
    assert (book.unknown_count, book.trusted) == (3, True)
    assert book.bids().tolist() == [(1_000_000, 100, 2)]
    assert [trade.buyer_order_id for trade in events(tmp, "trades")] == [1, 7]


def test_an_order_is_known_in_later_blocks_of_a_file(tmp):
    filler = ["34201,5,0,1,1000000,1"] * 60_000  # more than one piece
    summary = lobster(tmp, RESTS, *filler, "34202,3,7,100,1000000,1")
    assert summary.skipped == {}


def test_orders_end_with_their_day(tmp):
    for day, row in (("21", RESTS), ("22", RESTS.replace("1000000", "2000000"))):
        (tmp / NAME.replace("-21_", f"-{day}_")).write_text(row)
    ingest.run("lobster", sorted(tmp.glob("*message*")), tmp / "archive")
    types = [record.decode().order.event_type for record in ignoring_loss(tmp)]
    assert types == [L3Type.RESET, L3Type.ADD] * 2
    assert book_at_end(tmp).bids().tolist() == [(2_000_000, 100, 1)]


def test_only_the_symbols_asked_for(tmp):
    summary = lobster(tmp, RESTS, symbols=["OTHER"])
    assert (summary.records, summary.skipped) == (0, {"file of another symbol": 1})


def test_packed_files_are_read_and_a_repeated_import_changes_nothing(tmp):
    day = Day(500)
    message, _ = day.write(tmp)
    packed = tmp / f"{message.name}.gz"
    packed.write_bytes(gzip.compress(message.read_bytes()))
    with zipfile.ZipFile(tmp / "days.zip", "w") as archive:
        archive.write(message, f"directory/{message.name}")
    counts = set()
    for n, path in enumerate([message, packed, tmp / "days.zip"]):
        counts.add(ingest.run("lobster", [path], tmp / f"{n}").records)
    assert len(counts) == 1
    assert ingest.run("lobster", [message], tmp / "0").already


def test_a_scale_of_more_decimals_is_exact(tmp):
    lobster(tmp, RESTS, price_scale=8, size_scale=2)
    order = orders_of(tmp)[0].order
    assert (order.price, order.qty) == (100 * 10**8, 100 * 10**2)


def test_orders_of_all_levels_give_the_order_book_row_by_row(tmp):
    day = Day(3_000, seed=3)
    message, _ = day.write(tmp)
    ingest.run("lobster", [message], tmp / "archive")
    book = L3Book(price_scale=4, size_scale=0, unknown="raise")
    records = ignoring_loss(tmp)
    book.apply(next(records))  # the reset
    compared = 0
    for line, row in zip(day.messages, day.orderbook, strict=True):
        if line.split(",")[1] in "1234":
            book.apply(next(records))
        asks, bids = book.asks(day.levels).tolist(), book.bids(day.levels).tolist()
        got = []
        for i in range(day.levels):
            got += asks[i][:2] if i < len(asks) else NO_ASK
            got += bids[i][:2] if i < len(bids) else NO_BID
        assert got == [int(number) for number in row.split(",")]
        compared += 1
    assert compared == 3_000
    assert next(records, None) is None


def checked(tmp, day):
    return ingest.run("lobster", day.write(tmp), tmp / "archive", check_orderbook=True)


@pytest.mark.parametrize("levels", [1, 2, 5, 30])
def test_a_valid_order_book_has_no_findings(tmp, levels):
    summary = checked(tmp, Day(4_000, seed=levels, levels=levels))
    assert summary.bad == {}
    assert summary.rows == 8_000


@pytest.mark.parametrize(
    ("row", "field"), [(1, 3), (1_999, 1), *((700, field) for field in range(8))]
)
def test_a_number_changed_in_the_order_book_is_found(tmp, row, field):
    day = Day(2_000, seed=5, levels=2)
    numbers = [int(number) for number in day.orderbook[row].split(",")]
    numbers[field] += 1
    day.orderbook[row] = ",".join(map(str, numbers))
    summary = checked(tmp, day)
    assert list(summary.bad) == ["not the previous row changed by the message"]
    kept = [json.loads(line) for line in Path(summary.rejected).read_text().splitlines()]
    assert {row["line"] for row in kept} <= {row + 1, row + 2}
    assert summary.records


def test_a_message_left_out_is_found_by_the_order_book(tmp):
    day = Day(2_000, seed=6, levels=12)
    add = next(i for i, m in enumerate(day.messages) if i > 500 and m.split(",")[1] == "1")
    day.messages[add] = "34200,7,0,0,1,-1"
    assert checked(tmp, day).bad["not the previous row changed by the message"] == 1


def test_files_of_different_length_are_found(tmp):
    day = Day(100)
    day.orderbook.pop()
    assert checked(tmp, day).bad == {"messages without a row of the order book": 1}
    longer = Day(100)
    longer.messages.pop()
    files = longer.write(tmp, "LONG")
    summary = ingest.run("lobster", files, tmp / "b", check_orderbook=True)
    assert summary.bad == {"a row without a message": 1}


def test_a_check_without_an_order_book_is_refused(tmp):
    with pytest.raises(InvalidOption, match="no order book"):
        lobster(tmp, RESTS, check_orderbook=True)


def test_a_file_that_is_not_an_order_book_is_named(tmp):
    day = Day(10)
    day.orderbook[0] = "1,2,3"
    with pytest.raises(CorruptSource, match="fields=3"):
        checked(tmp, day)


def test_an_order_book_without_its_messages_is_skipped(tmp):
    summary = ingest.run("lobster", Day(10).write(tmp)[1:], tmp / "archive")
    assert summary.skipped == {"file of an order book without its messages": 1}
    assert summary.records == 0


def test_a_level_that_becomes_visible_may_be_anything():
    before = np.array([[[10, 5, 9, 5], [11, 5, 8, 5]]])
    after = np.array([[[10, 5, 8, 5], [11, 5, 3, 44]]])
    step = (np.array([True]), np.array([9]), np.array([-5]))
    assert valid_steps(before, after, *step).all()
    empty = before.copy()
    empty[0, 1, 2:] = NO_BID
    gone = np.array([[[10, 5, 3, 44], [11, 5, *NO_BID]]])
    assert not valid_steps(empty, gone, *step).any(), "there was no level that could come"


@pytest.mark.parametrize(("last_size", "valid"), [(5, True), (6, False)])
def test_the_last_level_is_compared_where_none_vanished(last_size, valid):
    before = np.array([[[10, 5, 9, 5], [11, 5, 8, 5]]])
    after = np.array([[[10, 5, 9, 8], [11, 5, 8, last_size]]])
    step = (np.array([True]), np.array([9]), np.array([3]))
    assert valid_steps(before, after, *step).tolist() == [valid]


@pytest.mark.parametrize(
    "options",
    [
        {"zone": "Mars/Olympus"},
        {"zone": "../../etc/passwd"},
        {"date": "1066-10-14"},
        {"date": "today"},
        {"price_scale": 2},
        {"size_scale": 10},
        {"ticker": ""},
        {"keep_wire": True},
    ],
)
def test_invalid_options_are_refused(tmp, options):
    with pytest.raises(InvalidOption):
        lobster(tmp, RESTS, **options)
