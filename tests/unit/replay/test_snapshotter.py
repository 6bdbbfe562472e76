"""The snapshotter: when it saves, what it keeps and reports, and how it resumes."""

import errno
import json
import os
import threading

import pytest

import tapewire as tw
from tapewire import replay
from tapewire.book.gaps import GapLedger
from tapewire.errors import ConcurrentUse, InvalidOption, ReaderAlreadyActive
from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.protocol.market import l3_event
from tapewire.replay import snapshots
from tests.support.book_tapes import BTC, ETH, L2Feed, append_l2, write_l2, write_l3


def seqs(log, instrument=BTC):
    return [file.seq for file in snapshots.files(log, instrument.venue_id, instrument.market_id)]


def snapshot(log, every, **options):
    return replay.Snapshotter(log, every=every, **options).run(follow=False)


def test_it_saves_after_a_number_of_records(tmp):
    write_l2(tmp / "q", 100)
    done = snapshot(tmp / "q", replay.Every(records=40))
    assert seqs(tmp / "q") == [39, 79, 99]
    assert (done.rounds, done.written, done.records, done.last_seq) == (3, 3, 100, 99)


def test_it_saves_after_seconds_of_the_log(tmp):
    write_l2(tmp / "q", 100)
    snapshot(tmp / "q", replay.Every(seconds=0.025))
    assert seqs(tmp / "q") == [0, 25, 50, 75, 99]


def test_it_saves_after_bytes_of_the_log(tmp):
    write_l2(tmp / "q", 100)
    with tw.open_log(tmp / "q") as reader:
        sizes = [64 + -(-len(record) // 64) * 64 for record in reader]
    snapshot(tmp / "q", replay.Every(bytes=6000))
    due, since = [], 0
    for seq, size in enumerate(sizes):
        since += size
        if since >= 6000:
            due.append(seq)
            since = 0
    assert seqs(tmp / "q") == sorted({*due, 99})


def test_it_saves_at_every_roll(tmp):
    write_l2(tmp / "q", 200, segment_bytes=8192)
    snapshot(tmp / "q", replay.Every(roll=True))
    with tw.open_log(tmp / "q") as reader:
        first, segment = [], None
        while (record := reader.next()) is not None:
            if segment not in (None, reader.position.segment):
                first.append(record.seq)
            segment = reader.position.segment
    assert len(first) > 3
    assert seqs(tmp / "q") == [*first, 199]


@pytest.mark.parametrize("wrong", [{}, {"seconds": 0}, {"records": 0}, {"bytes": -1}])
def test_a_policy_needs_a_limit(wrong):
    with pytest.raises(InvalidOption):
        replay.Every(**wrong)


def test_the_newest_are_kept(tmp):
    write_l2(tmp / "q", 100)
    done = snapshot(tmp / "q", replay.Every(records=10), keep=3)
    assert seqs(tmp / "q") == [79, 89, 99]
    assert (done.written, done.removed) == (10, 7)


def test_snapshots_too_old_by_the_log_are_removed(tmp):
    write_l2(tmp / "q", 100)
    snapshot(tmp / "q", replay.Every(records=10), keep=None, max_age=0.035)
    assert seqs(tmp / "q") == [69, 79, 89, 99]


def test_the_total_size_is_limited(tmp):
    write_l2(tmp / "q", 100, feeds=[L2Feed(BTC, 1), L2Feed(ETH, 2)])
    snapshot(tmp / "q", replay.Every(records=10), keep=None, max_bytes=5000)
    files = list((tmp / "q" / "snapshots").rglob("*.bin"))
    assert sum(file.stat().st_size for file in files) <= 5000
    assert seqs(tmp / "q", BTC)[-1] == seqs(tmp / "q", ETH)[-1] == 99


def test_the_newest_of_each_instrument_is_never_removed(tmp):
    write_l2(tmp / "q", 100, feeds=[L2Feed(BTC, 1), L2Feed(ETH, 2)])
    snapshot(tmp / "q", replay.Every(records=10), keep=1, max_bytes=1, max_age=0)
    assert (seqs(tmp / "q", BTC), seqs(tmp / "q", ETH)) == ([99], [99])


def test_a_book_that_did_not_change_is_not_saved_again_in_the_same_segment(tmp):
    feeds = [L2Feed(BTC, 1), L2Feed(ETH, 2)]
    write_l2(tmp / "q", 10, feeds=feeds)
    with tw.open_publisher(tmp / "q") as writer:
        append_l2(writer, feeds[:1], 40, start=10)
    snapshot(tmp / "q", replay.Every(records=10))
    assert seqs(tmp / "q", ETH) == [9]
    assert seqs(tmp / "q", BTC) == [9, 19, 29, 39, 49]


def test_a_book_that_did_not_change_is_saved_again_after_a_roll(tmp):
    feeds = [L2Feed(BTC, 1), L2Feed(ETH, 2)]
    write_l2(tmp / "q", 10, feeds=feeds, segment_bytes=8192)
    with tw.open_publisher(tmp / "q") as writer:
        append_l2(writer, feeds[:1], 200, start=10)
    snapshot(tmp / "q", replay.Every(records=10))
    assert len(seqs(tmp / "q", ETH)) > 2


def test_only_trusted_books_are_saved(tmp):
    write_l2(tmp / "q", 100, snapshot_every=50, lose={25})
    done = snapshot(tmp / "q", replay.Every(records=10))
    assert seqs(tmp / "q") == [9, 19, 49, 59, 69, 79, 89, 98]
    assert done.untrusted == 0


def test_it_continues_where_it_stopped(tmp):
    Instruments([BTC]).save(tmp)
    feed = L2Feed()
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 16) as writer:
        append_l2(writer, [feed], 50)
        snapshot(tmp / "q", replay.Every(records=20))
        append_l2(writer, [feed], 50, start=50)
        done = snapshot(tmp / "q", replay.Every(records=20))
    assert done.records == 50
    assert seqs(tmp / "q") == [19, 39, 49, 69, 89, 99]
    warm = replay.book_at(tmp / "q", "BTCUSDT", tw.Seq(99))
    assert warm.hash() == replay.book_at(tmp / "q", "BTCUSDT", tw.Seq(99), snapshots=False).hash()


def test_seconds_are_counted_from_the_last_round_of_the_previous_run(tmp):
    Instruments([BTC]).save(tmp)
    feed = L2Feed()
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 16) as writer:
        append_l2(writer, [feed], 50)
        snapshot(tmp / "q", replay.Every(seconds=0.025))
        append_l2(writer, [feed], 50, start=50)
        snapshot(tmp / "q", replay.Every(seconds=0.025))
    assert seqs(tmp / "q") == [0, 25, 49, 74, 99]


def test_without_new_records_nothing_is_written(tmp):
    write_l2(tmp / "q", 50)
    snapshot(tmp / "q", replay.Every(records=20))
    assert snapshot(tmp / "q", replay.Every(records=20)).rounds == 0


@pytest.mark.parametrize("lose", ["note", "newest", "all"])
def test_what_it_needs_to_resume_may_be_damaged(tmp, lose):
    """Each loss costs reading, but never causes a wrong book or a duplicated gap."""
    Instruments([BTC]).save(tmp)
    feed = L2Feed()
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 16) as writer:
        append_l2(writer, [feed], 50, lose={15}, snapshot_every=20)
        snapshot(tmp / "q", replay.Every(records=20))
        append_l2(writer, [feed], 50, start=50, snapshot_every=20)
    files = [file.path for file in snapshots.files(tmp / "q", BTC.venue_id, BTC.market_id)]
    hurt = {"note": [tmp / "q/snapshots/snapshotter.json"], "newest": files[-1:], "all": files}
    for path in hurt[lose]:
        path.write_bytes(b"\0" * 10)
    snapshotter = replay.Snapshotter(tmp / "q", every=replay.Every(records=20))
    snapshotter.run(follow=False)
    assert snapshotter.findings
    last = seqs(tmp / "q")[-1]
    found = snapshots.latest_before(tmp / "q", BTC.venue_id, BTC.market_id)
    cold = replay.book_at(tmp / "q", "BTCUSDT", tw.Seq(last), snapshots=False)
    assert (found.header["seq"], found.header["book_hash"]) == (last, cold.hash())
    assert len(GapLedger(tmp / "q").read()) == 1


def test_a_book_that_waits_for_its_snapshot_is_built_again_from_its_first_event(tmp):
    """Diffs before the snapshot they belong to must not be lost between two runs."""
    Instruments([BTC]).save(tmp)
    feed = L2Feed()
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 16) as writer:
        late = feed.snapshot(999)
        for time in range(10):
            writer.append(0x1000, feed.diff(time), timestamp_ns=time)
        snapshot(tmp / "q", replay.Every(records=5))
        writer.append(0x1000, late, timestamp_ns=999)
        snapshot(tmp / "q", replay.Every(records=5))
    found = snapshots.latest_before(tmp / "q", BTC.venue_id, BTC.market_id)
    assert found.book.last_update == 110
    assert [gap.action for gap in GapLedger(tmp / "q").read() if gap.first] == []


def test_gaps_of_venue_and_log_reach_the_ledger_once(tmp):
    write_l2(tmp / "q", 400, segment_bytes=8192, snapshot_every=100, lose={20})
    sorted((tmp / "q").glob("*.q"))[3].unlink()
    snapshot(tmp / "q", replay.Every(records=50))
    ledger = GapLedger(tmp / "q").read()
    (venue,) = [gap for gap in ledger if gap.kind == "venue" and gap.first]
    assert (venue.venue, venue.symbol, venue.action) == ("binance", "BTCUSDT", "resynced")
    assert {gap.action for gap in ledger if gap.kind == "record"} == {"resynced"}
    (tmp / "q" / "snapshots" / "snapshotter.json").unlink()
    snapshot(tmp / "q", replay.Every(records=50))
    assert GapLedger(tmp / "q").read() == ledger


def test_records_removed_before_it_read_them_are_a_gap(tmp):
    Instruments([BTC]).save(tmp)
    feed = L2Feed()
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        append_l2(writer, [feed], 50)
        snapshot(tmp / "q", replay.Every(records=20))
        append_l2(writer, [feed], 300, start=50, snapshot_every=100)
    for segment in sorted((tmp / "q").glob("*.q"))[:4]:
        segment.unlink()
    done = snapshot(tmp / "q", replay.Every(records=20))
    gap = GapLedger(tmp / "q").read()[0]
    assert (gap.kind, gap.first, gap.action) == ("record", 50, "resynced")
    assert done.untrusted == 0


def test_it_is_a_named_reader_that_pins_nothing(tmp):
    write_l2(tmp / "q", 50)
    snapshot(tmp / "q", replay.Every(records=20))
    (reader,) = tw.queue.status(tmp / "q").readers
    assert (reader.name, reader.pinned, reader.lag_records) == ("snapshotter", False, 0)


def test_two_with_one_name_are_refused(tmp):
    write_l2(tmp / "q", 5)
    with tw.open_subscriber(tmp / "q", "snapshotter"), pytest.raises(ReaderAlreadyActive):
        snapshot(tmp / "q", replay.Every(records=20))


def test_two_with_different_names_are_refused(tmp):
    write_l2(tmp / "q", 5)
    with (
        snapshots.only_writer(tmp / "q"),
        pytest.raises(ConcurrentUse, match="another snapshotter"),
    ):
        snapshot(tmp / "q", replay.Every(records=20), name="other")
    assert snapshot(tmp / "q", replay.Every(records=20), name="other").written == 1


def test_a_full_disk_is_named_and_leaves_no_partial_file(tmp, monkeypatch):
    write_l2(tmp / "q", 50)

    sync = os.fsync

    def full(fd):
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".bin.tmp"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="snapshots") as raised:
            snapshot(tmp / "q", replay.Every(records=20))
    assert raised.value.errno == errno.ENOSPC
    assert list((tmp / "q" / "snapshots").rglob("*.tmp")) == []
    assert snapshot(tmp / "q", replay.Every(records=20)).written == 3


def test_it_follows_a_live_log_until_it_is_stopped(tmp, eventually):
    Instruments([BTC]).save(tmp)
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 16) as writer:
        snapshotter = replay.Snapshotter(tmp / "q", every=replay.Every(records=20))
        rounds = []
        thread = threading.Thread(target=snapshotter.run, kwargs={"on_round": rounds.append})
        thread.start()
        try:
            append_l2(writer, [L2Feed()], 100)
            eventually(lambda: seqs(tmp / "q") == [19, 39, 59, 79, 99])
        finally:
            snapshotter.stop()
            thread.join()
    assert [done.last_seq for done in rounds] == [19, 39, 59, 79, 99]


def test_an_l3_log_is_saved_too(tmp):
    write_l3(tmp / "q", 100)
    assert snapshot(tmp / "q", replay.Every(records=40)).written == 3


def test_temporary_files_of_a_killed_one_are_removed(tmp):
    write_l2(tmp / "q", 50)
    snapshot(tmp / "q", replay.Every(records=20))
    directory = snapshots.files(tmp / "q", BTC.venue_id, BTC.market_id)[0].path.parent
    (directory / "snapshot_7.bin.tmp").write_bytes(b"half")
    snapshot(tmp / "q", replay.Every(records=20))
    assert [name for name in os.listdir(directory) if name.endswith(".tmp")] == []


def test_its_state_file_is_one_checked_line(tmp):
    write_l2(tmp / "q", 50)
    snapshot(tmp / "q", replay.Every(records=20))
    note = json.loads((tmp / "q" / "snapshots" / "snapshotter.json").read_text())
    assert (note["v"], note["resume_seq"], note["last_seq"]) == (1, 50, 49)


def test_an_event_of_no_order_that_lets_another_rest_is_saved(tmp):
    """SZSE: the rest of a market order rests in the book once the next event is another order's."""
    stock = Instrument.of("szse", "000001", 2, 0, book_mode="l3", rules="szse")
    Instruments([stock]).save(tmp)
    events = [
        {"type": 1, "side": 2, "order_id": 2, "price": 1000, "qty": 4},
        {"type": 1, "side": 1, "order_id": 1, "price": 0, "qty": 10, "ord_type": ord("1")},
        {"type": 4, "bid_order_id": 1, "ask_order_id": 2, "price": 1000, "qty": 4},
        {"type": 1, "side": 1, "order_id": 99, "price": 900, "qty": 0},
    ]
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 16) as writer:
        for time, fields in enumerate(events):
            writer.append(0x1000, l3_event(stock, time, **fields), timestamp_ns=time)
    before, cold = (
        replay.book_at(tmp / "q", stock, tw.Seq(seq), snapshots=False) for seq in (2, 3)
    )
    assert (len(before.bids()), len(cold.bids())) == (0, 1)
    snapshot(tmp / "q", replay.Every(records=3))
    found = snapshots.latest_before(tmp / "q", stock.venue_id, stock.market_id)
    assert (found.header["seq"], found.book.hash()) == (3, cold.hash())
