"""Streaming messages, trades and gaps: micro-batches have the rows of a batch."""

import contextlib
import copy
import random
import shutil
from dataclasses import replace

import pytest

import tapewire as tw
from tapewire.book.gaps import Gap, GapLedger
from tapewire.errors import InvalidOption
from tapewire.protocol.instruments import Instruments
from tapewire.replay import Snapshotter
from tapewire.replay.row_stream import RowStream
from tests.support import crafted
from tests.support.book_tapes import BTC, ETH, START_NS, L2Feed, trade
from tests.support.micro_batches import Killed, MicroBatches, batch

TRADE_TICK = 0x1004


def test_messages_in_micro_batches_are_those_of_a_batch(tmp, own_messages):
    @tw.message(0x2101)
    class FollowedFill:
        order: tw.u64
        price: tw.i64

    with tw.open_publisher(tmp / "md", segment_bytes=8192) as writer:
        query = MicroBatches(
            tmp / "md", view="messages", type="FollowedFill", reader="q", max_rows=30
        )
        for n in range(100):
            writer.append_message(FollowedFill(n, -n))
            writer.append(7, b"another")
            if n % 37 == 36:
                query.run()
        query.run()
    assert query.rows == batch(tmp / "md", view="messages", type="FollowedFill")
    assert query.column("order") == list(range(100))


def test_trades_in_micro_batches_are_those_of_a_batch(tmp):
    Instruments([BTC]).save(tmp)
    with tw.open_publisher(tmp / "md", segment_bytes=8192) as writer:
        query = MicroBatches(tmp / "md", view="trades", reader="q", max_rows=30)
        for n in range(100):
            time = START_NS + n
            writer.append(TRADE_TICK, trade(BTC, time, 10_000 + n, 1 + n % 9, n), timestamp_ns=time)
            if n % 37 == 36:
                query.run()
        query.run()
    assert query.rows == batch(tmp / "md", view="trades")
    assert query.column("price") == [10_000 + n for n in range(100)]


def with_gaps(tmp, holes=(5, 17, 30)):
    """A log of sequence numbers below 40, of which three are missing at each of `holes`."""
    runs, first = [], 0
    for hole in (*holes, 40):
        runs.append(crafted.numbered(first, hole - first))
        first = hole + 3
    return crafted.write(tmp, *runs)


def reported(query):
    found = zip(query.column("kind"), query.column("first"), query.column("seq"), strict=True)
    return sorted(found, key=str)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 12, 1000])
def test_gaps_are_returned_once_wherever_micro_batches_end(tmp, limit):
    queue = with_gaps(tmp)
    query = MicroBatches(queue, view="gaps", reader="q", state=tmp / "state", max_rows=limit).run()
    assert [row[:2] for row in reported(query)] == [("record", 17), ("record", 30), ("record", 5)]
    assert query.rows.equals(batch(queue, view="gaps"))


def test_gaps_that_the_ledger_reports_later_are_returned_later_and_once(tmp):
    queue = with_gaps(tmp)
    venue = Gap("venue", "okx", "BTC", "book", 11, 14, 3, 2000, "numbers skip", "untrusted")
    query = MicroBatches(queue, view="gaps", reader="q", state=tmp / "state", max_rows=12).run()
    assert len(query.column("kind")) == 3
    GapLedger(queue).add(venue)
    query.run()
    assert reported(query)[-1] == ("venue", 11, 3)
    GapLedger(queue).add(replace(venue, action="resynced"))
    GapLedger(queue).add(Gap("record", "", "", "", 5, 7, 8, 1, "lost in a crash", "resynced"))
    query.run()
    assert len(query.column("kind")) == 4  # both were reported before
    GapLedger(queue).add(replace(venue, first=20, last=21))
    query.run()
    assert reported(query)[-1] == ("venue", 20, 3)


def test_for_gaps_that_the_ledger_reports_first_its_row_is_returned(tmp):
    queue = with_gaps(tmp)
    GapLedger(queue).add(Gap("record", "", "", "", 17, 19, 20, 1, "lost in a crash", "resynced"))
    query = MicroBatches(queue, view="gaps", reader="q", state=tmp / "state", max_rows=4).run()
    assert sorted(query.column("first")) == [5, 17, 30]
    assert "lost in a crash" in query.column("cause")


def test_after_kills_at_any_point_gaps_are_returned_once(tmp):
    rng = random.Random(3)
    queue = with_gaps(tmp)
    query = MicroBatches(queue, view="gaps", reader="q", state=tmp / "state", max_rows=3)
    killed = 0
    for round_ in range(60):
        GapLedger(queue).add(Gap("venue", "okx", "BTC", "book", round_, round_, 3, 1, "c", "a"))
        try:
            query.run(lambda point, number: rng.random() < 0.2)
        except Killed:
            killed += 1
    assert killed > 10
    query.run()
    firsts = [row[:2] for row in reported(query)]
    assert len(set(firsts)) == len(firsts) == 63


# ---- gaps of the venue's sequence numbers that are in no ledger ----------------------------------


def write_lossy(queue, seed, count=400):
    """Write books that lose diffs, with early and late snapshots, and events that are invalid."""
    rng = random.Random(seed)
    feeds = [L2Feed(one, seed=rng.random()) for one in (BTC, ETH)]
    Instruments([BTC, ETH]).save(queue.parent)
    late = None
    with tw.open_publisher(queue, segment_bytes=1 << 16) as writer:
        for n in range(count):
            time = START_NS + n * 1000
            feed = rng.choice(feeds)
            chance = rng.random()
            if chance < 0.05:
                payload = feed.snapshot(time)
            elif chance < 0.08 and late is not None:
                payload, late = late.snapshot(time), None
            elif chance < 0.10:
                payload = bytes(feed.diff(time))[:-1]  # an invalid message
            else:
                feed.update += rng.randrange(1, 4) if chance > 0.94 else 0  # lost diffs
                payload = feed.diff(time)
            if rng.random() < 0.1:
                late = copy.deepcopy(feed)
            writer.append(0x1000, payload, timestamp_ns=time)


def rows_of(table):
    return sorted(map(str, table.to_pylist()))


@pytest.mark.parametrize("seed", range(4))
def test_gaps_of_the_venue_are_those_of_a_batch_wherever_micro_batches_end(tmp, seed):
    rng = random.Random(seed)
    queue = tmp / "md"
    write_lossy(queue, seed)
    asked = {} if seed % 2 else {"seq_from": 90, "seq_to": 350}
    expected = batch(queue, view="gaps", **asked)
    kinds = expected.column("kind").to_pylist()
    assert min(kinds.count("venue"), kinds.count("parse")) > 2
    query = MicroBatches(queue, view="gaps", reader="q", state=tmp / "state", **asked)
    while not query.offsets or query.offsets[-1]["logs"]["md"] < asked.get("seq_to", 400):
        query.options["max_rows"] = str(rng.choice([1, 2, 7, 60]))
        # The driver may be killed, and the states lost.
        with contextlib.suppress(Killed):
            query.run(lambda point, number: rng.random() < 0.1)
        if rng.random() < 0.3:
            shutil.rmtree(tmp / "state", ignore_errors=True)
    query.run()
    assert rows_of(query.rows) == rows_of(expected)


def test_a_gap_of_the_venue_that_the_ledger_reports_later_is_returned_once(tmp):
    queue = tmp / "md"
    write_lossy(queue, 1)
    expected = rows_of(batch(queue, view="gaps"))
    query = MicroBatches(queue, view="gaps", reader="q", state=tmp / "state", max_rows=50).run()
    Snapshotter(queue).run(follow=False)
    assert GapLedger(queue).read()
    query.run()
    assert rows_of(query.rows) == expected
    # If the ledger reports a gap first, its row is returned.
    other = MicroBatches(queue, view="gaps", reader="r", state=tmp / "state", max_rows=50).run()
    assert rows_of(other.rows) == rows_of(batch(queue, view="gaps"))


def test_each_micro_batch_of_gaps_replays_only_its_own_records(tmp, monkeypatch):
    write_lossy(tmp / "md", 1)
    counts = []
    save = RowStream.save
    monkeypatch.setattr(RowStream, "save", lambda self: counts.append(self.records) or save(self))
    MicroBatches(tmp / "md", view="gaps", reader="q", state=tmp / "state", max_rows=50).run()
    assert counts == [50] * 8


def test_gaps_need_a_directory_for_the_state_of_books(tmp):
    write_lossy(tmp / "md", 1, 5)
    with pytest.raises(InvalidOption, match=r'option\("state", DIR\)'):
        MicroBatches(tmp / "md", view="gaps", reader="q").run()
