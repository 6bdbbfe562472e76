"""Values that are derived from successive samples."""

import json
import os
import signal

import pytest

import tapewire as tw
from tapewire.monitor import Limits, Watch
from tests.support.processes import WRITER, Child
from tests.support.statuses import queue_status, reader_status


def test_the_first_sample_has_no_rates(bus):
    bus["md"] = queue_status(last_seq=1000)
    (queue,) = bus.watch().sample().queues
    assert (queue.records_per_second, queue.bytes_per_second) == (None, None)


def test_rates_are_growth_over_monotonic_time(bus):
    bus["md"] = queue_status(last_seq=1000, end_segment=1, end_offset=1_000_000)
    watch = bus.watch()
    watch.sample()
    bus.clock += 2.0
    # A roll in between: bytes continue from segment to segment.
    bus["md"] = queue_status(last_seq=1500, end_segment=2, end_offset=100)
    (queue,) = watch.sample().queues
    assert queue.records_per_second == 250.0
    assert queue.bytes_per_second == ((1 << 20) + 100 - 1_000_000) / 2.0


def test_a_sparse_log_is_counted_by_its_writer_because_seq_skips(bus):
    bus["md"] = queue_status(sparse=True, last_seq=10, metrics={"records": 5})
    watch = bus.watch()
    watch.sample()
    bus.clock += 1.0
    bus["md"] = queue_status(sparse=True, last_seq=10_000_000, metrics={"records": 8})
    assert watch.sample().queues[0].records_per_second == 3.0


def test_the_first_records_of_an_empty_log_count(bus):
    bus["md"] = queue_status(first_seq=1, last_seq=None, records=0)
    watch = bus.watch()
    watch.sample()
    bus.clock += 1.0
    bus["md"] = queue_status(first_seq=1, last_seq=5, records=5)
    assert watch.sample().queues[0].records_per_second == 5.0


def test_a_log_whose_end_cannot_be_read_has_no_rate(bus):
    bus["md"] = queue_status(last_seq=None, records=None)
    watch = bus.watch()
    watch.sample()
    bus.clock += 1.0
    bus["md"] = queue_status(last_seq=1_000_000)
    assert watch.sample().queues[0].records_per_second is None


def test_a_log_created_again_has_no_negative_rate(bus):
    bus["md"] = queue_status(last_seq=1000)
    watch = bus.watch()
    watch.sample()
    bus.clock += 1.0
    bus["md"] = queue_status(last_seq=3)
    assert watch.sample().queues[0].records_per_second is None
    bus.clock += 1.0
    bus["md"] = queue_status(last_seq=5)
    assert watch.sample().queues[0].records_per_second == 2.0


def test_queues_appear_and_disappear_with_their_history(bus):
    bus["a"] = queue_status()
    watch = bus.watch()
    watch.sample()
    bus["b"] = queue_status()
    assert [queue.name for queue in watch.sample().queues] == ["a", "b"]
    del bus["a"]
    assert [queue.name for queue in watch.sample().queues] == ["b"]
    assert list(watch.history()) == ["b"]


def test_the_age_of_a_heartbeat_is_independent_of_the_wall_clock(bus):
    bus["md"] = queue_status(heartbeat_ns=5, heartbeat_age=86_400.0)  # the wall clock jumped a day
    watch = bus.watch(limits=Limits(writer_ttl=2.0))
    assert watch.sample().queues[0].writer.state == "live"
    bus.clock += 1.5
    writer = watch.sample().queues[0].writer
    assert (writer.state, writer.heartbeat_age) == ("live", 1.5)
    bus.clock += 1.0
    writer = watch.sample().queues[0].writer
    assert (writer.state, writer.heartbeat_age) == ("stale", 2.5)
    bus["md"] = queue_status(heartbeat_ns=4)  # a jump back counts as a heartbeat, too
    writer = watch.sample().queues[0].writer
    assert (writer.state, writer.heartbeat_age) == ("live", 0.0)


def test_a_reader_becomes_stale_and_live_again(bus):
    bus["md"] = queue_status(readers=(reader_status("a", heartbeat_ns=1),))
    watch = bus.watch(limits=Limits(reader_ttl=5.0))
    watch.sample()
    bus.clock += 5.5
    assert watch.sample().queues[0].readers[0].state == "stale"
    bus["md"] = queue_status(readers=(reader_status("a", heartbeat_ns=2),))
    assert watch.sample().queues[0].readers[0].state == "live"


def test_readers_have_lag_and_the_rate_of_their_commits(bus):
    bus["md"] = queue_status(readers=(reader_status("a", next_seq=100),))
    watch = bus.watch()
    watch.sample()
    bus.clock += 4.0
    behind = reader_status("a", next_seq=140, lag_records=7, lag_bytes=700, lag_seconds=0.5)
    bus["md"] = queue_status(readers=(behind,))
    (reader,) = watch.sample().queues[0].readers
    assert reader.records_per_second == 10.0
    assert (reader.lag_records, reader.lag_bytes, reader.lag_seconds) == (7, 700, 0.5)


def test_history_keeps_the_latest_samples(bus):
    watch = bus.watch(history=3)
    for n in range(5):
        bus["md"] = queue_status(last_seq=n * n, readers=(reader_status("a", lag_bytes=n),))
        watch.sample()
        bus.clock += 1.0
    history = watch.history()["md"]
    assert history["uptime"] == [2.0, 3.0, 4.0]
    assert history["records_per_second"] == [3.0, 5.0, 7.0]
    assert history["readers"]["a"]["lag_bytes"] == [2, 3, 4] == watch.lag_history("md", "a")
    assert watch.lag_history("md", "absent") == []


def test_a_queue_that_cannot_be_read_does_not_hide_the_others(bus):
    bus["bad"] = tw.CorruptMetadata("magic must be …: magic=0", path="bad/control.meta")
    bus["good"] = queue_status(last_seq=7)
    bad, good = bus.watch().sample().queues
    assert "magic=0" in bad.error
    assert bad.writer is None
    assert (good.error, good.last_seq) == (None, 7)


def test_a_snapshot_survives_json(bus):
    bus["md"] = queue_status(readers=(reader_status("a"),), metrics={"records": 1})
    snapshot = bus.watch().sample()
    text = json.dumps(snapshot.to_dict(), allow_nan=False)
    queue = json.loads(text)["queues"][0]
    assert queue["readers"][0]["name"] == "a"
    assert queue["writer"]["state"] == "live"
    assert queue["metrics"] == {"records": 1}


def test_names_from_the_disk_are_made_printable_and_remain_different(bus):
    names = ["\x1b[2Jclear", "\\x1b[2Jclear", os.fsdecode(b"\xff"), "\u202eright to left"]
    for name in names:
        bus[name] = queue_status(readers=(reader_status(name),))
    queues = bus.watch().sample().queues
    assert all(queue.name.isprintable() for queue in queues)
    assert all(queue.readers[0].name.isprintable() for queue in queues)
    assert len({queue.name for queue in queues}) == len(names)
    json.dumps([queue.name for queue in queues], ensure_ascii=False).encode()  # no lone surrogate


def test_a_missing_root_is_an_error(tmp):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Watch(tmp / "nowhere")


def test_one_queue_may_be_watched_alone(tmp):
    with tw.open_publisher(tmp / "md", segment_bytes=8192):
        assert [queue.name for queue in Watch(tmp / "md").sample().queues] == ["md"]


@pytest.mark.usefixtures("lagging")
def test_a_real_queue_has_lag_and_disk_use(tmp):
    snapshot = Watch(tmp / "bus").sample()
    (queue,) = snapshot.queues
    (slow,) = queue.readers
    assert (queue.name, queue.last_seq, queue.writer.state) == ("md", 99, "live")
    assert (slow.name, slow.state, slow.lag_records, slow.next_seq) == ("slow", "live", 60, 40)
    assert slow.lag_seconds == 59.0
    assert queue.disk_bytes >= 3 * 8192
    assert snapshot.filesystems[0].total_bytes > 0


def test_killed_stopped_and_closed_writers_are_distinguished(tmp, eventually):
    def states():
        return {queue.name: queue.writer.state for queue in watch.sample().queues}

    with (
        Child(WRITER, tmp / "killed", 8192) as killed,
        Child(WRITER, tmp / "stopped", 8192) as stopped,
        Child(WRITER, tmp / "closed", 8192) as closed,
    ):
        for child in (killed, stopped, closed):
            child.expect("ready")
        watch = Watch(tmp, limits=Limits(writer_ttl=0.5))
        assert set(states().values()) == {"live"}
        killed.kill()
        os.kill(stopped.pid, signal.SIGSTOP)
        closed.send("close")
        closed.expect("closed")
        expected = {"killed": "dead", "stopped": "stale", "closed": "closed"}
        eventually(lambda: states() == expected)
        os.kill(stopped.pid, signal.SIGCONT)
        eventually(lambda: states()["stopped"] == "live")


def test_an_end_not_found_in_one_sample_causes_no_burst_of_bytes(bus):
    bus["md"] = queue_status(version=0, last_seq=None, records=None, problems=("no",))
    watch = bus.watch()
    watch.sample()
    bus.clock += 1.0
    bus["md"] = queue_status(last_seq=9, end_segment=1000, end_offset=64)
    assert watch.sample().queues[0].bytes_per_second is None


def test_a_queue_that_is_the_root_and_one_below_it_have_two_names(tmp):
    for path in (tmp / "md", tmp / "md" / "md"):
        tw.open_publisher(path, segment_bytes=65536).close()
    assert [queue.name for queue in Watch(tmp / "md").sample().queues] == [".", "md"]


def test_a_failed_sample_keeps_the_history(tmp):
    tw.open_publisher(tmp / "md", segment_bytes=65536).close()
    failures = [None, OSError("too many open files"), None]

    def find(root, on_error):
        if failure := failures.pop(0):
            raise failure
        return [str(tmp / "md")]

    watch = Watch(tmp, _find=find)
    watch.sample()
    with pytest.raises(OSError, match="too many"):
        watch.sample()
    watch.sample()
    assert len(watch.history()["md"]["uptime"]) == 2


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 0.0])
def test_a_limit_is_a_number_above_zero(value):
    with pytest.raises(tw.InvalidOption):
        Limits(lag_seconds=value)
