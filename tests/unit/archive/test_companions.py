"""types.json and instruments.json are copied with the records."""

import pytest

import tapewire as tw
from tapewire.protocol import types_file
from tapewire.protocol.instruments import Instrument, Instruments
from tests.support.taps import MIDNIGHT_NS, archived, clean_queue, fill, run_once

LOG = "v1/okx/BTCUSDT/2026-01-01/trades"


@pytest.fixture
def messages(own_messages):
    @tw.message(0x2001)
    class Order:
        price: tw.i64

    @tw.message(0x2002)
    class Fill:
        price: tw.i64
        size: tw.i64

    return Order, Fill


def append(queue, message):
    with tw.open_publisher(queue, segment_bytes=65536) as writer:
        writer.append_message(message, timestamp_ns=MIDNIGHT_NS)


def names(directory):
    return [layout.name for layout in types_file.read(directory)]


def test_declared_messages_are_copied_also_later_ones(tmp, messages):
    order, fill_ = messages
    queue = clean_queue(tmp / "bus")
    append(queue, order(7))
    run_once(tmp / "bus", tmp)
    assert names(tmp / LOG) == ["Order"]
    append(queue, fill_(7, 8))
    run_once(tmp / "bus", tmp)
    assert names(tmp / LOG) == ["Order", "Fill"]
    with tw.open_log(tmp / LOG) as reader:
        assert [record.decode() for record in reader] == [order(7), fill_(7, 8)]


def test_a_queue_that_declares_nothing_creates_no_file(tmp):
    fill(clean_queue(tmp / "bus"), 3)
    run_once(tmp / "bus", tmp)
    assert not (tmp / LOG / "types.json").exists()


def test_damaged_types_are_reported_and_the_records_archived(tmp, messages):
    queue = clean_queue(tmp / "bus")
    append(queue, messages[0](7))
    (queue / "types.json").write_text("{")
    report = run_once(tmp / "bus", tmp)
    assert "types.json is not copied" in report.findings[0]
    assert report.records == 1


def test_types_in_conflict_with_the_archive_are_reported(tmp, messages):
    queue = clean_queue(tmp / "bus")
    append(queue, messages[0](7))
    run_once(tmp / "bus", tmp)
    text = (queue / "types.json").read_text()
    (queue / "types.json").write_text(text.replace('"price"', '"value"'))
    fill(queue, 3)
    report = run_once(tmp / "bus", tmp)
    assert "types.json of the queue is not merged" in report.findings[0]
    assert report.records == 3


def test_instruments_are_copied_also_later_ones(tmp):
    bus, root = tmp / "bus", tmp / "archive"
    queue = clean_queue(bus)
    known = Instruments()
    btc = known.add(Instrument.of("okx", "BTCUSDT", 2, 5))
    known.save(_made(bus))
    fill(queue, 3)
    run_once(bus, root)
    assert list(Instruments.load(root)) == [btc]
    eth = known.add(Instrument.of("okx", "ETHUSDT", 3, 4))
    known.save(bus)
    fill(queue, 3)
    run_once(bus, root)
    assert set(Instruments.load(root / LOG)) == {btc, eth}


def _made(directory):
    directory.mkdir()
    return directory


def test_instruments_of_several_buses_are_merged(tmp):
    for name, symbol in (("one", "AAA"), ("two", "BBB")):
        known = Instruments()
        known.add(Instrument.of("okx", symbol))
        known.save(_made(tmp / name))
        fill(clean_queue(tmp / name, symbol), 3)
    run_once([clean_queue(tmp / "one", "AAA"), clean_queue(tmp / "two", "BBB")], tmp / "archive")
    assert {one.symbol for one in Instruments.load(tmp / "archive")} == {"AAA", "BBB"}
    assert len(archived(tmp / "archive")) == 2


def test_instruments_with_other_ids_are_reported_and_not_merged(tmp):
    (tmp / "archive").mkdir()
    Instruments([Instrument("okx", "BTCUSDT", 2, 5, 7, 99)]).save(tmp / "archive")
    Instruments([Instrument("okx", "BTCUSDT", 2, 5, 8, 11)]).save(_made(tmp / "bus"))
    fill(clean_queue(tmp / "bus"), 3)
    report = run_once(tmp / "bus", tmp / "archive")
    assert "instruments.json is not copied" in report.findings[0]
    assert report.records == 3
    assert Instruments.load(tmp / "archive").get("okx", "BTCUSDT").market_id == 99
