"""Slices by sequence number, errors, threads: no row is lost or duplicated."""

import random
import threading
from itertools import pairwise

import pytest

import tapewire as tw
from tapewire import replay
from tapewire.errors import ConcurrentUse, CorruptRecord, GapDetected, InvalidOption
from tapewire.protocol.instruments import Instrument, Instruments
from tests.support.book_tapes import (
    BTC,
    START_NS,
    STEP_NS,
    L2Feed,
    append_l2,
    trade,
    write_l2,
)
from tests.support.feature_tapes import SHORT_NAMES, TapeWriter, instrument, random_tape
from tests.support.queue_format import crc32c

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


def at(n):
    return START_NS + n * STEP_NS


def cuts(seed, count):
    chance = random.Random(seed)
    return pairwise([0, *sorted(chance.sample(range(1, count), 9)), count])


def steps_of(tape):
    return [(step.kind, step.seq, step.clock_ns, step.book.hash()) for step in tape]


@pytest.mark.parametrize("snapshots", [False, True], ids=["from the start", "warm"])
def test_replays_of_slices_together_equal_one_replay(tmp, snapshots):
    write_l2(tmp / "q", 300, snapshot_every=50, lose={120, 121, 190})
    replay.Snapshotter(tmp / "q", every=replay.Every(records=30), keep=None).run(follow=False)
    with replay.Replay(tmp / "q") as tape:
        whole = steps_of(tape)
    parts = []
    for first, end in cuts(3, 297):
        options = {"seq_from": first, "seq_to": end, "snapshots": snapshots}
        with replay.Replay(tmp / "q", "BTCUSDT", **options) as tape:
            parts += steps_of(tape)
            assert tape.records <= (70 if snapshots and first > 250 else 300)
    assert parts == whole


@pytest.mark.parametrize("sample", ["event", "trade", "100ms", "7s"])
def test_features_of_slices_together_equal_one_pass(tmp, sample):
    writer = TapeWriter(tmp, instrument())
    tape = random_tape(5, 500)
    writer.write(tape, snapshots_every=40)
    whole = replay.features(writer.book, SHORT_NAMES, sample, symbols="SYM")
    parts = [
        replay.features(writer.book, SHORT_NAMES, sample, symbols="SYM", seq_from=first, seq_to=end)
        for first, end in cuts(4, len(tape))
    ]
    assert sum(part.num_rows > 0 for part in parts) > 3
    assert pa.concat_tables(parts).to_pylist() == whole.to_pylist()


def test_a_slice_by_seq_is_done_at_its_end(tmp):
    write_l2(tmp / "q", 50)
    with replay.FeatureStream(tmp / "q", "mid", seq_from=10, seq_to=20) as stream:
        assert sum(batch.num_rows for batch in stream.follow()) == 10
        assert stream.done
    with replay.Replay(tmp / "q", seq_to=5) as tape:
        assert len(list(tape.follow())) == 5


@pytest.mark.parametrize("wrong", [{"seq_from": -1}, {"seq_to": 2**64}, {"seq_from": 1.5}])
def test_invalid_sequence_numbers_are_refused(tmp, wrong):
    write_l2(tmp / "q", 5)
    with pytest.raises(InvalidOption, match="seq_"):
        replay.Replay(tmp / "q", **wrong)
    with pytest.raises(InvalidOption, match="seq_"):
        replay.features(tmp / "q", "mid", symbols="BTCUSDT", **wrong)


def test_a_slice_by_seq_needs_one_log(tmp):
    write_l2(tmp / "a", 5)
    write_l2(tmp / "b", 5)
    with pytest.raises(InvalidOption, match="a single log"):
        replay.Replay([tmp / "a", tmp / "b"], seq_from=1)


# ---- errors on the way ---------------------------------------------------------------------------


def test_rows_before_a_gap_that_raises_are_returned_by_the_next_call(tmp):
    write_l2(tmp / "q", 60, snapshot_every=50, lose={20})
    with replay.FeatureStream(tmp / "q", "mid", on_gap="raise") as stream:
        with pytest.raises(GapDetected):
            list(stream)
        with pytest.raises(InvalidOption, match="not returned yet"):
            stream.save()
        times = [time for batch in stream for time in batch["timestamp_ns"].to_pylist()]
        stream.save()
    # The record that showed the gap is skipped without a row.
    assert times == [at(n) for n in range(60) if n not in (20, 21)]


def test_a_function_that_fails_is_called_again_for_the_same_row(tmp):
    write_l2(tmp / "q", 20)
    failures = [ZeroDivisionError("once")]

    def fails_once(row):
        if row.timestamp_ns == at(7) and failures:
            raise failures.pop()
        return row.timestamp_ns - START_NS

    with replay.FeatureStream(tmp / "q", ["mid", {"own": fails_once}]) as stream:
        with pytest.raises(ZeroDivisionError):
            list(stream)
        (batch,) = stream
    assert batch["own"].to_pylist() == [n * STEP_NS for n in range(20)]
    assert batch["timestamp_ns"].to_pylist() == [at(n) for n in range(20)]


def test_a_trade_that_overflows_a_sum_is_named_by_its_seq(tmp):
    write_l2(tmp / "q", 5)
    with tw.open_publisher(tmp / "q") as writer:
        writer.append(0x1004, trade(BTC, at(5), 2**62, 2**62, 1), timestamp_ns=at(5))
        writer.append(0x1004, trade(BTC, at(6), 100, 5, 2), timestamp_ns=at(6))
    for sample in ("event", "trade"):
        with replay.FeatureStream(tmp / "q", "volume_1s", sample) as stream:
            with pytest.raises(CorruptRecord, match=r"96 bits.*seq=5"):
                list(stream)
            (batch,) = stream
            assert batch["timestamp_ns"].to_pylist()[-1] == at(6)


def test_a_state_with_bytes_that_are_not_text_is_refused_with_a_message(tmp):
    write_l2(tmp / "q", 5)
    with replay.FeatureStream(tmp / "q", "mid") as stream:
        list(stream)
        state = stream.save()
    hurt = bytearray(state.replace(b"event: mid", b"event: \xff\xfed"))
    assert hurt != state
    hurt[:4] = crc32c(hurt[4:]).to_bytes(4, "little")
    with pytest.raises(InvalidOption, match="other features"):
        replay.FeatureStream(tmp / "q", "mid", state=bytes(hurt))


def test_a_function_that_returns_no_number_is_named(tmp):
    write_l2(tmp / "q", 5)
    with pytest.raises(TypeError, match="own='text'"):
        replay.features(tmp / "q", {"own": lambda row: "text"})


def test_asof_accepts_one_name(tmp):
    write_l2(tmp / "q", 5)
    assert replay.asof(tmp / "q", tmp / "q", "mid").column_names[-1] == "mid"


def test_one_symbol_at_two_venues_is_distinguished(tmp):
    one, two = (Instrument.of(venue, "BTCUSDT", price_scale=2, size_scale=3) for venue in "xy")
    write_l2(tmp / "q", 6, feeds=[L2Feed(one, 1), L2Feed(two, 2)])
    rows = replay.features(tmp / "q", "mid")["symbol"].to_pylist()
    assert rows == ["x:BTCUSDT", "y:BTCUSDT"] * 3
    assert replay.features(tmp / "q", "mid", symbols="y:BTCUSDT")["symbol"].to_pylist() == (
        ["BTCUSDT"] * 3
    )


# ---- threads and signals -------------------------------------------------------------------------


@pytest.fixture
def long_replay(tmp):
    """A replay that another thread is running, with a book that was obtained before."""
    Instruments([BTC]).save(tmp)
    feed = L2Feed()
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 24) as writer:
        append_l2(writer, [feed], 2000)
        diff = feed.diff(at(2000))
        for _ in range(400):
            writer.append_batch(0x1000, [diff] * 1000, timestamps_ns=[at(2000)] * 1000)
    with replay.Replay(tmp / "q") as tape:
        yield tape


def test_a_book_that_another_thread_is_replaying_raises(long_replay):
    book = next(iter(long_replay)).book
    refused = []
    thread = threading.Thread(target=long_replay.run)
    thread.start()
    while thread.is_alive():
        for look in (lambda: book.best_bid, book.hash, lambda: long_replay.gaps, long_replay.hash):
            try:
                look()
            except ConcurrentUse:
                refused.append(look)
    thread.join()
    assert refused
    assert book.trusted
    assert len(long_replay.hash()) == 32


def test_the_seconds_of_a_run_must_be_above_zero(tmp):
    write_l2(tmp / "q", 5)
    with replay.Replay(tmp / "q") as tape:
        assert tape.run(seconds=3600) == "end"
        with pytest.raises(InvalidOption, match="above 0"):
            tape.run(seconds=0)
        with pytest.raises(InvalidOption, match="above 0"):
            tape.run(seconds=float("nan"))
