"""States after a power failure, constructed: pages and files of different ages.

Each is a state that `test_lost_writes.py` finds by chance, here small and by itself.
"""

import re
import shutil

import pytest

import tapewire as tw
from tests.crash.aftermath import follow
from tests.crash.scripts import calls_between_markers
from tests.support import crafted
from tests.support import queue_format as qf


def put_reader(queue, segment, offset):
    """A reader `r` that had committed there; its page was written back."""
    (queue / "readers").mkdir()
    meta = qf.reader_meta(qf.reader_slot(segment, offset, generation=1))
    (queue / "readers" / "r.meta").write_bytes(meta)


def test_a_reader_ahead_of_the_recovered_tail_is_put_at_the_tail(tmp):
    # Its own page was written back at (1, 64); the tail and the SEALED of segment 0 were not.
    queue, kept = tmp / "q", tmp / "kept"
    with (
        tw.open_publisher(queue, segment_bytes=8192) as writer,
        tw.open_subscriber(queue, "ahead") as reader,
    ):
        for _ in range(10):
            writer.append(1, bytes(100))
        writer.flush_sync()
        kept.mkdir()
        for name in ("000000000.q", "index.meta"):
            shutil.copy(queue / name, kept / name)
        for _ in range(30):
            writer.append(1, bytes(100))
        writer.reserve(1, 4000).abort()  # rolls; segment 1 holds no record yet
        assert len(list(reader)) == 40
        assert reader.next() is None
        reader.commit()
        assert reader.position == (1, 64)
        shutil.copytree(queue, tmp / "after")
    after = tmp / "after"
    for name in ("000000000.q", "index.meta"):
        shutil.copy(kept / name, after / name)
    for path in after.glob("*.idx"):
        path.unlink()

    with tw.open_subscriber(after, "ahead") as reader, tw.open_publisher(after) as writer:
        assert writer.next_seq == 10
        for _ in range(60):  # through the rest of segment 0 into the next
            writer.append(2, bytes(100))
        assert [record.seq for record in reader] == list(range(10, 70))


@pytest.mark.parametrize("checkpoint", ["kept", "lost"])
def test_a_flush_covers_what_a_killed_predecessor_left_unsynced(tmp, checkpoint):
    # The image of a live writer is what a kill leaves; its sealed segments may not be synced.
    queue = tmp / "q"
    with tw.open_publisher(queue, segment_bytes=8192) as writer:
        writer.flush_sync()
        first = (queue / "index.meta").read_bytes()
        for _ in range(200):
            writer.append(1, bytes(100))
        shutil.copytree(queue, tmp / "image", ignore=shutil.ignore_patterns("*.tmp"))
    if checkpoint == "kept":
        (tmp / "image" / "index.meta").write_bytes(first)
    else:
        (tmp / "image" / "index.meta").unlink()
    calls = calls_between_markers(
        """
        import sys, tapewire as tw
        with tw.open_publisher(sys.argv[1], preallocate=False) as writer:
            os.write(mark, b"BEGIN")
            writer.flush_sync()
            os.write(mark, b"END")
        """,
        tmp / "image",
        log=tmp / "trace",
        trace="openat,fdatasync",
    )
    synced = set()
    opened = ""
    for call in calls:
        if found := re.search(r'openat\(.*"[^"]*/(\d{9})\.q"', call):
            opened = found[1]
        elif call.startswith("fdatasync") and opened:
            synced.add(int(opened))
            opened = ""
    assert synced >= {0, 1, 2, 3}  # sealed by the predecessor, 42 records each


@pytest.mark.parametrize("size", [100, 300])
def test_a_reader_ahead_of_the_tail_that_comes_late_is_shown_every_new_record(tmp, size):
    # By 100: its place is the boundary of a new record. By 300: it is in the middle of one.
    queue = crafted.write(tmp, crafted.numbered(0, 10, 100))
    put_reader(queue, 0, 64 + 192 * 15)
    with tw.open_publisher(queue, preallocate=False) as writer:
        for _ in range(20):
            writer.append(1, bytes(size))
        with tw.open_subscriber(queue, "r") as reader:
            assert [record.seq for record in reader] == list(range(10, 30))


def test_a_reader_ahead_of_the_tail_whose_segment_was_lost_is_put_at_the_tail(tmp):
    queue = crafted.write(tmp, crafted.numbered(0, 10, 100))
    put_reader(queue, 2, 640)
    with (
        tw.open_publisher(queue, preallocate=False) as writer,
        tw.open_subscriber(queue, "r") as reader,
    ):
        writer.append(1, b"new")
        assert [record.seq for record in reader] == [10]


def test_a_reader_inside_what_became_a_pad_is_shown_all_that_follows(tmp):
    records = crafted.numbered(0, 30, 100)
    queue = crafted.write(tmp, records, crafted.numbered(30, 1))
    put_reader(queue, 0, crafted.offset_of(records, 12))
    hole = slice(crafted.offset_of(records, 10), crafted.offset_of(records, 20))
    crafted.patch(queue, 0, hole.start, bytes(hole.stop - hole.start))
    (queue / "index.meta").write_bytes(qf.checkpoint(0, 64))
    with tw.open_publisher(queue, preallocate=False):
        pass
    with tw.open_subscriber(queue, "r") as reader:
        assert follow(reader).numbers == list(range(20, 31))


def test_a_segment_whose_name_was_lost_leaves_a_gap_that_is_reported_and_passed(tmp):
    queue = crafted.write(tmp, *(crafted.numbered(10 * i, 10) for i in range(3)))
    (queue / "index.meta").write_bytes(qf.checkpoint(0, 64))
    qf.segment_path(queue, 1).unlink()
    with tw.open_publisher(queue, preallocate=False) as writer:
        assert writer.next_seq == 30
    assert crafted.read(queue) == ([*range(10), *range(20, 30)], [("gap", 10, 19)])


@pytest.mark.parametrize("left", [0, crafted.BYTES])
def test_a_segment_of_which_only_the_name_is_left_stops_no_writer(tmp, left):
    queue = crafted.write(tmp, *(crafted.numbered(10 * i, 10) for i in range(3)))
    (queue / "index.meta").write_bytes(qf.checkpoint(0, 64))
    qf.segment_path(queue, 1).write_bytes(bytes(left))
    with tw.open_publisher(queue, preallocate=False) as writer:
        assert writer.next_seq == 30
    assert crafted.read(queue) == ([*range(10), *range(20, 30)], [("gap", 10, 19)])


def test_a_log_that_ends_in_a_pad_continues_after_its_last_seq(tmp):
    # Recovery writes only the header of a PAD; the bytes under it remain, here a record.
    pad = bytearray(qf.pad(crafted.BYTES - 64))
    pad[512:640] = qf.record(40, bytes(64))
    queue = crafted.write(tmp, crafted.numbered(0, 26), [bytes(pad)], [])
    (queue / "index.meta").write_bytes(qf.checkpoint(2, 64))
    assert crafted.reopen(queue)["next_seq"] == 26


def test_a_checkpoint_of_a_retired_segment_still_shows_where_to_look(tmp):
    records = crafted.numbered(10, 10)
    queue = crafted.write(tmp, crafted.numbered(0, 10), records, crafted.numbered(20, 10))
    (queue / "index.meta").write_bytes(qf.checkpoint(0, 640))
    qf.segment_path(queue, 0).unlink()
    crafted.patch(queue, 1, 64, bytes(crafted.offset_of(records, 5) - 64))
    with tw.open_publisher(queue, preallocate=False):
        pass
    assert crafted.read(queue)[0] == list(range(15, 30))


def test_half_a_record_in_a_segment_ahead_misleads_no_seek(tmp):
    half = qf.record(14, b"lost" * 20)[:64].ljust(192, b"\0")
    queue = crafted.write(tmp, crafted.numbered(0, 30), [half], sealed=[False, False])
    with tw.open_publisher(queue, preallocate=False), tw.open_log(queue) as reader:
        assert reader.seek_seq(22)
        assert reader.next().seq == 22


def test_an_index_that_outlived_its_records_hides_no_new_one(tmp):
    queue = crafted.write(tmp, crafted.full(0, 5))
    lost = qf.parse_records(qf.segment(1, crafted.numbered(5, 50), crafted.BYTES))
    qf.index_path(queue, 1).write_bytes(qf.seek_index(1, crafted.BYTES, lost))
    late = 2_000_000_000
    with tw.open_publisher(queue, preallocate=False) as writer:
        writer.append(1, b"new", timestamp_ns=late)
        shutil.copytree(queue, tmp / "killed")  # before a thread has written a new index
    with tw.open_log(tmp / "killed") as reader:
        assert reader.seek_time(late)
        assert reader.next().seq == 5


def test_the_directory_is_synced_before_the_checkpoint_covers_it(tmp):
    calls = calls_between_markers(
        """
        import sys, tapewire as tw
        with tw.open_publisher(sys.argv[1], segment_bytes=8192, preallocate=False) as writer:
            writer.append_batch(1, [bytes(1000)] * 20)
            os.write(mark, b"BEGIN")
            writer.flush_sync()
            os.write(mark, b"END")
        """,
        tmp / "q",
        log=tmp / "trace",
        trace="fsync,pwrite64",
    )
    names = [re.match(r"\w+", call)[0] for call in calls]
    assert sorted(names) == ["fsync", "pwrite64"]  # the directory, and the checkpoint's text
    assert names == ["fsync", "pwrite64"]
