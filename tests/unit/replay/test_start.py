"""The start of a replay: a warm start finds the same gaps as one from the beginning."""

import struct

import pytest

import tapewire as tw
from tapewire import replay
from tapewire.book.gaps import GapLedger
from tapewire.errors import InvalidOption, SegmentMissing
from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.protocol.market import l3_event
from tapewire.replay import snapshots
from tests.support.book_tapes import (
    BTC,
    ORDERS,
    START_NS,
    STEP_NS,
    L2Feed,
    append_l2,
    trade,
    write_l2,
    write_l3,
)

IDS = (BTC.venue_id, BTC.market_id)


def at(n):
    return START_NS + n * STEP_NS


def segments(log):
    """``(path, first_seq, last_seq)`` of each segment that has records."""
    found = {}
    with tw.open_log(log) as reader:
        while (record := reader.next()) is not None:
            name = reader.position.segment
            first, _ = found.get(name, (record.seq, 0))
            found[name] = (first, record.seq)
    files = sorted(log.glob("*.q"))
    return [(path, *found[n]) for path, n in zip(files, sorted(found), strict=False)]


@pytest.fixture
def holed(tmp):
    """A log whose third segment is lost, with a snapshot of the last record before it."""
    write_l2(tmp / "q", 400, segment_bytes=8192)
    path, first, last = segments(tmp / "q")[2]
    replay.Snapshotter(tmp / "q", every=replay.Every(records=first)).run(follow=False)
    for file in snapshots.files(tmp / "q", *IDS):
        if file.seq >= first:
            file.path.unlink()
    assert [file.seq for file in snapshots.files(tmp / "q", *IDS)] == [first - 1]
    path.unlink()
    return tmp / "q", first, last


def test_a_book_from_a_snapshot_just_before_a_gap_is_untrusted(holed):
    log, _, last = holed
    warm = replay.book_at(log, "BTCUSDT", tw.Seq(last + 5))
    cold = replay.book_at(log, "BTCUSDT", tw.Seq(last + 5), snapshots=False)
    assert not cold.trusted
    assert (warm.trusted, warm.distrust) == (False, cold.distrust)


def test_a_replay_that_starts_just_before_a_gap_reports_it(holed):
    log, first, last = holed
    since = at(last + 5)
    with replay.Replay(log, "BTCUSDT", since, skip_damaged=True) as tape:
        assert {step.book.trusted for step in tape} == {False}
        assert tape.records < 400 - last
        assert sum(gap.missing for gap in tape.gaps if gap.kind == "record") >= last - first + 1
    with (
        replay.Replay(log, "BTCUSDT", since) as tape,
        pytest.raises((SegmentMissing, tw.TapewireError)),
    ):
        list(tape)


def test_a_gap_before_the_range_is_not_shown_from_the_start_either(holed):
    """The steps of a range are the same with and without snapshots."""
    log, _, last = holed
    with replay.Replay(log, "BTCUSDT", at(last + 5), skip_damaged=True, snapshots=False) as tape:
        kinds = {step.kind for step in tape}
        assert kinds == {"book"}
        assert tape.gaps


def test_a_book_at_a_time_excludes_records_appended_later(tmp, monkeypatch):
    Instruments([BTC]).save(tmp)
    feed = L2Feed()
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 16) as writer:
        append_l2(writer, [feed], 10)
        find = replay.playback.warm_book

        def append_meanwhile(*args, **options):
            append_l2(writer, [feed], 5, start=10)
            return find(*args, **options)

        monkeypatch.setattr(replay.playback, "warm_book", append_meanwhile)
        assert replay.book_at(tmp / "q", "BTCUSDT", at(9)).last_update == 109


def test_the_highest_seq_and_the_lowest_time_are_accepted(tmp):
    write_l2(tmp / "q", 10)
    assert replay.book_at(tmp / "q", "BTCUSDT", tw.Seq(2**64 - 1)).last_update == 109
    assert not replay.book_at(tmp / "q", "BTCUSDT", -(2**63)).trusted
    with replay.Replay(tmp / "q", "BTCUSDT", time_from=-(2**63)) as tape:
        assert len(list(tape)) == 10


# ---- snapshots of a log that lost its end --------------------------------------------------------


def lose_the_end(tmp, *, keep, end=100):
    """A log and its snapshots, as after a power failure that lost all records from `keep` on."""
    feed = L2Feed()
    Instruments([BTC]).save(tmp)
    with tw.open_publisher(tmp / "was", segment_bytes=1 << 16) as writer:
        append_l2(writer, [feed], 100)
    replay.Snapshotter(tmp / "was", every=replay.Every(records=10), keep=5).run(follow=False)
    other = L2Feed(seed=7)
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 16) as writer:
        with tw.open_log(tmp / "was") as reader:
            for record in reader:
                if record.seq < keep:
                    writer.append(record.type_id, bytes(record), timestamp_ns=record.timestamp_ns)
        for n in range(keep, end):
            time = at(n) + 17
            payload = other.snapshot(time) if n == keep else other.diff(time)
            writer.append(0x1000, payload, timestamp_ns=time)
    (tmp / "was" / "snapshots").rename(tmp / "q" / "snapshots")
    return tmp / "q"


def test_a_snapshotter_does_not_start_with_a_book_of_lost_records(tmp):
    """Killed between a snapshot and its state file; a power failure took the end of the log."""
    log = lose_the_end(tmp, keep=75)
    note = {"v": 1, "resume_seq": 70, "last_seq": 69, "timestamp_ns": at(69)}
    snapshots.store_beside(log, "snapshotter.json", replay.snapshotter.seal(note))
    saver = replay.Snapshotter(log, every=replay.Every(records=10), keep=5)
    saver.run(follow=False)
    assert any("does not have its record" in finding.why for finding in saver.findings)
    for file in snapshots.files(log, *IDS):
        found = snapshots.load(file.path)
        cold = replay.book_at(log, "BTCUSDT", tw.Seq(file.seq), snapshots=False)
        assert found.header["book_hash"] == cold.hash(), file.seq


def test_snapshots_of_lost_records_do_not_displace_new_ones(tmp):
    log = lose_the_end(tmp, keep=20, end=50)
    assert [file.seq for file in snapshots.files(log, *IDS)] == [59, 69, 79, 89, 99]
    replay.Snapshotter(log, every=replay.Every(records=10), keep=5).run(follow=False)
    assert [file.seq for file in snapshots.files(log, *IDS)] == [9, 19, 29, 39, 49]


def test_snapshots_of_retired_records_are_kept(tmp):
    write_l2(tmp / "q", 400, segment_bytes=8192, snapshot_every=100)
    replay.Snapshotter(tmp / "q", every=replay.Every(records=10), keep=None).run(follow=False)
    before = [file.seq for file in snapshots.files(tmp / "q", *IDS)]
    (tmp / "q" / "snapshots" / "snapshotter.json").unlink()
    for path, *_ in segments(tmp / "q")[:3]:
        path.unlink()
    replay.Snapshotter(tmp / "q", every=replay.Every(records=10), keep=None).run(follow=False)
    assert set(before) <= {file.seq for file in snapshots.files(tmp / "q", *IDS)}


def test_a_second_run_of_one_snapshotter_reports_its_gaps(tmp):
    Instruments([BTC]).save(tmp)
    feed = L2Feed()
    saver = replay.Snapshotter(tmp / "q", every=replay.Every(records=1000))
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 16) as writer:
        append_l2(writer, [feed], 50, snapshot_every=20, lose={25})
        saver.run(follow=False)
        append_l2(writer, [feed], 50, start=50, snapshot_every=20, lose={65, 85})
        saver.run(follow=False)
    assert len([gap for gap in GapLedger(tmp / "q").read() if gap.kind == "venue"]) == 3


def damage_record_99(queue):
    with tw.open_log(queue) as reader:
        reader.seek_seq(99)
        offset = reader.position.offset
    (segment,) = queue.glob("000000000*.q")
    with segment.open("r+b") as file:
        file.seek(offset + 64 + 70)
        byte = file.read(1)[0]
        file.seek(offset + 64 + 70)
        file.write(bytes([byte ^ 0xFF]))


def test_it_waits_at_a_damaged_end_of_a_live_log_and_reports_it(tmp):
    """No valid record follows yet: what came before is saved, and the next run continues."""
    write_l2(tmp / "q", 100)
    with tw.open_publisher(tmp / "q"):
        damage_record_99(tmp / "q")
        saver = replay.Snapshotter(tmp / "q", every=replay.Every(records=60))
        done = saver.run(follow=False)
        assert (done.last_seq, done.written) == (98, 2)
        assert "seq=99" in saver.findings[-1].why
        with pytest.raises(tw.TapewireError):  # its state at 99 is unknown
            replay.book_at(tmp / "q", "BTCUSDT", tw.Seq(99))


def test_a_damaged_end_of_a_closed_log_is_a_gap(tmp):
    """The log recorded its end: the record is lost, and the books are untrusted."""
    write_l2(tmp / "q", 100)
    damage_record_99(tmp / "q")
    saver = replay.Snapshotter(tmp / "q", every=replay.Every(records=60))
    done = saver.run(follow=False)
    assert (done.last_seq, done.written, done.untrusted) == (98, 1, 1)
    (gap,) = GapLedger(tmp / "q").read()
    assert (gap.first, gap.last, gap.cause, gap.action) == (99, 99, "damaged", "untrusted")
    assert not replay.book_at(tmp / "q", "BTCUSDT", tw.Seq(99)).trusted


# ---- features that go on -------------------------------------------------------------------------


def test_features_that_continue_after_lost_records_have_an_untrusted_book(tmp):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    write_l3(tmp / "q", 20, segment_bytes=8192)
    with replay.FeatureStream(tmp / "q", "bid_depth1") as stream:
        assert sum(batch.num_rows for batch in stream) == 20
        state = stream.save()
    write_l3(tmp / "q", 300, first_id=1000, segment_bytes=8192)
    with replay.FeatureStream(tmp / "q", "bid_depth1", state=state) as stream:
        sizes = [value for batch in stream for value in batch["bid_depth1"].to_pylist()]
    assert len(sizes) == 300
    assert None not in sizes
    for path, *_ in segments(tmp / "q")[:4]:
        path.unlink()
    with replay.FeatureStream(tmp / "q", "bid_depth1", state=state) as stream:
        sizes = [value for batch in stream for value in batch["bid_depth1"].to_pylist()]
    assert len(sizes) > 100
    assert set(sizes) == {None}


# ---- names ---------------------------------------------------------------------------------------


def test_a_log_is_one_log_however_its_path_is_written(tmp, monkeypatch):
    write_l2(tmp / "q", 5)
    monkeypatch.chdir(tmp)
    with pytest.raises(InvalidOption, match="duplicate log"):
        replay.Replay(["q", f"{tmp}/q/"])


def test_equal_times_have_one_order_however_paths_are_written(tmp, monkeypatch):
    for name in ("a", "b"):
        with tw.open_publisher(tmp / name, segment_bytes=1 << 16) as writer:
            writer.append(7, name.encode(), timestamp_ns=5)
    monkeypatch.chdir(tmp)
    for logs in (["a", "b"], ["./b", "a"], [f"{tmp}/b", "a"], ["./a/../b", f"{tmp}/a"]):
        with replay.Replay(logs) as tape:
            assert [bytes(step.record) for step in tape] == [b"a", b"b"], logs


def test_the_header_of_a_snapshot_is_under_its_checksum(tmp):
    """If a time in it changed, it would match another log."""
    write_l2(tmp / "q", 10)
    replay.Snapshotter(tmp / "q", every=replay.Every(records=10)).run(follow=False)
    (file,) = snapshots.files(tmp / "q", *IDS)
    data = bytearray(file.path.read_bytes())
    struct.pack_into("<Q", data, 40, at(3))
    file.path.write_bytes(data)
    with pytest.raises(tw.TapewireError, match="checksum"):
        snapshots.load(file.path)


# ---- many logs -----------------------------------------------------------------------------------


def test_orders_of_the_previous_day_are_in_a_warm_book(tmp):
    """The snapshotter of the second day's log has never read them."""
    Instruments([ORDERS]).save(tmp)
    days = [tmp / "day0", tmp / "day1"]
    for day, path in enumerate(days):
        with tw.open_publisher(path, segment_bytes=1 << 16) as writer:
            for n in range(day * 50, day * 50 + 50):
                fields = {"type": 1, "side": 1, "order_id": n + 1, "price": 100 + n, "qty": 1}
                writer.append(0x1000, l3_event(ORDERS, at(n), **fields), timestamp_ns=at(n))
        replay.Snapshotter(path, every=replay.Every(records=10)).run(follow=False)
    with replay.Replay(days, "AAPL", at(90)) as tape:
        orders = [step.book.order_count() for step in tape]
    assert orders == list(range(91, 101))


def test_a_log_of_trades_does_not_prevent_a_warm_start_of_orders(tmp):
    write_l3(tmp / "book", 100)
    with tw.open_publisher(tmp / "trades", segment_bytes=1 << 16) as writer:
        for n in range(100):
            writer.append(0x1004, trade(ORDERS, at(n), 10_000, 1, n), timestamp_ns=at(n))
    replay.Snapshotter(tmp / "book", every=replay.Every(records=10)).run(follow=False)
    with replay.Replay([tmp / "book", tmp / "trades"], "AAPL", at(95)) as tape:
        tape.run()
        warm = tape.hash()
        assert tape.records < 30
    with replay.Replay(tmp / "book") as tape:
        tape.run()
        assert tape.hash() == warm


def test_a_gap_in_one_log_of_many_has_the_seq_of_that_log(tmp):
    write_l2(tmp / "a", 400, segment_bytes=8192)
    path, first, _ = segments(tmp / "a")[2]
    path.unlink()
    with tw.open_publisher(tmp / "b", segment_bytes=1 << 16, first_seq=1_000_000) as writer:
        for n in range(400):
            writer.append(7, b"", timestamp_ns=at(n) + 1)
    with replay.Replay([tmp / "a", tmp / "b"], skip_damaged=True) as tape:
        tape.run()
        assert {gap.seq for gap in tape.gaps if gap.kind == "record"} == {first - 1}
    assert tape.hash() == tape.hash()  # books remain when the logs are closed


def test_a_trade_with_an_ambiguous_venue_has_none(tmp):
    """The instruments have no names, and both venues use the same market id."""
    one, two = (
        Instrument("x", "A", 2, 3, venue_id=1, market_id=42),
        Instrument("y", "A", 2, 3, venue_id=2, market_id=42),
    )
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 16) as writer:
        for n, feed in enumerate([L2Feed(one), L2Feed(two)]):
            writer.append(0x1000, feed.snapshot(at(n)), timestamp_ns=at(n))
        writer.append(0x1004, trade(two, at(2), 10_000, 1, 1), timestamp_ns=at(2))
    with replay.Replay(tmp / "q", instruments=Instruments()) as tape:
        *_, last = tape
    assert (last.kind, last.symbol) == ("trade", None)
