"""Shanghai: books from orders and trades equal the exchange's own snapshots."""

import zipfile

import numpy as np
import pytest

from tapewire import ingest
from tapewire.protocol.market import L3Flags, L3Type
from tests.support.archives import count_of, l3_book_of, records_of
from tests.support.marketdata import capture, report_count

SECOND_NS = 10**9


@pytest.fixture(scope="module")
def day_of_600519(tmp_path_factory):
    archive = tmp_path_factory.mktemp("sse-600519")
    return archive, ingest.run("sse", [capture("sse/600519_20230207.zip")], archive)


@pytest.fixture(scope="module")
def five_stocks(tmp_path_factory):
    files = [capture("sse/SHorders.zip"), capture("sse/SHtrans.zip")]
    archive = tmp_path_factory.mktemp("sse-five")
    return archive, ingest.run("sse", files, archive)


def snapshots_of_the_log():
    """The exchange's snapshots, read without the importer."""
    with zipfile.ZipFile(capture("sse/600519_20230207.zip")) as archive:
        (name,) = archive.namelist()
        for line in archive.read(name).decode().splitlines():
            if "MsgType=111" in line:
                yield dict(pair.split("=", 1) for pair in line[2:].split())


def levels(snapshot, side):
    pairs = (
        (int(snapshot[f"{side}Level[{i}].Price"]), int(snapshot[f"{side}Level[{i}].Qty"]))
        for i in range(10)
    )
    return tuple(pair for pair in pairs if pair[0])


def types_of(archive, symbol):
    events = [record.decode().order for record in records_of(archive, "sse", symbol, "book")]
    return np.array([event.event_type for event in events])


def test_every_order_trade_and_snapshot_of_the_day_is_read(day_of_600519):
    archive, summary = day_of_600519
    report_count("sse 600519 bad rows", sum(summary.bad.values()), 0)
    types = types_of(archive, "600519")
    report_count("sse 600519 orders", int((types != L3Type.TRADE).sum()), 45_764)
    report_count("sse 600519 trades", int((types == L3Type.TRADE).sum()), 18_685)
    report_count("sse 600519 ticks", count_of(archive, "sse", "600519", "trades"), 18_685)
    snapshots = count_of(archive, "sse", "600519", "book_snapshot_10")
    report_count("sse 600519 snapshots", snapshots, 5_146)


def test_the_day_is_trusted_throughout(day_of_600519):
    archive, summary = day_of_600519
    assert (summary.gaps, summary.untrusted) == (0, {})
    replayed = l3_book_of(archive, "sse", "600519")
    untrusted = 0
    for record in records_of(archive, "sse", "600519", "book"):
        replayed.apply(record)
        untrusted += not replayed.trusted
    report_count("sse 600519 events after which the book is untrusted", untrusted, 0)
    report_count("sse 600519 unknown orders", replayed.unknown_count, 0)


def test_snapshots_of_continuous_trading_equal_the_book(day_of_600519):
    archive, _ = day_of_600519
    wanted = {}
    for snapshot in snapshots_of_the_log():
        if snapshot["TradingPhase"] == "2" and 93000 <= int(snapshot["DataTimeStamp"]) < 145700:
            key = (int(snapshot["NumTrades"]), int(snapshot["TotalVolumeTrade"]))
            state = (levels(snapshot, "Bid"), levels(snapshot, "Ask"))
            wanted.setdefault(key, []).append(state)
    replayed = l3_book_of(archive, "sse", "600519")
    trades = volume = 0
    reached = {key: set() for key in wanted}
    for record in records_of(archive, "sse", "600519", "book"):
        order = record.decode().order
        if order.event_type == L3Type.TRADE:
            trades += 1
            volume += order.qty
        replayed.apply(record)
        if (trades, volume) in wanted:
            sides = (replayed.bids(10), replayed.asks(10))
            reached[(trades, volume)].add(
                tuple(
                    tuple(zip(side["price"].tolist(), side["size"].tolist(), strict=True))
                    for side in sides
                )
            )
    right = sum(state in reached[key] for key, states in wanted.items() for state in states)
    report_count("sse 600519 snapshots in the file", sum(map(len, wanted.values())), 4_858)
    report_count("sse 600519 snapshots that the book equals", right, 4_858)


def test_the_stream_of_snapshots_is_the_exchanges(day_of_600519):
    archive, _ = day_of_600519
    records = records_of(archive, "sse", "600519", "book_snapshot_10")
    right = 0
    for snapshot, record in zip(snapshots_of_the_log(), records, strict=True):
        event = record.decode()
        right += (
            tuple(event.bids.tolist()) == levels(snapshot, "Bid")
            and tuple(event.asks.tolist()) == levels(snapshot, "Ask")
            and event.native_seq == int(snapshot["NumTrades"])
        )
    report_count("sse 600519 snapshots in their own stream", right, 5_146)


def test_phases_are_those_of_the_exchanges_clock(day_of_600519):
    """09:25 in Shanghai is 01:25 UTC; the day has no cancel when none is allowed."""
    archive, _ = day_of_600519
    opening = closing = restricted = 0
    for record in records_of(archive, "sse", "600519", "book"):
        event = record.decode()
        second = event.exchange_ts_ns // SECOND_NS % 86_400 + 8 * 3600
        assert 33_300 <= second < 54_300, "09:15 to 15:05"
        opening += bool(event.order.flags & L3Flags.OPENING_AUCTION)
        closing += bool(event.order.flags & L3Flags.CLOSING_AUCTION)
        restricted += bool(event.order.flags & L3Flags.RESTRICTED_CANCEL)
        assert bool(event.order.flags & L3Flags.OPENING_AUCTION) == (second < 34_200)
        assert bool(event.order.flags & L3Flags.CLOSING_AUCTION) == (second >= 53_820)
    assert opening > 0
    assert closing > 0
    report_count("sse 600519 cancels in a window without", restricted, 0)


def test_every_order_and_trade_of_five_stocks_is_read(five_stocks):
    archive, summary = five_stocks
    report_count("sse five stocks, bad rows", sum(summary.bad.values()), 0)
    symbols = {log.split("/")[2] for log in summary.logs}
    report_count("sse stocks", len(symbols), 5)
    types = np.concatenate([types_of(archive, symbol) for symbol in sorted(symbols)])
    report_count("sse five stocks, orders", int((types != L3Type.TRADE).sum()), 149_359)
    report_count("sse five stocks, trades", int((types == L3Type.TRADE).sum()), 109_616)


def test_no_delete_is_unknown_and_no_book_is_crossed_in_continuous_trading(five_stocks):
    archive, summary = five_stocks
    unknown_deletes = crossed = events = 0
    for symbol in sorted({log.split("/")[2] for log in summary.logs}):
        replayed = l3_book_of(archive, "sse", symbol)
        for record in records_of(archive, "sse", symbol, "book"):
            order = record.decode().order
            if order.event_type == L3Type.CANCEL:
                unknown_deletes += replayed.order(order.order_id) is None
            replayed.apply(record)
            auction = order.flags & (L3Flags.OPENING_AUCTION | L3Flags.CLOSING_AUCTION)
            if not auction:
                events += 1
                crossed += replayed.crossed
    assert events > 200_000
    report_count("sse five stocks, unknown deletes", unknown_deletes, 0)
    report_count("sse five stocks, crossed in continuous trading", crossed, 0)
