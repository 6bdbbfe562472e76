"""max_bytes and max_segments: full or blocked, and never partially written."""

import threading

import pytest

import tapewire as tw
from tests.support.entries import seqs
from tests.support.queue_format import segment_ids
from tests.support.records import stored, stored_payloads

# After 7 records of 1024 bytes in the 8128 bytes of a segment, an eighth does not fit.
KIB = bytes(960)
PER_SEGMENT = 7


def fill(writer):
    """Append until the queue is full; return how many were appended."""
    count = 0
    while True:
        try:
            writer.append(1, KIB)
        except tw.QueueFull:
            return count
        count += 1


@pytest.mark.parametrize(
    ("limit", "segments"),
    [
        ({"max_segments": 1}, 1),
        ({"max_segments": 3}, 3),
        ({"max_bytes": 8192}, 1),
        ({"max_bytes": 3 * 8192}, 3),
        ({"max_bytes": 4 * 8192 - 1}, 3),
        ({"max_bytes": 2 * 8192, "max_segments": 5}, 2),
        ({"max_bytes": 5 * 8192, "max_segments": 2}, 2),
    ],
    ids=str,
)
def test_a_queue_is_full_when_its_segments_are(publisher, queue, limit, segments):
    writer = publisher(**limit)
    assert fill(writer) == segments * PER_SEGMENT
    assert writer.metrics()["segments"] == segments
    assert len(stored(queue)) == segments * PER_SEGMENT


def test_the_prepared_segment_does_not_count(publisher, queue, eventually):
    writer = publisher(max_segments=2)
    eventually(lambda: segment_ids(queue) == [0, 1])
    assert fill(writer) == 2 * PER_SEGMENT


def test_queue_full_has_the_numbers_and_the_remedy(publisher):
    writer = publisher(max_segments=2)
    fill(writer)
    with pytest.raises(tw.QueueFull, match="segments=2, limit=2") as caught:
        writer.append(1, KIB)
    assert caught.value.hint
    assert writer.metrics()["queue_full"] == 2


def test_a_refused_append_changes_nothing(publisher, queue):
    writer = publisher(max_segments=2)
    count = fill(writer)
    for _ in range(3):
        with pytest.raises(tw.QueueFull):
            writer.append(1, KIB)
    with pytest.raises(tw.QueueFull):
        writer.reserve(1, len(KIB))
    assert writer.next_seq == count
    assert writer.append(1, b"small enough") == count
    assert stored_payloads(queue) == [KIB] * count + [b"small enough"]


def test_a_batch_that_does_not_fit_is_not_appended(publisher, queue):
    writer = publisher(max_segments=2)
    writer.append(1, b"first")
    with pytest.raises(tw.QueueFull):
        writer.append_batch(1, [KIB] * (2 * PER_SEGMENT + 1))
    assert stored_payloads(queue) == [b"first"]
    assert writer.append_batch(1, [KIB] * (2 * PER_SEGMENT)) == range(1, 1 + 2 * PER_SEGMENT)
    with pytest.raises(tw.QueueFull):
        writer.append_batch(1, [KIB])
    assert len(stored(queue)) == 1 + 2 * PER_SEGMENT


def test_a_batch_larger_than_the_queue_is_full_even_when_blocking(publisher, queue):
    writer = publisher(max_segments=2, when_full=tw.Block())
    with pytest.raises(tw.QueueFull):
        writer.append_batch(1, [KIB] * (3 * PER_SEGMENT))
    assert stored(queue) == []


def test_a_commit_of_a_reader_frees_space(publisher, subscriber, queue):
    writer = publisher(max_segments=2)
    reader = subscriber()
    fill(writer)
    reader.read_batch(PER_SEGMENT + 1)
    with pytest.raises(tw.QueueFull):
        writer.append(1, KIB)  # read, but not committed
    reader.commit()
    assert writer.append(1, KIB) == 2 * PER_SEGMENT
    assert segment_ids(queue)[0] == 1
    assert seqs(reader) == list(range(PER_SEGMENT + 1, 2 * PER_SEGMENT + 1))


def test_the_slowest_reader_decides(publisher, subscriber, queue):
    writer = publisher(max_segments=2)
    fast, slow = subscriber("fast"), subscriber("slow")
    fill(writer)
    list(fast)
    fast.commit()
    with pytest.raises(tw.QueueFull):
        writer.append(1, KIB)
    list(slow)
    slow.commit()
    writer.append(1, KIB)


def test_a_queue_without_readers_stays_full_and_loses_nothing(publisher, queue):
    writer = publisher(max_segments=2)
    count = fill(writer)
    assert fill(writer) == 0
    assert len(stored(queue)) == count


def test_block_with_a_timeout_ends_in_queue_full(publisher, queue):
    writer = publisher(max_segments=2, when_full=tw.Block(timeout=0.01))
    count = fill(writer)
    assert count == 2 * PER_SEGMENT
    with pytest.raises(tw.QueueFull):
        writer.append_batch(1, [KIB])
    with pytest.raises(tw.QueueFull):
        writer.reserve(1, len(KIB))
    assert len(stored(queue)) == count


@pytest.mark.parametrize("timeout", [None, 30.0])
@pytest.mark.parametrize(
    "append",
    [
        lambda w: w.append(1, b"late" + bytes(956)),
        lambda w: w.append_batch(1, [b"late" + bytes(956)]),
        lambda w: w.reserve(1, 960).commit(),
    ],
    ids=["append", "batch", "reserve"],
)
def test_a_blocked_append_continues_when_a_reader_commits(publisher, subscriber, timeout, append):
    writer = publisher(max_segments=2, when_full=tw.Block(timeout))
    reader = subscriber()
    for _ in range(2 * PER_SEGMENT):
        writer.append(1, KIB)
    started, done = threading.Event(), threading.Event()

    def late():
        started.set()
        append(writer)
        done.set()

    thread = threading.Thread(target=late)
    thread.start()
    started.wait(10)
    assert not done.wait(0.02)  # it is blocked until a reader commits
    reader.read_batch(2 * PER_SEGMENT)
    reader.commit()
    thread.join(10)
    assert done.is_set()
    assert reader.next().seq == 2 * PER_SEGMENT


def test_metrics_can_be_read_while_another_thread_is_blocked(publisher, subscriber):
    writer = publisher(max_segments=2, when_full=tw.Block())
    reader = subscriber()
    for _ in range(2 * PER_SEGMENT):
        writer.append(1, KIB)
    thread = threading.Thread(target=writer.append, args=[1, KIB])
    thread.start()
    assert writer.metrics()["records"] == 2 * PER_SEGMENT
    assert writer.next_seq == 2 * PER_SEGMENT
    list(reader)
    reader.commit()
    thread.join(10)
    assert writer.metrics()["records"] == 2 * PER_SEGMENT + 1


def test_max_bytes_must_hold_one_segment(queue):
    with pytest.raises(tw.InvalidOption, match=r"max_bytes=8191.*segment_bytes=8192"):
        tw.open_publisher(queue, segment_bytes=8192, max_bytes=8191)


def test_a_restarted_writer_is_as_full_as_before(publisher, queue):
    writer = publisher(max_segments=2)
    count = fill(writer)
    writer.close()
    writer = publisher(max_segments=2)
    with pytest.raises(tw.QueueFull):
        writer.append(1, KIB)
    writer.close()
    assert publisher(max_segments=3).append(1, KIB) == count


def test_a_large_log_passes_through_a_small_capacity(publisher, subscriber):
    writer = publisher(max_segments=2)
    reader = subscriber()
    got = []
    for number in range(300):
        while True:
            try:
                writer.append(1, b"%d" % number + bytes(900))
                break
            except tw.QueueFull:
                got += seqs(reader)
                reader.commit()
    got += seqs(reader)
    assert got == list(range(300))
    assert writer.metrics()["segments_retired"] > 30
