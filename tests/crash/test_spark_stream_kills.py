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
