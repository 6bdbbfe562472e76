"""`book_at`: any moment of a log, from the nearest snapshot, equals a replay from the start."""

import random

import pytest

import tapewire as tw
from tapewire import replay
from tapewire.protocol.instruments import Instruments
from tests.support.book_tapes import BTC, ETH, START_NS, STEP_NS, L2Feed, append_l2, write_l2


def compare_random_moments(log, symbols, events, moments):
    """`book_at` at random times and records against one replay from the start."""
    after = {}  # (symbol, record) to the hash after it
    with replay.Replay(log) as tape:
        latest = dict.fromkeys(symbols)
        for step in tape:
            latest[step.symbol] = step.book.hash()
            after[step.seq] = dict(latest)
    chance = random.Random(5)
    for n in range(moments):
        symbol = chance.choice(symbols)
        seq = chance.randrange(len(symbols), events)
        when = tw.Seq(seq) if n % 2 else START_NS + seq * STEP_NS + chance.randrange(STEP_NS)
        assert replay.book_at(log, symbol, when).hash() == after[seq][symbol], (symbol, when)


@pytest.fixture(scope="module")
def two_symbols(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tape")
    write_l2(directory / "q", 3000, feeds=[L2Feed(BTC, 1), L2Feed(ETH, 2)], snapshot_every=400)
    every = replay.Every(records=170)
    replay.Snapshotter(directory / "q", every=every, keep=None).run(follow=False)
    return directory / "q"


def test_fifty_random_moments_equal_a_replay_from_the_start(two_symbols):
    compare_random_moments(two_symbols, ["BTCUSDT", "ETHUSDT"], 3000, 50)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_thousand_random_moments_equal_a_replay_from_the_start(two_symbols):
    compare_random_moments(two_symbols, ["BTCUSDT", "ETHUSDT"], 3000, 1000)


def test_a_moment_includes_the_records_before_the_position_of_seek_time(tmp):
    """A record with an earlier timestamp than those before it keeps its position in the log."""
    feed = L2Feed()
    Instruments([BTC]).save(tmp)
    times = [10, 20, 50, 30, 40, 60]
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 16) as writer:
        for n, time in enumerate(times):
            event = feed.snapshot(time) if n == 0 else feed.diff(time)
            writer.append(0x1000, event, timestamp_ns=time)
    updates = [replay.book_at(tmp / "q", "BTCUSDT", t).last_update for t in (10, 45, 49, 50, 60)]
    assert updates == [100, 101, 101, 104, 105]
    with tw.open_log(tmp / "q") as reader:
        reader.seek_time(49 + 1)
        assert reader.next().seq == 2


def test_before_the_first_event_the_book_is_empty_and_untrusted(tmp):
    write_l2(tmp / "q", 5)
    book = replay.book_at(tmp / "q", "BTCUSDT", START_NS - 1)
    assert (len(book.bids()), book.trusted) == (0, False)


def test_a_moment_after_the_end_is_the_end(two_symbols):
    end = replay.book_at(two_symbols, "BTCUSDT", 2**63 - 1)
    assert end.hash() == replay.book_at(two_symbols, "BTCUSDT", tw.Seq(2999)).hash()


def test_times_are_accepted_in_all_forms(two_symbols):
    text = "2023-11-14T22:13:21Z"  # one second after the first record
    assert replay.book_at(two_symbols, "binance:BTCUSDT", text).last_update == 599
    assert replay.book_at(two_symbols, BTC, tw.Time(text)).last_update == 599


def test_a_snapshot_saves_reading(two_symbols, monkeypatch):
    read = []
    run = replay.playback.Engine.run

    class Counting(replay.playback.Engine):
        def run(self, **limits):
            why = run(self, **limits)
            read.append(self.records)
            return why

    monkeypatch.setattr(replay.playback, "Engine", Counting)
    replay.book_at(two_symbols, "ETHUSDT", tw.Seq(2500))
    replay.book_at(two_symbols, "ETHUSDT", tw.Seq(2500), snapshots=False)
    assert read[0] <= 170
    assert read[1] == 2501


def test_a_log_after_retention_uses_its_snapshots(tmp):
    write_l2(tmp / "q", 600, segment_bytes=8192)
    right = replay.book_at(tmp / "q", "BTCUSDT", tw.Seq(599)).hash()
    replay.Snapshotter(tmp / "q", every=replay.Every(records=100)).run(follow=False)
    min((tmp / "q").glob("*.q")).unlink()
    warm = replay.book_at(tmp / "q", "BTCUSDT", tw.Seq(599))
    assert (warm.hash(), warm.trusted) == (right, True)
    assert not replay.book_at(tmp / "q", "BTCUSDT", tw.Seq(599), snapshots=False).trusted


def test_a_damaged_record_on_the_way_makes_the_book_untrusted(tmp):
    write_l2(tmp / "q", 400, segment_bytes=8192)
    sorted((tmp / "q").glob("*.q"))[2].unlink()
    book = replay.book_at(tmp / "q", "BTCUSDT", tw.Seq(399))
    assert not book.trusted
    assert book.distrust_reason


def test_a_live_log_is_read_to_its_current_end(tmp):
    Instruments([BTC]).save(tmp)
    feed = L2Feed()
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 16) as writer:
        append_l2(writer, [feed], 10)
        assert replay.book_at(tmp / "q", "BTCUSDT", 2**62).last_update == 109
        append_l2(writer, [feed], 5, start=10)
        assert replay.book_at(tmp / "q", "BTCUSDT", 2**62).last_update == 114
