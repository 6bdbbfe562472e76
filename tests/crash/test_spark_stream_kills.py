"""Streaming queries killed at the worst moments: nothing is lost, nothing comes twice."""

import contextlib
import os
import signal

import pytest

import tapewire as tw
from tapewire.queue import status
from tests.crash.spark_query import Query

pytestmark = pytest.mark.timeout(600)

# Unless a reader holds it, all that has been read by nobody goes at once.
IMPATIENT = tw.Retention(reader_ttl=0.0, max_reader_lag_bytes=0)


def append(writer, count):
    for _ in range(count):
        writer.append(1, b"%d" % writer.next_seq + bytes(100))


def expected(count):
    return [(seq, b"%d" % seq + bytes(100)) for seq in range(count)]


def kill_drivers(tmp, rounds):
    """Each round: killed in the middle of a batch, then between a batch and its checkpoint."""
    with (
        tw.open_publisher(tmp / "md", segment_bytes=65536, retention=IMPATIENT) as writer,
        Query(tmp, tmp / "md", reader="q", max_rows=400) as query,
    ):
        append(writer, 1000)
        batch = 1  # the first one has gone through when it is killed
        for _ in range(rounds):
            for step in ("begun", "written"):
                query.start(hold_at=[step, batch] if step == "written" else None)
                query.await_step(step, batch)
                append(writer, 300)
                query.kill()
                (reader,) = status(tmp / "md").readers
                assert reader.pinned
                assert reader.next_seq <= 400 * batch
            batch += 1
        append(writer, 1000)
        query.start().await_end()
        assert query.rows(["seq", "payload"]) == expected(writer.next_seq)
        assert status(tmp / "md").first_available_seq > 0  # retention was at work all the time


def test_a_driver_killed_in_a_batch_and_before_its_checkpoint_loses_and_repeats_nothing(tmp):
    kill_drivers(tmp, rounds=2)


@pytest.mark.long
def test_a_driver_killed_ten_times_each_way_loses_and_repeats_nothing(tmp):
    kill_drivers(tmp, rounds=10)


def workers(session):
    """Processes of a query that run tasks: children of the daemons that Spark forks them from."""
    found = []
    parents = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{entry}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            with open(f"/proc/{entry}/cmdline") as file:
                parents[int(entry)] = (int(fields[1]), int(fields[3]), file.read())
    for pid, (parent, sid, command) in parents.items():
        above = parents.get(parent, (0, 0, ""))
        if sid == session and "pyspark.daemon\0pyspark.worker" in command and command == above[2]:
            found.append(pid)
    return found


def kill_workers(tmp, kills, eventually):
    with tw.open_publisher(tmp / "md", segment_bytes=1 << 20) as writer:
        append(writer, 2000 * (kills + 2))
        total = writer.next_seq
    with Query(tmp, tmp / "md", reader="q", max_rows=2000, partitions=2) as query:
        # A task that fails is run again: so many times in all.
        query.start(master="local[2,8]")
        killed = 0
        for batch in range(kills):
            query.await_step("begun", batch)
            for pid in eventually(lambda: workers(query.pid), timeout=60):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        query.await_end()
        assert killed >= kills
        assert query.rows(["seq", "payload"]) == expected(total)


def test_workers_killed_while_they_read_lose_and_repeat_nothing(tmp, eventually):
    kill_workers(tmp, 2, eventually)


@pytest.mark.long
def test_workers_killed_ten_times_lose_and_repeat_nothing(tmp, eventually):
    kill_workers(tmp, 10, eventually)


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
    with contextlib.ExitStack() as stack:
        writers = {
            name: stack.enter_context(
                tw.open_publisher(
                    layout.streams.clean(one.venue, one.symbol, name), segment_bytes=1 << 16
                )
            )
            for name in ("book", "trades")
        }
        options = {"reader": "q", "state": tmp / "state", "max_rows": 300, **asked}
        query = stack.enter_context(Query(tmp, root, **options))
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
