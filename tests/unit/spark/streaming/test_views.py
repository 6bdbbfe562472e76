"""Streaming messages, trades and gaps: the rows of a batch, in micro-batches."""

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


def holed(tmp, holes=(5, 17, 30)):
    """A log of 40 records of which some numbers are missing, before each of the holes three."""
    runs, first = [], 0
    for hole in (*holes, 40):
        runs.append(crafted.numbered(first, hole - first))
        first = hole + 3
    return crafted.write(tmp, *runs)


def told(query):
    found = zip(query.column("kind"), query.column("first"), query.column("seq"), strict=True)
    return sorted(found, key=str)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 12, 1000])
def test_gaps_are_found_once_wherever_micro_batches_end(tmp, limit):
    queue = holed(tmp)
    query = MicroBatches(queue, view="gaps", reader="q", state=tmp / "state", max_rows=limit).run()
    assert [row[:2] for row in told(query)] == [("record", 17), ("record", 30), ("record", 5)]
    assert query.rows.equals(batch(queue, view="gaps"))


def test_gaps_that_the_ledger_tells_late_come_late_and_once(tmp):
    queue = holed(tmp)
    venue = Gap("venue", "okx", "BTC", "book", 11, 14, 3, 2000, "numbers skip", "untrusted")
    query = MicroBatches(queue, view="gaps", reader="q", state=tmp / "state", max_rows=12).run()
    assert len(query.column("kind")) == 3
    GapLedger(queue).add(venue)
    query.run()
    assert told(query)[-1] == ("venue", 11, 3)
    GapLedger(queue).add(replace(venue, action="resynced"))
    GapLedger(queue).add(Gap("record", "", "", "", 5, 7, 8, 1, "lost in a crash", "resynced"))
    query.run()
    assert len(query.column("kind")) == 4  # both were told before
    GapLedger(queue).add(replace(venue, first=20, last=21))
    query.run()
    assert told(query)[-1] == ("venue", 20, 3)


def test_gaps_of_records_that_the_ledger_tells_first_are_its_own(tmp):
    queue = holed(tmp)
    GapLedger(queue).add(Gap("record", "", "", "", 17, 19, 20, 1, "lost in a crash", "resynced"))
    query = MicroBatches(queue, view="gaps", reader="q", state=tmp / "state", max_rows=4).run()
    assert sorted(query.column("first")) == [5, 17, 30]
    assert "lost in a crash" in query.column("cause")


def test_killed_anywhere_gaps_are_told_once(tmp):
    rng = random.Random(3)
    queue = holed(tmp)
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
    firsts = [row[:2] for row in told(query)]
    assert len(set(firsts)) == len(firsts) == 63


# ---- gaps of the venue's numbers, which no ledger tells ------------------------------------------


def write_lossy(queue, seed, count=400):
    """Books that lose diffs, get snapshots early and late, and events that cannot be read."""
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
                payload = bytes(feed.diff(time))[:-1]  # not a message after all
            else:
                feed.update += rng.randrange(1, 4) if chance > 0.94 else 0  # lost on the way
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
        # Whatever becomes of the states, and of the driver.
        with contextlib.suppress(Killed):
            query.run(lambda point, number: rng.random() < 0.1)
        if rng.random() < 0.3:
            shutil.rmtree(tmp / "state", ignore_errors=True)
    query.run()
    assert rows_of(query.rows) == rows_of(expected)


def test_a_gap_of_the_venue_that_the_ledger_tells_later_is_told_once(tmp):
    queue = tmp / "md"
    write_lossy(queue, 1)
    expected = rows_of(batch(queue, view="gaps"))
    query = MicroBatches(queue, view="gaps", reader="q", state=tmp / "state", max_rows=50).run()
    Snapshotter(queue).run(follow=False)
    assert GapLedger(queue).read()
    query.run()
    assert rows_of(query.rows) == expected
    # And where it has told first, it is the ledger's.
    other = MicroBatches(queue, view="gaps", reader="r", state=tmp / "state", max_rows=50).run()
    assert rows_of(other.rows) == rows_of(batch(queue, view="gaps"))


def test_each_micro_batch_of_gaps_replays_its_own_records(tmp, monkeypatch):
    write_lossy(tmp / "md", 1)
    counts = []
    save = RowStream.save
    monkeypatch.setattr(RowStream, "save", lambda self: counts.append(self.records) or save(self))
    MicroBatches(tmp / "md", view="gaps", reader="q", state=tmp / "state", max_rows=50).run()
    assert counts == [50] * 8


def test_gaps_need_a_folder_for_the_state_of_books(tmp):
    write_lossy(tmp / "md", 1, 5)
    with pytest.raises(InvalidOption, match=r'option\("state", DIR\)'):
        MicroBatches(tmp / "md", view="gaps", reader="q").run()
