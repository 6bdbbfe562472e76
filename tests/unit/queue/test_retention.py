"""Retention: off by default; deletes what every reader that counts has committed past."""

import logging

import pytest

import tapewire as tw
from tests.support import queue_files
from tests.support.entries import seqs
from tests.support.processes import Child
from tests.support.queue_format import index_path, reader_meta, reader_slot, segment_ids
from tests.support.records import fill_segments, stored

PATIENT = tw.Retention(reader_ttl=3600.0)
STRICT = tw.Retention(reader_ttl=0.05)


def commit_all(reader):
    last = seqs(reader)
    reader.commit()
    return last


def passes(writer, eventually, count=2):
    """Wait until the retention thread has checked the queue `count` more times."""
    for _ in range(count):
        fill_segments(writer, 1)
        seals = writer.metrics()["rolls"]
        eventually(lambda seals=seals: writer.metrics()["seals"] >= seals)


def leave_reader(queue, name="gone", pinned=False):
    """A reader at the very start that no longer runs."""
    tw.open_subscriber(queue, name, pinned=pinned).close()


def test_off_by_default_nothing_is_deleted_for_an_expired_reader(publisher, queue, eventually):
    writer = publisher()
    (queue / "readers").mkdir(mode=0o700)
    old = reader_meta(reader_slot(0, 64, 1, heartbeat_ns=1))
    (queue / "readers" / "old.meta").write_bytes(old)
    with tw.open_subscriber(queue, "live") as reader:
        fill_segments(writer, 10)
        commit_all(reader)
        passes(writer, eventually)
        assert segment_ids(queue)[0] == 0
        assert writer.metrics()["segments_retired"] == 0
    assert (queue / "readers" / "old.meta").read_bytes() == old
    assert len(stored(queue)) == writer.next_seq


def test_committed_segments_are_deleted_and_the_rest_stays(
    publisher, subscriber, queue, eventually
):
    writer = publisher(retention=PATIENT)
    reader = subscriber()
    fill_segments(writer, 5)
    count = writer.next_seq
    reader.read_batch(count - 1)
    reader.commit()
    kept = reader.committed.segment
    eventually(lambda: segment_ids(queue)[0] == kept)
    assert writer.metrics()["segments_retired"] == kept
    assert seqs(reader) == [count - 1]


def test_reading_without_committing_retires_nothing(publisher, subscriber, queue, eventually):
    writer = publisher(retention=PATIENT)
    reader = subscriber()
    fill_segments(writer, 5)
    list(reader)
    passes(writer, eventually)
    assert segment_ids(queue)[0] == 0


def test_the_segment_with_the_last_record_is_never_deleted(
    publisher, subscriber, queue, eventually
):
    writer = publisher(retention=PATIENT)
    reader = subscriber()
    fill_segments(writer, 3)
    commit_all(reader)
    eventually(lambda: segment_ids(queue)[0] == 3)
    writer.flush_sync()
    assert stored(queue)[-1].seq == writer.next_seq - 1


def test_a_queue_that_was_never_read_loses_nothing(publisher, queue, eventually):
    writer = publisher(retention=STRICT)
    fill_segments(writer, 5)
    passes(writer, eventually)
    assert segment_ids(queue)[0] == 0
    with tw.open_log(queue) as reader:  # an anonymous reader does not count
        list(reader)
        passes(writer, eventually)
    assert segment_ids(queue)[0] == 0
    assert len(stored(queue)) == writer.next_seq


def test_a_forgotten_reader_leaves_a_queue_without_readers(publisher, queue, eventually):
    writer = publisher(retention=STRICT)
    with tw.open_subscriber(queue, "r") as reader:
        reader.close(forget=True)
    fill_segments(writer, 3)
    passes(writer, eventually)
    assert segment_ids(queue)[0] == 0


def test_the_index_is_deleted_with_its_segment(publisher, subscriber, queue, eventually):
    writer = publisher(retention=PATIENT)
    reader = subscriber()
    fill_segments(writer, 5)
    commit_all(reader)
    eventually(lambda: segment_ids(queue)[0] == 5)
    writer.close()  # indexes whatever is not indexed yet
    assert [path.name for path in queue.glob("*.idx")] == [index_path(queue, 5).name]


def test_the_slowest_reader_that_counts_decides(publisher, subscriber, queue, eventually):
    writer = publisher(retention=PATIENT)
    fast, slow = subscriber("fast"), subscriber("slow")
    fill_segments(writer, 5)
    commit_all(fast)
    slow.read_batch(10)
    slow.commit()
    eventually(lambda: segment_ids(queue)[0] == slow.committed.segment)
    passes(writer, eventually)
    assert segment_ids(queue)[0] == slow.committed.segment == 1


def test_a_reader_that_was_closed_counts_until_its_ttl(publisher, subscriber, queue, eventually):
    writer = publisher(retention=PATIENT)
    leave_reader(queue)
    reader = subscriber()
    fill_segments(writer, 3)
    commit_all(reader)
    passes(writer, eventually)
    assert segment_ids(queue)[0] == 0
    assert writer.metrics()["readers_ignored"] == 0


def test_a_stale_reader_no_longer_holds_segments_back(publisher, queue, eventually, caplog):
    writer = publisher(retention=tw.Retention(reader_ttl=2.5))
    leave_reader(queue)
    with tw.open_subscriber(queue, "live") as reader, caplog.at_level(logging.WARNING):
        fill_segments(writer, 3)
        commit_all(reader)
        eventually(lambda: segment_ids(queue)[0] == 3)
        # The pass that deletes a segment counts and logs after that.
        eventually(lambda: writer.metrics()["readers_ignored"] == 1)
        eventually(lambda: "'gone'" in caplog.text)
        assert "'live'" not in caplog.text
    assert (queue / "readers" / "gone.meta").exists()


def test_a_stale_reader_counts_again_when_it_returns(publisher, queue, eventually):
    writer = publisher(retention=STRICT)
    with tw.open_subscriber(queue, "r") as reader:
        fill_segments(writer, 2)
        commit_all(reader)
    eventually(lambda: writer.metrics()["readers_ignored"] == 1)
    writer.close()
    writer = publisher(retention=PATIENT)
    with tw.open_subscriber(queue, "r") as reader:
        fill_segments(writer, 2)
        passes(writer, eventually)
        assert writer.metrics()["readers_ignored"] == 0
        assert seqs(reader)[-1] == writer.next_seq - 1


def test_when_every_reader_is_stale_only_the_segment_with_the_last_record_stays(
    publisher, queue, eventually
):
    writer = publisher(retention=STRICT)
    leave_reader(queue)
    fill_segments(writer, 4)
    eventually(lambda: segment_ids(queue)[0] == 4)
    assert stored(queue)[-1].seq == writer.next_seq - 1


def test_a_lagging_reader_no_longer_holds_segments_back(publisher, queue, eventually, caplog):
    writer = publisher(retention=tw.Retention(3600.0, max_reader_lag_bytes=5 * 8192))
    with (
        tw.open_subscriber(queue, "slow") as slow,
        tw.open_subscriber(queue, "live") as live,
        caplog.at_level(logging.WARNING),
    ):
        fill_segments(writer, 2)
        commit_all(live)
        passes(writer, eventually, 1)
        assert segment_ids(queue)[0] == 0  # within the limit
        commit_all(live)
        fill_segments(writer, 3)
        commit_all(live)
        eventually(lambda: segment_ids(queue)[0] > 0)
        eventually(lambda: writer.metrics()["readers_ignored"] == 1)  # counted when a pass ends
        assert "'slow'" in caplog.text
        assert "'live'" not in caplog.text
        assert slow.next().seq == 0  # of the segment that it has mapped


@pytest.mark.parametrize(
    "rules", [STRICT, tw.Retention(3600.0, max_reader_lag_bytes=0)], ids=["stale", "lagging"]
)
def test_a_pinned_reader_counts_stale_or_lagging(publisher, subscriber, queue, eventually, rules):
    writer = publisher(retention=rules)
    leave_reader(queue, "pinned", pinned=True)
    leave_reader(queue, "plain")
    fill_segments(writer, 3)
    commit_all(subscriber("live"))
    eventually(lambda: writer.metrics()["readers_ignored"] > 0)
    passes(writer, eventually)
    assert segment_ids(queue)[0] == 0
    with tw.open_subscriber(queue, "pinned") as reader:
        assert reader.next().seq == 0


def test_a_reader_whose_file_is_damaged_keeps_everything(publisher, subscriber, queue, eventually):
    writer = publisher(retention=PATIENT)
    leave_reader(queue)
    path = queue / "readers" / "gone.meta"
    path.write_bytes(b"\xa5" * 80)
    reader = subscriber()
    fill_segments(writer, 3)
    commit_all(reader)
    passes(writer, eventually)
    assert segment_ids(queue)[0] == 0


def test_a_capacity_limit_turns_retention_on(publisher, subscriber, queue, eventually):
    writer = publisher(max_segments=3)
    reader = subscriber()
    for _ in range(5):
        fill_segments(writer, 1)
        commit_all(reader)
    assert writer.metrics()["segments_retired"] > 0
    assert writer.metrics()["segments"] <= 3


def test_a_killed_reader_no_longer_holds_segments_back(publisher, queue, eventually):
    program = """
import sys
import tapewire as tw
reader = tw.open_subscriber(sys.argv[1], "killed")
print("ready", flush=True)
sys.stdin.readline()
"""
    writer = publisher(retention=tw.Retention(reader_ttl=2.5))
    with Child(program, queue) as child:
        child.expect("ready")
        fill_segments(writer, 3)
        child.kill()
        eventually(lambda: segment_ids(queue)[0] == 3)
    assert writer.metrics()["readers_ignored"] == 1


def test_a_reader_whose_segment_was_retired_learns_where_to_resume(publisher, queue, eventually):
    writer = publisher(retention=tw.Retention(3600.0, max_reader_lag_bytes=2 * 8192))
    with tw.open_subscriber(queue, "slow") as slow, tw.open_subscriber(queue, "live") as live:
        fill_segments(writer, 1)
        slow.read_batch(3)
        slow.commit()
        committed = slow.committed
        for _ in range(4):
            commit_all(live)
            fill_segments(writer, 1)
        commit_all(live)
        eventually(lambda: segment_ids(queue)[0] == 5)
        # It can read the segment that it has mapped to its end.
        assert slow.read_batch(1000).seq.tolist() == [3, 4, 5, 6]
        with pytest.raises(tw.SegmentMissing) as caught:
            slow.next()
        assert caught.value.committed == tuple(committed)
        assert caught.value.first_available_seq == stored(queue)[0].seq
        assert caught.value.path.endswith("000000001.q")
        with pytest.raises(tw.SegmentMissing):
            slow.wait(10)
        assert slow.detect_disconnect() is tw.DisconnectReason.SEGMENT_MISSING
        assert slow.seek_start()
        assert slow.next().seq == caught.value.first_available_seq


def test_a_reader_that_resumes_in_a_retired_segment_learns_where_to_resume(
    publisher, queue, eventually
):
    writer = publisher(retention=STRICT)
    leave_reader(queue)
    fill_segments(writer, 4)
    eventually(lambda: segment_ids(queue)[0] == 4)
    with pytest.raises(tw.SegmentMissing) as caught:
        tw.open_subscriber(queue, "gone")
    assert caught.value.committed == (0, 64)
    assert caught.value.first_available_seq == stored(queue)[0].seq
    with tw.open_subscriber(queue, "gone", start="earliest") as reader:
        assert seqs(reader) == [e.seq for e in stored(queue)]


def test_a_payload_outlives_its_retired_segment(publisher, subscriber, queue, eventually):
    writer = publisher(retention=PATIENT)
    reader = subscriber()
    writer.append(1, b"precious")
    record = reader.next()
    payload = record.payload
    fill_segments(writer, 3)
    commit_all(reader)
    eventually(lambda: segment_ids(queue)[0] == 3)
    assert bytes(payload) == b"precious"
    assert bytes(record.payload) == b"precious"


def test_numbers_continue_after_everything_was_retired_and_reopened(
    publisher, subscriber, queue, eventually
):
    writer = publisher(retention=PATIENT)
    reader = subscriber()
    fill_segments(writer, 4)
    count = writer.next_seq
    commit_all(reader)
    eventually(lambda: segment_ids(queue)[0] == 4)
    writer.close()
    assert publisher().append(1, b"next") == count
    assert queue_files.control(queue)["current_segment"] == 4
    assert seqs(reader) == [count]
