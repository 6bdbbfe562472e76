"""Streaming queries killed at the worst moments: nothing is lost or duplicated."""

import contextlib
import os
import signal

import pytest

import tapewire as tw
from tapewire.queue import status
from tests.crash.spark_query import Query

pytestmark = pytest.mark.timeout(600)

# Segments that no reader holds are deleted at once.
IMPATIENT = tw.Retention(reader_ttl=0.0, max_reader_lag_bytes=0)


def append(writer, count):
    for _ in range(count):
        writer.append(1, b"%d" % writer.next_seq + bytes(100))


def expected(count):
    return [(seq, b"%d" % seq + bytes(100)) for seq in range(count)]


def kill(tmp, rounds):
    """Each round: the driver in the middle of a task, then between a batch and its checkpoint.

    In the last run, which completes, as many workers in the middle of a task.
    """
    with (
        tw.open_publisher(tmp / "md", segment_bytes=65536, retention=IMPATIENT) as writer,
        Query(tmp, tmp / "md", runs=2 * rounds + 1, reader="q", max_rows=400) as query,
    ):
        append(writer, 1000)
        batch = 1  # the first batch has completed when it is killed
        for _ in range(rounds):
            inside = 400 * batch + 100
            query.start(pause_at=[inside])
            query.await_task(inside)
            killed(query, writer, batch)
            query.start(hold_at=["written", batch])
            query.await_step("written", batch)
            killed(query, writer, batch)
            batch += 1
        append(writer, 1000)
        # Each of these belongs to a different batch.
        places = [400 * (batch + n) + 100 for n in range(rounds)]
        append(writer, max(0, places[-1] + 400 - writer.next_seq))
        query.start(pause_at=places)
        for number in places:
            os.kill(query.await_task(number), signal.SIGKILL)
        query.await_end()
        assert query.rows(["seq", "payload"]) == expected(writer.next_seq)
        assert status(tmp / "md").first_available_seq > 0  # retention was at work all the time


def killed(query, writer, batch):
    """Kill the driver in this batch, while the queue grows."""
    append(writer, 300)
    query.kill()
    (reader,) = status(writer.path).readers
    assert reader.pinned
    assert reader.next_seq <= 400 * batch


def test_drivers_and_workers_killed_twice_each_way_lose_and_repeat_nothing(tmp):
    kill(tmp, rounds=2)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_drivers_and_workers_killed_ten_times_each_way_lose_and_repeat_nothing(tmp):
    kill(tmp, rounds=10)


@pytest.mark.long
def test_a_driver_killed_while_books_are_followed_gives_the_rows_of_one_pass(tmp):
    from tapewire import bus
    from tapewire.protocol.instruments import Instruments
    from tests.support.feature_tapes import TRADE_TICK, TapeWriter, instrument, random_tape
    from tests.support.micro_batches import batch

    one, root = instrument(), tmp / "bus"
    root.mkdir()
    Instruments([one]).save(root)
    encode = TapeWriter(tmp / "x", one).payload
    layout = bus.Layout(root)
    asked = {"view": "features", "features": "mid,ofi,vwap_5s"}
    names = ("timestamp_ns", "mid", "ofi", "vwap_5s")
    tape = random_tape(21, 2400)
    options = {"reader": "q", "state": tmp / "state", "max_rows": 300, **asked}
    with Query(tmp, root, runs=7, **options) as query:
        with contextlib.ExitStack() as stack:
            writers = {
                name: stack.enter_context(
                    tw.open_publisher(
                        layout.streams.clean(one.venue, one.symbol, name), segment_bytes=1 << 16
                    )
                )
                for name in ("book", "trades")
            }
            for round_ in range(6):
                for event in tape[400 * round_ : 400 * round_ + 400]:
                    type_id, payload = encode(event)
                    name = "trades" if type_id == TRADE_TICK else "book"
                    writers[name].append(type_id, payload, timestamp_ns=event.time)
                step = ("begun", "written")[round_ % 2]
                query.start(hold_at=[step, round_])
                query.await_step(step, round_)
                query.kill()
        query.start().await_end()
    expected = batch(root, **asked)
    rows = sorted(zip(*(expected.column(name).to_pylist() for name in names), strict=True), key=str)
    assert query.rows(names, key=str) == rows
