"""Two faults at once: a kill and a damaged word, or two damaged places. All are reported."""

import contextlib
import shutil
import threading
import time

import numpy as np
import pytest

import tapewire as tw
from tapewire.queue import status
from tapewire.queue.repair import repair
from tests.support import crafted, queue_files
from tests.support import queue_format as qf
from tests.support.commands import tapewire

ONE_SEGMENT = 4 << 20


def payload(n):
    return b"payload of %d" % n  # 128 bytes with its header


def write(tmp, records, **options):
    return crafted.write_log(tmp / "q", map(payload, range(records)), **options)


def clear_flags(queue, segment, flags=qf.SEALED | qf.SPARSE):
    path = qf.segment_path(queue, segment)
    data = bytearray(path.read_bytes())
    qf.poke(data, "SegmentHeader", flags=qf.unpack("SegmentHeader", data)["flags"] & ~flags)
    path.write_bytes(data)


# ---- a kill, and a commit word that became 0 -----------------------------------------------------


def killed_in_a_batch(tmp):
    """A killed log whose writer's hint lags, with the commit word of record 40 zeroed."""
    queue = write(tmp, 100, segment_bytes=ONE_SEGMENT, killed=True)
    crafted.patch(queue, 0, 64 + 128 * 40, bytes(4))
    crafted.poke_position(queue, 0, 64)
    return queue


def test_records_after_the_hint_of_a_killed_writer_are_reported_and_repaired(tmp):
    queue = killed_in_a_batch(tmp)
    records, events = crafted.shown(queue)
    assert [seq for seq, _ in records] == [n for n in range(100) if n != 40]
    assert events == [("damage", 64 + 128 * 40, 40, 40)]
    assert repair(queue).next_seq == 100
    assert crafted.read(queue) == ([n for n in range(100) if n != 40], [("gap", 40, 40)])


def test_opening_adopts_none_of_them_and_destroys_none(tmp):
    """What a killed writer was writing may hold anything, even valid records."""
    queue = killed_in_a_batch(tmp)
    before = qf.segment_path(queue, 0).read_bytes()
    found = crafted.reopen(queue)
    assert (found["next_seq"], found["damaged_spans"]) == (40, 1)
    (kept,) = queue.glob("*.damaged")
    assert kept.read_bytes() == before


def test_the_hint_lags_by_no_more_than_a_part_of_a_batch(tmp, eventually):
    rows = np.zeros((400_000, 60), np.uint8)

    def moves_within_a_batch():
        queue = tmp / "q"
        with tw.open_publisher(queue, segment_bytes=64 << 20, require_prealloc=True) as writer:
            appending = threading.Thread(target=writer.append_batch, args=(1, rows))
            appending.start()
            seen = set()
            while appending.is_alive():
                control = (queue / "control.meta").read_bytes()
                seen.add(qf.unpack("ControlBlock", control)["write_offset"])
            appending.join()
        shutil.rmtree(queue)
        return any(64 < offset < 64 + 128 * 400_000 for offset in seen)

    # A batch takes about 20 ms: on a busy machine this thread may sleep through one.
    eventually(moves_within_a_batch, timeout=30)


def test_the_last_record_of_a_killed_log_is_reported_and_its_number_not_reused(tmp):
    queue = write(tmp, 100, segment_bytes=ONE_SEGMENT, killed=True)
    crafted.patch(queue, 0, 64 + 128 * 99, bytes(4))
    _, events = crafted.shown(queue)  # this ends: skip_damaged() moves past it
    assert events == [("damage", 64 + 128 * 99, None, None)]
    assert crafted.reopen(queue)["next_seq"] == 100
    assert crafted.read(queue) == ([*range(99), 100], [("gap", 99, 99)])
    assert list(queue.glob("*.damaged"))


def test_the_number_of_a_lost_last_record_is_not_reused_in_a_sparse_log_either(tmp):
    queue = write(tmp, 10, segment_bytes=ONE_SEGMENT, killed=True, sparse=True)
    crafted.patch(queue, 0, 64 + 128 * 9, bytes(4))
    assert crafted.shown(queue)[1] == [("damage", 64 + 128 * 9, None, None)]
    assert crafted.reopen(queue)["next_seq"] == 10


def test_numbers_that_the_index_of_a_killed_log_has_are_not_reused(tmp, eventually):
    options = {"segment_bytes": ONE_SEGMENT, "index_stride": 16, "preallocate": False}
    with tw.open_publisher(tmp / "live", **options) as writer:
        for n in range(1000):
            writer.append(1, payload(n))

        def is_written():
            with contextlib.suppress(ValueError, FileNotFoundError):  # incomplete
                return len(queue_files.index(tmp / "live", 0)[1]) == 63

        eventually(is_written)
        shutil.copytree(tmp / "live", tmp / "q")
    crafted.patch(tmp / "q", 0, 64 + 128 * 500, bytes(128 * 500))
    records, events = crafted.shown(tmp / "q")
    assert len(records) == 500
    assert [event[:2] for event in events] == [("damage", 64 + 128 * 500)]
    last = 16 * (999 // 16)  # with an entry
    assert crafted.reopen(tmp / "q")["next_seq"] == last + 1
    assert crafted.read(tmp / "q")[1] == [("gap", 500, last)]


# ---- a writer opened over damage -----------------------------------------------------------------


def test_a_false_end_is_reported_while_a_writer_lives(tmp):
    queue = write(tmp, 10_000, segment_bytes=ONE_SEGMENT)
    crafted.patch(queue, 0, 64 + 128 * 40, bytes(4))
    with tw.open_publisher(queue, preallocate=False) as writer:
        assert writer.append(1, b"new") == 10_000
        with tw.open_log(queue) as reader:
            assert len(reader.read_batch(20_000)) == 40
            for read in (reader.next, reader.read_batch, lambda: list(reader)):
                with pytest.raises(tw.CorruptRecord):
                    read()
            assert reader.skip_damaged().first_seq == 40
            assert [record.seq for record in reader] == [*range(41, 10_001)]
        assert tapewire("export", queue, "--to", tmp / "out.csv").code == 3


def test_a_reader_that_only_polls_reports_it_too(tmp, eventually):
    """Also if it has been at the end of the log before."""
    with (
        tw.open_publisher(tmp / "q", segment_bytes=ONE_SEGMENT) as writer,
        tw.open_log(tmp / "q") as reader,
    ):
        for n in range(20):
            writer.append(1, payload(n))
        assert len(reader.read_batch(100)) == 20
        assert len(reader.read_batch(100)) == 0
        writer.append(1, payload(20))
        crafted.patch(tmp / "q", 0, 64 + 128 * 20, bytes(4))
        writer.append(1, payload(21))

        def reports():
            try:
                return reader.read_batch(100) is None
            except tw.CorruptRecord as error:
                return error.offset == 64 + 128 * 20

        eventually(reports)
        assert reader.skip_damaged().last_seq == 20
        assert reader.next().seq == 21


def test_skip_damaged_skips_no_record_that_is_committed_meanwhile(tmp):
    rows = np.zeros((50, 40), np.uint8)
    with (
        tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer,
        tw.open_log(tmp / "q") as reader,
    ):
        stop = threading.Event()

        def append():
            while not stop.is_set():
                writer.append_batch(1, rows)

        appending = threading.Thread(target=append)
        appending.start()
        try:
            enough = time.monotonic() + 10
            for n in range(100_000):  # a few of these meet an incomplete record
                if n >= 1000 and time.monotonic() > enough:
                    break
                reader.read_batch(100_000)
                assert reader.skip_damaged().bytes == 0
        finally:
            stop.set()
            appending.join()


# ---- two damaged places of a closed log ----------------------------------------------------------


def test_a_lost_seal_and_a_zeroed_first_word_hide_no_segment(tmp):
    queue = write(tmp, 150)
    clear_flags(queue, 0)
    crafted.patch(queue, 1, 64, bytes(4))
    assert crafted.read(queue) == ([n for n in range(150) if n != 63], [("damage", 64)])
    assert tapewire("export", queue, "--to", tmp / "out.csv").code == 3


def test_a_lost_seal_and_an_invalid_hint_hide_no_segment(tmp):
    queue = write(tmp, 150)
    clear_flags(queue, 0)
    crafted.poke_control(queue, current_segment=0, write_offset=64)
    assert crafted.read(queue) == ([*range(150)], [])


def test_a_removed_last_segment_is_reported_by_the_checkpoint_too(tmp):
    queue = write(tmp, 150)
    qf.segment_path(queue, 2).unlink()
    crafted.poke_control(queue, current_segment=0, write_offset=64)
    with tw.open_log(queue) as reader:
        with pytest.raises(tw.SegmentMissing) as missing:
            list(reader)
        assert missing.value.path == str(qf.segment_path(queue, 2))


def test_a_flipped_sparse_flag_is_damage_of_the_header(tmp):
    queue = write(tmp, 50, segment_bytes=ONE_SEGMENT)
    path = qf.segment_path(queue, 0)
    data = bytearray(path.read_bytes())
    data[12] ^= qf.SPARSE
    path.write_bytes(data)
    with pytest.raises(tw.CorruptMetadata, match="header_check"):
        tw.open_publisher(queue)
    assert status(queue).problems
    repair(queue)
    with tw.open_publisher(queue) as writer:
        assert (writer.sparse, writer.next_seq) == (False, 50)


# ---- files of another queue ----------------------------------------------------------------------


def test_the_checkpoint_of_another_queue_is_ignored(tmp):
    queue = write(tmp, 100, segment_bytes=ONE_SEGMENT)
    other = crafted.write_log(
        tmp / "other", map(payload, range(5000)), segment_bytes=ONE_SEGMENT, sparse=False
    )
    shutil.copy(other / "index.meta", queue / "index.meta")
    assert crafted.read(queue) == ([*range(100)], [])
    assert crafted.reopen(queue)["next_seq"] == 100
    assert crafted.read(queue) == ([*range(101)], [])


def test_the_seek_index_of_another_queue_is_ignored(tmp):
    queue = write(tmp, 300)
    with tw.open_publisher(tmp / "other", segment_bytes=crafted.BYTES, preallocate=False) as writer:
        for n in range(300):
            writer.append(1, payload(n), timestamp_ns=1)
    for index in (tmp / "other").glob("*.idx"):
        shutil.copy(index, queue / index.name)
    with tw.open_log(queue) as reader:
        assert reader.seek_time(10) is True
        assert reader.next().timestamp_ns == 10


@pytest.mark.parametrize("length", [4096, 5000, 0])
def test_repair_takes_the_length_of_segments_from_their_headers(tmp, length):
    queue = write(tmp, 300)
    (queue / "control.meta").unlink()
    with qf.segment_path(queue, 0).open("r+b") as file:
        file.truncate(length)
    repair(queue)
    assert {qf.segment_path(queue, n).stat().st_size for n in qf.segment_ids(queue)} == {8192}
    numbers, events = crafted.read(queue)
    kept = max(0, (length - 64) // 128)
    assert numbers == [*range(kept), *range(63, 300)]
    assert events == [("gap", kept, 62)]


def test_repair_takes_the_key_of_most_segments(tmp):
    queue = write(tmp, 300)
    other = crafted.write_log(tmp / "other", map(payload, range(300)))
    shutil.copy(qf.segment_path(other, 0), qf.segment_path(queue, 0))
    (queue / "control.meta").unlink()
    repair(queue)
    assert crafted.read(queue) == ([*range(63, 300)], [("gap", 0, 62)])


def test_a_refused_opening_keeps_the_recorded_end(tmp):
    queue = write(tmp, 50)
    with pytest.raises(tw.InvalidOption):
        tw.open_publisher(queue, sparse=True)
    header = qf.unpack("SegmentHeader", qf.segment_path(queue, 0).read_bytes())
    assert header["end_offset"] == 64 + 128 * 50


# ---- a log without a key, after a restart of the machine -----------------------------------------


def test_repair_finds_nothing_new_in_a_log_whose_index_has_outlived_its_records(tmp, eventually):
    live, queue = tmp / "live", tmp / "q"
    qf.write_queue(live, [[qf.record(0, b"first")]], segment_bytes=8192)
    with tw.open_publisher(live, preallocate=False, index_stride=4) as writer:
        for _ in range(119):
            writer.append(1, bytes(200))
        eventually(lambda: all(qf.index_path(live, n).exists() for n in qf.segment_ids(live)))
        shutil.copytree(live, queue)
    qf.restart_machine(queue)
    records = qf.parse_records(qf.segment_path(queue, 1).read_bytes(), 64, key=0, segment_id=1)
    lost = records[10].offset
    crafted.patch(queue, 1, lost, bytes(8192 - lost))
    repair(queue)
    with tw.open_publisher(queue) as writer:
        writer.append(1, b"after it")
    again = repair(queue)
    assert (again.damaged, again.padded) == (0, 0)


def test_a_header_proves_the_number_of_the_damaged_last_record_of_a_segment(tmp):
    first = [qf.record(n, bytes(60)) for n in range(63)]
    queue = crafted.write(tmp, first, crafted.numbered(63, 5))
    crafted.damage(queue, 0, 64 + 128 * 62, at=64 + 8)
    want = [*range(62), *range(63, 68)]
    assert crafted.read(queue)[0] == want
    assert crafted.shown(queue)[1] == [("damage", 64 + 128 * 62, 62, 62)]


def test_a_checkpoint_at_a_place_where_no_record_can_end_proves_nothing(tmp):
    queue = write(tmp, 20, segment_bytes=ONE_SEGMENT, killed=True)
    checkpoint = qf.checkpoint(0, 64 + 128 * 20 + 38, next_seq=21, key=qf.key_of(queue))
    (queue / "index.meta").write_bytes(checkpoint)
    assert crafted.read(queue) == ([*range(20)], [])
    with tw.open_log(queue) as reader:
        reader.read_batch(100)
        assert reader.skip_damaged().bytes == 0


def test_a_seek_by_time_passes_a_segment_that_has_lost_its_seal(tmp):
    segments = [
        [qf.record(n, b"x", timestamp_ns=10 * n) for n in range(first, first + 5)]
        for first in (0, 5, 10)
    ]
    queue = crafted.write(tmp, *segments)
    clear_flags(queue, 1)
    (queue / "index.meta").write_bytes(qf.checkpoint(2, 64 + 128 * 5, next_seq=15))
    with tw.open_log(queue) as reader:
        assert reader.seek_time(120)
        assert reader.next().seq == 12


def test_a_checkpoint_in_a_removed_segment_damages_nothing_of_the_new_one(tmp):
    queue = write(tmp, 150)
    qf.segment_path(queue, qf.segment_ids(queue)[-1]).unlink()
    with tw.open_publisher(queue, preallocate=False) as writer:
        assert writer.next_seq == 150
        shutil.copytree(queue, tmp / "killed")
    assert crafted.untouched(crafted.reopen(tmp / "killed"))
    assert crafted.read(tmp / "killed")[0][-1] == 150
