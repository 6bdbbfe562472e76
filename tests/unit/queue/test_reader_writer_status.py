"""writer_status and detect_disconnect, and heartbeats across jumps of the wall clock."""

import os

import pytest

import tapewire as tw
from tests.support import queue_files
from tests.support.processes import WRITER, Child
from tests.support.queue_format import segment_path

HOUR_NS = 3_600 * 10**9

# A writer, or a reader, whose wall clock jumps on demand.
JUMPER = """
import sys
import tapewire as tw
from tapewire import _native

role, path, options = sys.argv[1], sys.argv[2], eval(sys.argv[3], {"tw": tw})
if role == "writer":
    handle = tw.open_publisher(path, **options)
else:
    handle = tw.open_subscriber(path, "r", **options)
with handle:
    print("ready", flush=True)
    for line in sys.stdin:
        if line.startswith("jump"):
            _native.shift_wall_clock(int(line.split()[1]))
        else:
            for _ in range(int(line)):
                handle.append(1, bytes(960))
        print("done", flush=True)
"""


@pytest.fixture
def child(queue):
    with Child(WRITER, queue, 8192) as child:
        child.expect("ready")
        yield child


@pytest.fixture
def reader(child, queue):
    with tw.open_log(queue) as reader:
        yield reader


def test_a_living_writer_is_alive(child, reader):
    status = reader.writer_status()
    assert status.alive
    assert (status.pid, status.epoch) == (child.pid, 1)
    assert status.heartbeat_age >= 0
    assert reader.detect_disconnect() is None


def test_a_writer_in_the_same_process_is_alive_too(publisher, subscriber):
    publisher()
    reader = subscriber()
    assert reader.writer_status().alive
    assert reader.writer_status().pid == os.getpid()
    assert reader.detect_disconnect() is None


def test_a_closed_writer_has_lost_its_lock(child, reader):
    child.send("close")
    child.expect("closed")
    assert not reader.writer_status().alive
    assert reader.detect_disconnect() is tw.DisconnectReason.LOCK_LOST


def test_a_killed_writer_has_lost_its_lock(child, reader):
    child.kill()
    status = reader.writer_status()
    assert not status.alive
    assert status.pid == child.pid
    assert reader.detect_disconnect() is tw.DisconnectReason.LOCK_LOST


def test_the_heartbeat_of_a_stopped_writer_becomes_stale_and_recovers(child, reader, eventually):
    child.stop()
    eventually(lambda: reader.detect_disconnect(ttl=0.3) is tw.DisconnectReason.HEARTBEAT_STALE)
    status = reader.writer_status(ttl=0.3)
    assert not status.alive
    assert status.heartbeat_age > 0.3
    assert reader.detect_disconnect(ttl=3600) is None
    child.resume()
    eventually(lambda: reader.detect_disconnect(ttl=0.3) is None)


def test_a_replaced_writer_is_alive_with_the_next_epoch(child, reader, queue):
    child.kill()
    with tw.open_publisher(queue):
        status = reader.writer_status()
        assert (status.alive, status.pid, status.epoch) == (True, os.getpid(), 2)
        assert reader.detect_disconnect() is None


def test_a_removed_segment_is_missing(child, reader, queue):
    segment_path(queue, 0).unlink()
    assert reader.detect_disconnect() is tw.DisconnectReason.SEGMENT_MISSING


def test_a_closed_reader_has_no_status(publisher, subscriber):
    publisher()
    reader = subscriber()
    reader.close()
    with pytest.raises(tw.ClosedHandle):
        reader.writer_status()
    with pytest.raises(tw.ClosedHandle):
        reader.detect_disconnect()


def test_reading_the_status_does_not_keep_a_writer_from_opening(publisher, subscriber):
    publisher().close()
    reader = subscriber()
    for _ in range(50):
        assert reader.detect_disconnect() is tw.DisconnectReason.LOCK_LOST
        publisher().close()


@pytest.mark.parametrize("jump", [HOUR_NS, -HOUR_NS], ids=["forwards", "backwards"])
def test_a_writer_whose_wall_clock_jumps_is_not_stale(queue, eventually, jump):
    with Child(JUMPER, "writer", queue, "{'segment_bytes': 8192}") as child:
        child.expect("ready")
        with tw.open_log(queue) as reader:
            assert reader.detect_disconnect() is None
            before = queue_files.control(queue)["writer_heartbeat_ns"]
            child.send(f"jump {jump}")
            child.expect("done")
            eventually(
                lambda: (
                    abs(queue_files.control(queue)["writer_heartbeat_ns"] - before) > HOUR_NS // 2
                )
            )
            for _ in range(20):
                status = reader.writer_status()
                assert status.alive
                assert status.heartbeat_age < 1
                assert reader.detect_disconnect() is None


@pytest.mark.parametrize("jump", [HOUR_NS, -HOUR_NS], ids=["forwards", "backwards"])
def test_a_reader_whose_wall_clock_jumps_is_not_retired(queue, eventually, jump):
    options = {"segment_bytes": 8192, "retention": tw.Retention(reader_ttl=5.0)}
    with (
        tw.open_publisher(queue, **options) as writer,
        Child(JUMPER, "reader", queue, "{}") as child,
    ):
        child.expect("ready")
        before = queue_files.reader_slot(queue, "r")["last_heartbeat_ns"]
        child.send(f"jump {jump}")
        child.expect("done")
        eventually(
            lambda: (
                abs(queue_files.reader_slot(queue, "r")["last_heartbeat_ns"] - before)
                > HOUR_NS // 2
            )
        )
        for _ in range(50):
            writer.append(1, bytes(960))
        eventually(lambda: writer.metrics()["seals"] >= 7)
        metrics = writer.metrics()
        assert (metrics["readers_ignored"], metrics["segments_retired"]) == (0, 0)


@pytest.mark.parametrize("jump", [HOUR_NS, -HOUR_NS], ids=["forwards", "backwards"])
def test_a_writer_whose_wall_clock_jumps_retires_no_living_reader(queue, subscriber, jump):
    options = "{'segment_bytes': 8192, 'retention': tw.Retention(reader_ttl=5.0)}"
    with Child(JUMPER, "writer", queue, options) as child:
        child.expect("ready")
        reader = subscriber()
        child.send("20")
        child.expect("done")
        child.send(f"jump {jump}")
        child.expect("done")
        child.send("50")
        child.expect("done")
        # Every record is still there for the reader that has committed nothing.
        assert [record.seq for record in reader] == list(range(70))
        assert segment_path(queue, 0).exists()
