"""Replay: order, range, books, and the same hash by every path."""

import signal
import threading

import numpy as np
import pytest

import tapewire as tw
from tapewire import replay
from tapewire.errors import ClosedHandle, CorruptRecord, GapDetected, InvalidOption
from tapewire.protocol.instruments import Instruments, UnknownInstrument
from tests.support.book_tapes import (
    BOOK_EVENT,
    BTC,
    ETH,
    ORDERS,
    START_NS,
    STEP_NS,
    TRADE_TICK,
    L2Feed,
    append_l2,
    archive_of_two_venues,
    trade,
    write_l2,
    write_l3,
)


def at(n):
    return START_NS + n * STEP_NS


def hashes(tape):
    return [(step.seq, step.symbol, step.book.hash()) for step in tape]


# ---- order and range -----------------------------------------------------------------------------


def test_every_record_is_a_step_with_its_book(tmp):
    (feed,) = write_l2(tmp / "q", 50)
    with replay.Replay(tmp / "q") as tape:
        steps = list(tape)
    assert [step.seq for step in steps] == list(range(50))
    assert {(step.kind, step.venue, step.symbol) for step in steps} == {
        ("book", "binance", "BTCUSDT")
    }
    book = steps[-1].book
    assert dict(zip(*(book.bids()[name].tolist() for name in ("price", "size")), strict=True)) == (
        feed.bids
    )


def test_the_book_of_an_instrument_is_one_object(tmp):
    write_l2(tmp / "q", 20)
    with replay.Replay(tmp / "q") as tape:
        books = {id(step.book) for step in tape}
        assert books == {id(tape.books["binance", "BTCUSDT"])}


def test_many_logs_are_ordered_by_time_then_name(tmp):
    for name in "ba":
        (tmp / name).mkdir()
        with tw.open_publisher(tmp / name / "q", segment_bytes=1 << 16) as writer:
            for n in range(3):
                writer.append(7, name.encode(), timestamp_ns=n // 2)
    logs = {name: tmp / name / "q" for name in "ba"}
    with replay.Replay(logs) as tape:
        order = [(step.timestamp_ns, step.source, step.seq) for step in tape]
    assert order == sorted(order)
    assert len(order) == 6


def test_days_as_a_list_of_logs_are_one_replay(tmp):
    feed = L2Feed()
    Instruments([BTC]).save(tmp)
    for day in range(2):
        with tw.open_publisher(tmp / f"day{day}", segment_bytes=1 << 16) as writer:
            append_l2(writer, [feed], 40, start=day * 40)
    with tw.open_publisher(tmp / "whole", segment_bytes=1 << 16) as writer:
        append_l2(writer, [L2Feed()], 80)
    with replay.Replay([tmp / "day0", tmp / "day1"]) as days, replay.Replay(tmp / "whole") as whole:
        assert [h for *_, h in hashes(days)] == [h for *_, h in hashes(whole)]
        assert days.hash() == whole.hash()


def test_a_range_has_its_records_and_the_book_includes_earlier_ones(tmp):
    write_l2(tmp / "q", 60)
    with replay.Replay(tmp / "q") as tape:
        whole = hashes(tape)
    with replay.Replay(tmp / "q", time_from=at(20), time_to=at(30)) as tape:
        assert hashes(tape) == whole[20:30]
        assert list(tape) == []


@pytest.mark.parametrize("read", [replay.Replay, lambda q, **r: replay.features(q, "mid", **r)])
def test_a_range_that_ends_before_it_begins_is_refused(tmp, read):
    write_l2(tmp / "q", 5)
    with pytest.raises(InvalidOption, match="time_to must not be before time_from"):
        read(tmp / "q", time_from=at(3), time_to=at(2))


def test_a_record_with_an_earlier_timestamp_keeps_its_position(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 16) as writer:
        for time in (10, 30, 20, 40):
            writer.append(7, b"", timestamp_ns=time)
    with replay.Replay(tmp / "q", time_from=25, time_to=35) as tape:
        steps = [(step.timestamp_ns, step.clock_ns) for step in tape]
    assert steps == [(30, 30), (20, 30)]


def test_symbols_are_filtered_in_a_log_of_many(tmp):
    feeds = [L2Feed(BTC, 1), L2Feed(ETH, 2)]
    write_l2(tmp / "q", 100, feeds=feeds)
    with replay.Replay(tmp / "q", symbols=["ETHUSDT"]) as tape:
        assert {step.symbol for step in tape} == {"ETHUSDT"}
        assert list(tape.books) == [("binance", "ETHUSDT")]
        assert (tape.records, tape.events) == (100, 50)
    with replay.Replay(tmp / "q", symbols=["binance:BTCUSDT", ETH]) as tape:
        assert len(list(tape)) == 100


def test_an_unknown_symbol_is_refused_by_name(tmp):
    write_l2(tmp / "q", 5)
    with pytest.raises(UnknownInstrument, match="XRPUSDT"):
        replay.Replay(tmp / "q", symbols=["XRPUSDT"])


def test_a_symbol_of_several_venues_is_that_of_the_log(tmp):
    logs = archive_of_two_venues(tmp)
    for venue, log in logs.items():
        with replay.Replay(log, symbols=["BTCUSDT"]) as tape:
            assert {step.venue for step in tape} == {venue}
        assert replay.book_at(log, "BTCUSDT", at(9)).last_update == 109
    with replay.Replay(list(logs.values()), symbols="BTCUSDT") as tape:
        assert {step.venue for step in tape} == set(logs)


def test_a_symbol_of_several_venues_is_refused_if_no_path_has_the_venue(tmp):
    log = archive_of_two_venues(tmp)["binance_spot"]
    elsewhere = log.rename(tmp / "q")
    with pytest.raises(UnknownInstrument, match=r"several venues.*binance_usdm:BTCUSDT"):
        replay.Replay(elsewhere, symbols=["BTCUSDT"])


def test_instruments_without_a_name_have_their_ids(tmp):
    write_l2(tmp / "q", 5)
    with replay.Replay(tmp / "q", instruments=Instruments()) as tape:
        names = {(step.venue, step.symbol) for step in tape}
    assert names == {(f"#{BTC.venue_id}", f"#{BTC.market_id}")}


def test_trades_have_the_book_as_it_was_before_them(tmp):
    feed = L2Feed()
    Instruments([BTC]).save(tmp)
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 16) as writer:
        append_l2(writer, [feed], 3)
        writer.append(TRADE_TICK, trade(BTC, at(3), 10_001, 5, 77), timestamp_ns=at(3))
    with replay.Replay(tmp / "q", symbols=["BTCUSDT"]) as tape:
        *_, before, step = tape
    assert (step.kind, step.symbol, step.trades["trade_id"].tolist()) == ("trade", "BTCUSDT", [77])
    assert step.book is before.book
    assert len(before.trades) == 0
    assert before.trades.dtype == step.trades.dtype


def test_open_readers_are_read_from_their_position_and_left_open(tmp):
    write_l2(tmp / "q", 10)
    with tw.open_log(tmp / "q") as reader:
        reader.seek_seq(4)
        with replay.Replay(reader) as tape:
            assert [step.seq for step in tape] == list(range(4, 10))
        assert not reader.closed


def test_a_closed_replay_raises(tmp):
    write_l2(tmp / "q", 5)
    tape = replay.Replay(tmp / "q")
    tape.close()
    tape.close()
    assert tape.closed
    with pytest.raises(ClosedHandle):
        next(iter(tape))


def test_the_same_log_twice_is_refused(tmp):
    write_l2(tmp / "q", 5)
    with pytest.raises(InvalidOption, match="duplicate log"):
        replay.Replay([tmp / "q", tmp / "q"])


# ---- pace ----------------------------------------------------------------------------------------


class FakeClock:
    def __init__(self):
        self.now, self.slept = 100.0, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.mark.parametrize(("pace", "step_seconds"), [(1.0, 0.001), (10.0, 0.0001)])
def test_a_paced_replay_waits_by_the_recorded_times(tmp, pace, step_seconds):
    write_l2(tmp / "q", 5)
    clock = FakeClock()
    with replay.Replay(tmp / "q", pace=pace, clock=clock) as tape:
        assert len(list(tape)) == 5
    assert clock.slept == pytest.approx([step_seconds] * 4)


def test_a_paced_replay_that_is_late_does_not_wait(tmp):
    write_l2(tmp / "q", 5)
    clock = FakeClock()
    with replay.Replay(tmp / "q", pace=1.0, clock=clock) as tape:
        for _ in tape:
            clock.now += 1.0
    assert clock.slept == []


def test_ctrl_c_ends_a_paced_replay(tmp):
    write_l2(tmp / "q", 2)
    with tw.open_publisher(tmp / "q") as writer:
        writer.append(7, b"", timestamp_ns=at(1) + 3600 * 10**9)
    with replay.Replay(tmp / "q", pace=1.0) as tape:
        main = threading.main_thread().ident
        threading.Timer(0.2, signal.pthread_kill, [main, signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            list(tape)


@pytest.mark.parametrize("pace", [0, -1.0, float("nan")])
def test_a_pace_must_be_above_zero(tmp, pace):
    with pytest.raises(InvalidOption):
        replay.Replay(tmp, pace=pace)


# ---- the same hash by every path -----------------------------------------------------------------


def live_hash(path, events):
    """Follows a queue from its first record while a thread writes it."""
    Instruments([BTC]).save(path.parent)
    with tw.open_publisher(path, segment_bytes=1 << 16) as writer:
        thread = threading.Thread(target=append_l2, args=(writer, [L2Feed()], events))
        with replay.Replay(path) as tape:
            thread.start()
            for step in tape.follow(timeout=20):
                if step.seq == events - 1:
                    break
            thread.join()
            return tape.hash()


def test_live_file_and_warm_start_have_one_hash(tmp):
    live = live_hash(tmp / "q", 2000)
    with replay.Replay(tmp / "q") as tape:
        assert (tape.run(), tape.records) == ("end", 2000)
        assert tape.hash() == live
    replay.Snapshotter(tmp / "q", every=replay.Every(records=300)).run(follow=False)
    with replay.Replay(tmp / "q", ["BTCUSDT"], time_from=at(1900)) as tape:
        assert (tape.run(), tape.records) == ("end", 200)  # after the snapshot of record 1,799
        assert tape.hash() == live


def test_books_saved_at_different_records_apply_each_record_once(tmp):
    feeds = [L2Feed(BTC, 1), L2Feed(ETH, 2)]
    write_l2(tmp / "q", 10, feeds=feeds)
    with tw.open_publisher(tmp / "q") as writer:
        append_l2(writer, feeds[:1], 40, start=10)  # ETHUSDT has no more events
    replay.Snapshotter(tmp / "q", every=replay.Every(records=10)).run(follow=False)
    with replay.Replay(tmp / "q", ["BTCUSDT", "ETHUSDT"], time_from=at(45)) as tape:
        assert [step.seq for step in tape] == list(range(45, 50))
        # Read from after the older snapshot, of record 9; applied from after the newer, of 39.
        assert (tape.records, tape.events) == (40, 10)
        warm = tape.hash()
    with replay.Replay(tmp / "q") as tape:
        tape.run()
        assert tape.hash() == warm


def test_a_warm_start_on_the_second_day_skips_the_first(tmp):
    feed = L2Feed()
    Instruments([BTC]).save(tmp)
    days = [tmp / "day0", tmp / "day1"]
    for day, path in enumerate(days):
        with tw.open_publisher(path, segment_bytes=1 << 16) as writer:
            append_l2(writer, [feed], 100, start=day * 100, snapshot_every=100)
        replay.Snapshotter(path, every=replay.Every(records=30)).run(follow=False)
    with replay.Replay(days, ["BTCUSDT"], time_from=at(170), snapshots=False) as tape:
        cold = hashes(tape)
    with replay.Replay(days, ["BTCUSDT"], time_from=at(170)) as tape:
        assert hashes(tape) == cold
        assert tape.records <= 42  # the snapshot is after record 59 of the second day
    assert len(cold) == 30


def test_policies_other_than_resync_start_at_the_beginning(tmp):
    """A snapshot does not contain whether a book was quarantined before it."""
    write_l2(tmp / "q", 100, snapshot_every=30, lose={12})
    replay.Snapshotter(tmp / "q", every=replay.Every(records=20)).run(follow=False)
    with replay.Replay(tmp / "q", ["BTCUSDT"], at(80), on_gap="quarantine") as tape:
        assert not next(iter(tape)).book.trusted


def test_a_follow_ends_at_time_to_while_the_log_continues(tmp):
    write_l2(tmp / "q", 50)
    with replay.Replay(tmp / "q", time_to=at(10)) as tape:
        assert len(list(tape.follow())) == 10


# ---- gaps ----------------------------------------------------------------------------------------


def test_resync_waits_for_a_snapshot_and_ends_correct(tmp):
    write_l2(tmp / "q", 100, snapshot_every=30, lose={42})
    (tmp / "all").mkdir()
    write_l2(tmp / "all" / "q", 100, snapshot_every=30)
    with replay.Replay(tmp / "q") as tape, replay.Replay(tmp / "all" / "q") as right:
        trusted = {step.timestamp_ns: step.book.trusted for step in tape}
        assert [t for t, good in trusted.items() if not good] == [at(n) for n in range(43, 60)]
        right.run()
        assert tape.hash() == right.hash()
        (gap,) = tape.gaps
    assert (gap.kind, gap.symbol, gap.first, gap.last) == ("venue", "BTCUSDT", 141, 141)
    assert (gap.seq, gap.action) == (42, "resynced")


def test_quarantine_keeps_the_book_as_it_was(tmp):
    write_l2(tmp / "q", 100, snapshot_every=30, lose={42})
    with replay.Replay(tmp / "q", on_gap="quarantine") as tape:
        states = [(step.book.trusted, step.book.hash()) for step in tape]
        assert tape.gaps[0].action == "quarantined"
    assert len({h for good, h in states if not good}) == 1
    assert not states[-1][0]


def test_raise_names_the_gap_and_the_next_step_continues(tmp):
    write_l2(tmp / "q", 60, lose={42})
    with replay.Replay(tmp / "q", on_gap="raise") as tape:
        seen = []
        with pytest.raises(GapDetected) as raised:
            seen.extend(step.seq for step in tape)
        assert (raised.value.first, raised.value.last) == (142, 142)
        assert next(iter(tape)).seq == 43


def test_missing_records_make_the_book_untrusted_until_a_snapshot(tmp):
    write_l2(tmp / "q", 400, snapshot_every=100, segment_bytes=8192)
    sorted((tmp / "q").glob("*.q"))[2].unlink()
    with replay.Replay(tmp / "q", skip_damaged=True) as tape:
        kinds = [step.kind for step in tape]
        (book,) = tape.books.values()
        assert kinds.count("gap") >= 1
        assert book.trusted
        counted = [gap for gap in tape.gaps if "not known" not in gap.cause]
        assert {gap.kind for gap in counted} == {"record"}
        assert {gap.action for gap in counted} == {"resynced"}
        lost = sum(gap.missing for gap in counted)
        assert lost + tape.records == 400


def test_damage_raises_unless_it_is_to_be_skipped(tmp):
    write_l2(tmp / "q", 100)
    (segment,) = [s for s in sorted((tmp / "q").glob("*.q")) if s.name.startswith("000000000")]
    with tw.open_log(tmp / "q") as reader:
        reader.seek_seq(50)
        offset = reader.position.offset
    data = bytearray(segment.read_bytes())
    data[offset + 64 + 70] ^= 0xFF
    segment.write_bytes(data)
    with replay.Replay(tmp / "q") as tape, pytest.raises(CorruptRecord):
        list(tape)
    with replay.Replay(tmp / "q", skip_damaged=True) as tape:
        steps = list(tape)
        (gap,) = [step for step in steps if step.kind == "gap"]
        assert gap.gap == (50, 50, "damaged")
        assert (len(steps), steps[-1].book.trusted) == (100, False)
        assert next((g.kind, g.first, g.last, g.action) for g in tape.gaps) == (
            "record",
            50,
            50,
            "untrusted",
        )


@pytest.mark.parametrize("payload", [b"", b"short", b"\0" * 64, b"\xff" * 200])
def test_an_invalid_payload_is_refused_or_skipped_as_a_gap(tmp, payload):
    write_l2(tmp / "q", 3)
    with tw.open_publisher(tmp / "q") as writer:
        writer.append(BOOK_EVENT, payload, timestamp_ns=at(3))
        writer.append(7, b"", timestamp_ns=at(4))
    with replay.Replay(tmp / "q") as tape:
        with pytest.raises(tw.TapewireError):
            list(tape)
        assert next(iter(tape)).seq == 4
    with replay.Replay(tmp / "q", skip_damaged=True) as tape:
        assert [step.kind for step in tape] == ["book"] * 3 + ["gap", "other"]
        assert tape.gaps[0].kind == "parse"


def test_an_l3_book_that_starts_after_lost_records_is_untrusted(tmp):
    write_l3(tmp / "q", 300, segment_bytes=8192)
    min((tmp / "q").glob("*.q")).unlink()
    with replay.Replay(tmp / "q") as tape:
        *_, step = tape
        assert not step.book.trusted
        assert (tape.gaps[0].kind, tape.gaps[0].first) == ("record", 0)


def test_an_l3_log_replays_to_the_same_orders(tmp):
    write_l3(tmp / "q", 300)
    with replay.Replay(tmp / "q") as tape, replay.Replay(tmp / "q") as again:
        assert hashes(tape) == hashes(again)
        assert tape.books["nasdaq", ORDERS.symbol].trusted


def test_steps_and_their_records_may_be_kept(tmp):
    write_l2(tmp / "q", 30)
    with replay.Replay(tmp / "q") as tape:
        kept = list(tape)
    assert [step.record.seq for step in kept] == list(range(30))
    assert kept[3].record.decode().update_last == 103
    assert "BTCUSDT" in repr(kept[3])
    assert isinstance(kept[3].trades, np.ndarray)
