"""Streaming messages, trades and gaps: the rows of a batch, in micro-batches."""

import random
from dataclasses import replace

import pytest

import tapewire as tw
from tapewire.book.gaps import Gap, GapLedger
from tests.support import crafted
from tests.support.book_tapes import BTC, START_NS, trade
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
    from tapewire.protocol.instruments import Instruments

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
    query = MicroBatches(queue, view="gaps", reader="q", max_rows=limit).run()
    assert [row[:2] for row in told(query)] == [("record", 17), ("record", 30), ("record", 5)]
    assert query.rows.equals(batch(queue, view="gaps"))


def test_gaps_that_the_ledger_tells_late_come_late_and_once(tmp):
    queue = holed(tmp)
    venue = Gap("venue", "okx", "BTC", "book", 11, 14, 3, 2000, "numbers skip", "untrusted")
    query = MicroBatches(queue, view="gaps", reader="q", max_rows=12).run()
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
    query = MicroBatches(queue, view="gaps", reader="q", max_rows=4).run()
    assert sorted(query.column("first")) == [5, 17, 30]
    assert "lost in a crash" in query.column("cause")


def test_killed_anywhere_gaps_are_told_once(tmp):
    rng = random.Random(3)
    queue = holed(tmp)
    query = MicroBatches(queue, view="gaps", reader="q", max_rows=3)
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
