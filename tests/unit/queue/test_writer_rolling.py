"""Rolling: the next segment is prepared, waited for, or created; each step has a counter."""

import pytest

import tapewire as tw
from tests.support import queue_files
from tests.support.queue_format import SEALED, segment_ids, segment_path
from tests.support.records import fill_segments, stored, stored_payloads

KIB = bytes(960)
PER_SEGMENT = 7


def test_a_full_segment_is_sealed_and_the_next_begun(publisher, queue):
    writer = publisher()
    for _ in range(PER_SEGMENT * 2 + 1):
        writer.append(1, KIB)
    assert writer.metrics()["rolls"] == 2
    assert [queue_files.segment_flags(queue, n) & SEALED for n in range(3)] == [1, 1, 0]
    control = queue_files.control(queue)
    assert (control["current_segment"], control["write_offset"]) == (2, 64 + 1024)


def test_an_ordinary_roll_writes_no_padding(publisher, queue):
    writer = publisher()
    fill_segments(writer, 2)
    writer.close()
    assert not any(segment_path(queue, 0).read_bytes()[64 + 1024 * PER_SEGMENT :])


def test_the_next_segment_exists_before_it_is_needed(publisher, queue, eventually):
    publisher()
    eventually(lambda: segment_ids(queue) == [0, 1])
    assert segment_path(queue, 1).stat().st_blocks * 512 >= 8192  # allocated, not a hole


def test_a_prepared_roll_is_counted_as_ready(publisher, queue, eventually):
    writer = publisher()
    for roll in range(5):
        eventually(lambda roll=roll: segment_ids(queue)[-1] == roll + 1)
        eventually(lambda: not list(queue.glob("*.tmp")))
        fill_segments(writer, 1)
    metrics = writer.metrics()
    taken = ("prealloc_ready", "prealloc_waits", "prealloc_misses")
    assert sum(metrics[name] for name in taken) == metrics["rolls"] == 5
    assert metrics["prealloc_ready"] + metrics["prealloc_waits"] == 5


def test_without_preallocation_no_segment_is_created_ahead(publisher, queue):
    writer = publisher(preallocate=False)
    assert segment_ids(queue) == [0]
    fill_segments(writer, 3)
    assert segment_ids(queue) == [0, 1, 2, 3]
    metrics = writer.metrics()
    assert metrics["rolls"] == 3
    assert metrics["prealloc_ready"] == metrics["prealloc_waits"] == 0


def test_without_patience_a_roll_creates_its_segment_itself(publisher, queue):
    writer = publisher(prealloc_wait=0)
    fill_segments(writer, 50)
    metrics = writer.metrics()
    taken = ("prealloc_ready", "prealloc_waits", "prealloc_misses")
    assert sum(metrics[name] for name in taken) == 50
    assert len(stored(queue)) == 50 * PER_SEGMENT + 1


def test_require_prealloc_rolls_with_patience(publisher, queue):
    writer = publisher(require_prealloc=True, prealloc_wait=10)
    fill_segments(writer, 20)
    assert writer.metrics()["prealloc_misses"] == 0
    assert len(stored(queue)) == 20 * PER_SEGMENT + 1


def test_require_prealloc_raises_instead_of_creating_a_segment(publisher, queue, eventually):
    writer = publisher(require_prealloc=True, prealloc_wait=0)
    segment_path(queue, 2).write_bytes(b"in the way")  # the worker cannot prepare the next
    fill_segments(writer, 1)
    count = writer.next_seq
    with pytest.raises(tw.SegmentNotReady) as caught:
        writer.append(1, bytes(8064))
    assert caught.value.path == str(segment_path(queue, 2))
    assert caught.value.hint
    assert writer.metrics()["prealloc_misses"] == 0
    assert len(stored(queue)) == writer.next_seq == count
    eventually(lambda: writer.metrics()["prealloc_errors"] > 0)
    segment_path(queue, 2).unlink()

    def append_again():
        try:
            return writer.append(1, bytes(8064)) == count
        except tw.SegmentNotReady:
            return False

    eventually(append_again)
    assert len(stored(queue)) == count + 1


@pytest.mark.parametrize("fill", [0, 1, PER_SEGMENT, PER_SEGMENT + 3])
def test_require_prealloc_holds_for_a_roll_right_after_a_restart(publisher, queue, fill):
    writer = publisher(require_prealloc=True, prealloc_wait=10)
    for _ in range(fill):
        writer.append(1, KIB)
    writer.close()
    writer = publisher(require_prealloc=True, prealloc_wait=0)
    # The first append does not fit the current segment: it must roll at once, and can.
    assert writer.append(1, bytes(8064)) == fill
    assert len(stored(queue)) == fill + 1


def test_a_restarted_writer_takes_the_segment_that_was_prepared(publisher, queue, eventually):
    writer = publisher()
    writer.append(1, b"a")
    eventually(lambda: segment_ids(queue) == [0, 1])
    writer.close()
    writer = publisher()
    assert writer.append(1, b"b") == 1
    assert queue_files.control(queue)["current_segment"] == 0
    fill_segments(writer, 1)
    assert queue_files.control(queue)["current_segment"] == 1


def test_temporary_files_of_a_dead_writer_are_removed(publisher, queue):
    publisher(preallocate=False).close()
    (queue / "000000001.q.tmp").write_bytes(b"half a segment")
    publisher(preallocate=False)
    assert list(queue.glob("*.tmp")) == []


def test_a_foreign_file_in_place_of_the_next_segment_is_an_error(publisher, queue):
    writer = publisher(preallocate=False)
    segment_path(queue, 1).write_bytes(b"not a segment")
    for _ in range(PER_SEGMENT):
        writer.append(1, KIB)
    with pytest.raises(tw.TapewireError, match=r"000000001\.q"):
        writer.append(1, KIB)
    assert len(stored(queue)) == PER_SEGMENT
    segment_path(queue, 1).unlink()
    assert writer.append(1, KIB) == PER_SEGMENT


@pytest.mark.parametrize("size", [0, 1, 64, 65, 900, 8000, 8064])
def test_records_of_one_size_through_many_rolls(publisher, queue, size):
    writer = publisher()
    payloads = [bytes([i % 256]) * size for i in range(400)]
    for payload in payloads:
        writer.append(1, payload)
    assert stored_payloads(queue) == payloads


@pytest.mark.parametrize("defer", [True, False])
def test_sealed_segments_are_synced_now_or_by_a_worker(publisher, eventually, defer):
    writer = publisher(defer_seal_sync=defer)
    fill_segments(writer, 3)
    if not defer:
        assert writer.metrics()["seals"] == 3
    eventually(lambda: writer.metrics()["seals"] == 3)
    assert writer.metrics()["seal_errors"] == 0


def test_flush_sync_covers_the_segments_that_a_worker_has_not_synced_yet(publisher, queue):
    writer = publisher()
    fill_segments(writer, 3)
    writer.flush_sync()
    writer.flush_async()
    assert writer.metrics()["flushes"] == 1
    data = (queue / "index.meta").read_bytes()
    control = queue_files.control(queue)
    assert int.from_bytes(data[:8], "little") == control["current_segment"]
    assert int.from_bytes(data[8:16], "little") == control["write_offset"]
