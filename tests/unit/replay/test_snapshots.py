"""Snapshot files appear atomically; an invalid one is skipped for the next older one."""

import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapewire as tw
from tapewire import replay
from tapewire.errors import CorruptMetadata, InvalidOption, UnsupportedVersion
from tapewire.protocol.instruments import Instrument
from tapewire.replay import snapshots
from tests.support.book_tapes import BTC, ORDERS, START_NS, STEP_NS, write_l2, write_l3


@pytest.fixture
def log(tmp):
    """100 records of one book, with snapshots after records 29, 59, 89 and 99."""
    write_l2(tmp / "q", 100)
    replay.Snapshotter(tmp / "q", every=replay.Every(records=30)).run(follow=False)
    return tmp / "q"


def of(log):
    return snapshots.files(log, BTC.venue_id, BTC.market_id)


def latest(log, findings=None, **where):
    found = snapshots.latest_before(log, BTC.venue_id, BTC.market_id, findings=findings, **where)
    return None if found is None else found.header["seq"]


def test_files_are_in_directories_by_venue_and_market_and_private(log):
    assert [file.seq for file in of(log)] == [29, 59, 89, 99]
    path = of(log)[0].path
    assert path.relative_to(log).parts == (
        "snapshots",
        str(BTC.venue_id),
        str(BTC.market_id),
        "snapshot_29.bin",
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert snapshots.markets(log) == [(BTC.venue_id, BTC.market_id)]


def test_the_header_has_the_record_and_times_of_the_book(log):
    info = snapshots.info(of(log)[1].path)
    assert (info.seq, info.book_mode) == (59, "l2")
    assert info.ingest_end_ns == START_NS + 59 * STEP_NS
    assert info.book_hash == replay.book_at(log, "BTCUSDT", tw.Seq(59), snapshots=False).hash()


def test_the_latest_before_a_record_or_a_time_is_found(log):
    assert latest(log) == 99
    assert [latest(log, seq=n) for n in (28, 29, 58, 59, 98)] == [None, 29, 29, 59, 89]
    assert latest(log, time=START_NS + 60 * STEP_NS) == 59
    with pytest.raises(InvalidOption):
        latest(log, seq=1, time=1)


def cut(data):
    return data[:-1]


def flip(offset):
    return lambda data: data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]


def without_check(data, offset, code, value):
    """A header without a check, of another program, with one field changed."""
    head = bytearray(data)
    head[88:96] = bytes(8)
    struct.pack_into(code, head, offset, value)
    return bytes(head)


WRONG = {
    "empty": lambda data: b"",
    "cut in the header": lambda data: data[:100],
    "cut in the book": cut,
    "longer": lambda data: data + b"\0",
    "another file": lambda data: b"hello" * 100,
    "flipped in the header": flip(30),
    "flipped in the hash": flip(64),
    "flipped in the book": flip(200),
    "flipped in the reserved bytes": flip(100),
    "a later version": lambda data: without_check(data, 8, "<H", 2),
    "a later flag": lambda data: without_check(data, 88, "<Q", 2),
    "another hash": lambda data: without_check(data, 64, "<Q", 12345),
    "another record": lambda data: without_check(data, 24, "<Q", 88),
    "another market": lambda data: without_check(data, 20, "<I", 7),
    "a huge length": lambda data: without_check(data, 80, "<Q", 2**63),
    "the other mode": lambda data: without_check(data, 14, "<H", 1),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_invalid_file_is_reported_and_the_next_older_one_is_used(log, what):
    newest = of(log)[-1].path
    newest.write_bytes(WRONG[what](newest.read_bytes()))
    with pytest.raises((CorruptMetadata, UnsupportedVersion, InvalidOption)) as raised:
        snapshots.load(newest)
    assert raised.value.path == os.fspath(newest)
    findings = []
    assert latest(log, findings) == 89
    assert [finding.path for finding in findings] == [os.fspath(newest)]
    found = []
    book = replay.book_at(log, "BTCUSDT", tw.Seq(99), findings=found)
    assert len(found) == 1
    assert book.hash() == replay.book_at(log, "BTCUSDT", tw.Seq(99), snapshots=False).hash()


def test_a_header_without_a_check_is_validated_by_the_rest(log):
    newest = of(log)[-1].path
    data = newest.read_bytes()
    newest.write_bytes(without_check(data, 24, "<Q", 99))
    assert latest(log) == 99


def test_links_and_fifos_in_place_of_a_file_are_skipped(log):
    newest, older = of(log)[-1].path, of(log)[-2].path
    newest.unlink()
    newest.symlink_to(of(log)[0].path)
    older.unlink()
    os.mkfifo(older)
    findings = []
    assert latest(log, findings) == 59
    assert len(findings) == 2


def test_a_directory_that_leads_out_of_the_log_is_refused(log, tmp):
    (tmp / "elsewhere").mkdir()
    directory = log / "snapshots" / str(BTC.venue_id) / "7"
    directory.symlink_to(tmp / "elsewhere")
    with pytest.raises(tw.InvalidName):
        snapshots.files(log, BTC.venue_id, 7)


def test_files_with_other_names_are_ignored(log):
    directory = of(log)[0].path.parent
    for name in ("snapshot_5.bin.tmp", "snapshot_05.bin", "snapshot_-1.bin", "x"):
        (directory / name).write_bytes(b"x")
    assert [file.seq for file in of(log)] == [29, 59, 89, 99]


def test_snapshots_of_another_log_are_not_used(log, tmp):
    (tmp / "other").mkdir()
    write_l2(tmp / "other" / "q", 100, seed=2)
    later = tmp / "other" / "q"
    with (
        tw.open_publisher(tmp / "other" / "late", segment_bytes=1 << 16) as writer,
        tw.open_log(later) as reader,
    ):
        for record in reader:
            writer.append(7, record.payload, timestamp_ns=record.timestamp_ns + 1)
    (log / "snapshots").rename(tmp / "other" / "late" / "snapshots")
    findings = []
    book = replay.book_at(tmp / "other" / "late", "BTCUSDT", tw.Seq(99), findings=findings)
    assert len(findings) == 4
    assert "does not have its record" in findings[0].why
    assert not book.trusted


def test_a_snapshot_with_other_scales_is_not_used(log):
    other = Instrument.of("binance", "BTCUSDT", price_scale=4, size_scale=3)
    with pytest.raises(InvalidOption):
        snapshots.load(of(log)[0].path, other)
    assert snapshots.load(of(log)[0].path).book.price_scale == 2


def test_an_l3_book_is_restored_order_by_order(tmp):
    write_l3(tmp / "q", 200)
    replay.Snapshotter(tmp / "q", every=replay.Every(records=64)).run(follow=False)
    for n in (63, 64, 100, 199):
        warm = replay.book_at(tmp / "q", ORDERS.symbol, tw.Seq(n))
        cold = replay.book_at(tmp / "q", ORDERS.symbol, tw.Seq(n), snapshots=False)
        assert warm.hash() == cold.hash()


SAMPLE: dict[str, bytes] = {}


@settings(max_examples=150, deadline=None)
@given(
    at=st.integers(0, 800),
    damage=st.binary(max_size=40),
    keep=st.one_of(st.none(), st.integers(0, 900)),
)
def test_any_bytes_are_the_snapshot_or_a_typed_error(tmp_path_factory, at, damage, keep):
    if not SAMPLE:
        directory = tmp_path_factory.mktemp("sample")
        write_l2(directory / "q", 40)
        replay.Snapshotter(directory / "q", every=replay.Every(records=40)).run(follow=False)
        SAMPLE["file"] = of(directory / "q")[0].path.read_bytes()
    data = SAMPLE["file"]
    hurt = data[:at] + damage + data[at + len(damage) :]
    hurt = hurt if keep is None else hurt[:keep]
    try:
        loaded = snapshots.decode_snapshot(hurt)
    except (CorruptMetadata, UnsupportedVersion, InvalidOption):
        assert hurt != data
    else:
        assert loaded.book.hash() == loaded.header["book_hash"]
