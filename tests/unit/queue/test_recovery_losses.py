"""Recovery and resuming readers after a loss: repeated damage, lost tails, pages and names."""

import os
import time

import pytest

import tapewire as tw
from tests.support import queue_format as qf
from tests.support.crafted import (
    BYTES,
    damage,
    is_sealed,
    numbered,
    offset_of,
    pads,
    patch,
    read,
    reopen,
    untouched,
    write,
)

# ---- damage after damage ------------------------------------------------------------------------


def test_damage_right_after_an_earlier_pad_loses_only_that_record(tmp):
    records = numbered(0, 10)
    queue = write(tmp, records)
    for n in (1, 2, 3, 4):
        damage(queue, 0, offset_of(records, n))
    assert reopen(queue)["next_seq"] == 10
    damage(queue, 0, offset_of(records, 5))
    numbers, events = read(queue)
    assert numbers == [0, 6, 7, 8, 9, 10]
    assert ("damage", offset_of(records, 5)) in events
    (queue / "index.meta").unlink()
    (queue / "000000000.idx").unlink()
    found = reopen(queue)
    assert (found["next_seq"], found["damaged_spans"]) == (11, 1)
    assert read(queue)[0] == [0, 6, 7, 8, 9, 10, 11]


def test_damage_at_the_start_of_a_segment_after_one_whose_tail_was_lost(tmp):
    # 5..9 were at the end of segment 0, and 10 is damaged: 11 is six numbers ahead.
    second = numbered(10, 5)
    queue = write(tmp, numbered(0, 5), second, sealed=[True, False])
    damage(queue, 1, offset_of(second, 0))
    assert read(queue)[0] == [*range(5), *range(11, 15)]
    found = reopen(queue)
    assert (found["next_seq"], found["damaged_spans"]) == (15, 1)
    assert read(queue)[0] == [*range(5), *range(11, 16)]


def test_a_damaged_payload_after_a_gap_hides_no_later_record(tmp):
    records = [qf.record(n, bytes(40)) for n in (0, 10, 11, 12)]
    queue = write(tmp, records)
    patch(queue, 0, offset_of(records, 1) + 64, b"\x01")  # the payload of number 10
    assert read(queue)[0] == [0, 11, 12]
    assert reopen(queue)["next_seq"] == 13
    assert read(queue)[0] == [0, 11, 12, 13]


@pytest.mark.parametrize("before", [[], [numbered(0, 5)]])
def test_a_segment_without_a_record_is_repaired_once(tmp, before):
    queue = write(tmp, *before, [], sealed=[*(True for _ in before), False])
    patch(queue, len(before), 72, b"\x01")
    for pads_made in (1, 0, 0):
        with tw.open_publisher(queue, preallocate=False) as writer:
            assert writer.metrics()["recovered_pads"] == pads_made


def test_a_reader_opens_before_an_unfinished_record_where_the_seal_was_lost(tmp):
    first = numbered(0, 3)
    queue = write(tmp, first, numbered(3, 3), sealed=[False, False])
    patch(queue, 0, 64, bytes(4))  # its commit word
    with tw.open_log(queue) as reader:
        with pytest.raises(tw.CorruptRecord):
            reader.next()
        skipped = reader.skip_damaged()
        assert (skipped.bytes, skipped.first_seq, skipped.last_seq) == (128, 0, 0)
        assert [r.seq for r in reader] == [1, 2, 3, 4, 5]


# ---- positions that the log does not reach ------------------------------------------------------


def set_position(queue, segment, offset, name="x"):
    os.makedirs(queue / "readers", exist_ok=True)
    meta = qf.reader_meta(qf.reader_slot(segment, offset, 8))
    (queue / "readers" / f"{name}.meta").write_bytes(meta)


def resumed(queue):
    numbers, gaps = [], []
    with tw.open_subscriber(queue, "x") as reader:
        while True:
            try:
                record = reader.next()
            except tw.GapDetected as gap:
                gaps.append((gap.first, gap.last))
                continue
            if record is None:
                return numbers, gaps
            numbers.append(record.seq)


@pytest.mark.parametrize("ahead", [(0, 64 + 7 * 128), (0, BYTES), (1, 64), (3, 640)])
@pytest.mark.parametrize("writer_first", [True, False])
def test_a_position_ahead_of_the_log_is_moved_back(tmp, ahead, writer_first, caplog):
    queue = write(tmp, numbered(0, 5))
    set_position(queue, *ahead)
    if not writer_first:
        with tw.open_subscriber(queue, "x") as reader:
            assert reader.next() is None
            assert reader.committed == (0, 64 + 5 * 128)
    reopen(queue)  # appends number 5
    assert ("reader 'x' had committed past the end" in caplog.text) == writer_first
    assert resumed(queue) == ([5], [])


def test_a_position_inside_a_pad_continues_after_it_and_reports_the_gap(tmp):
    records = numbered(0, 10)
    queue = write(tmp, records)
    for n in (3, 4, 5):
        damage(queue, 0, offset_of(records, n))
    reopen(queue)
    assert pads(queue, 0) == [(offset_of(records, 3), offset_of(records, 6))]
    set_position(queue, 0, offset_of(records, 4))
    assert resumed(queue) == ([*range(6, 11)], [(3, 5)])


def test_a_position_after_skipped_damage_stays(tmp):
    records = numbered(0, 6)
    queue = write(tmp, records)
    damage(queue, 0, offset_of(records, 2))
    set_position(queue, 0, offset_of(records, 3))
    assert resumed(queue) == ([3, 4, 5], [])


@pytest.mark.parametrize(("sealed", "place"), [(True, (1, 64)), (False, (0, 64 + 5 * 128))])
def test_a_position_in_an_empty_segment_moves_back_only_to_an_open_one(tmp, sealed, place):
    queue = write(tmp, numbered(0, 5), [], sealed=[sealed, False])
    set_position(queue, 1, 64)
    with tw.open_subscriber(queue, "x") as reader:
        assert reader.position == place
        assert reader.next() is None


# ---- names and pages that never reached the disk ------------------------------------------------


def test_a_segment_without_a_byte_in_the_middle_becomes_an_empty_one(tmp):
    queue = write(tmp, numbered(0, 5), numbered(5, 5), numbered(10, 5))
    os.truncate(qf.segment_path(queue, 1), 0)
    assert reopen(queue)["next_seq"] == 15
    assert is_sealed(queue, 1)
    assert read(queue) == ([*range(5), *range(10, 16)], [("gap", 5, 9)])


def test_the_header_of_a_segment_in_the_middle_is_written_again(tmp):
    queue = write(tmp, numbered(0, 5), numbered(5, 5), numbered(10, 5))
    patch(queue, 1, 0, bytes(64))
    assert reopen(queue)["next_seq"] == 15
    assert read(queue) == ([*range(16)], [])


def test_a_new_queue_has_a_checkpoint_from_the_start(tmp):
    queue = tmp / "q"
    with tw.open_publisher(queue, segment_bytes=BYTES):
        assert qf.parse_checkpoint((queue / "index.meta").read_bytes()) == (0, 64)
    assert untouched(reopen(queue))


# ---- payloads that look like something else ------------------------------------------------------


def test_a_pad_inside_a_damaged_payload_hides_nothing(tmp):
    image = qf.pad(BYTES - 256)[:64]
    second = [qf.record(40, image + bytes(64)), *numbered(41, 10)]
    queue = write(tmp, numbered(0, 40), second, sealed=[True, False])
    (queue / "index.meta").write_bytes(qf.checkpoint(1, offset_of(second, 11)))
    damage(queue, 1, 64)
    found = reopen(queue)
    assert (found["next_seq"], found["damaged_spans"]) == (51, 1)
    assert read(queue)[0] == [*range(40), *range(41, 52)]


def test_a_later_record_inside_an_unfinished_payload_keeps_no_writer_out(tmp):
    image = bytearray(qf.record(7, b"from a later release"))
    image[4] = 2
    image[32:36] = qf.crc32c(bytes(image[:32])).to_bytes(4, "little")
    queue = write(tmp, numbered(0, 5), [], sealed=[True, False])
    patch(queue, 1, 128, bytes(image))  # a writer was killed before it committed the record
    assert reopen(queue)["next_seq"] == 5


def test_a_segment_of_copies_is_not_where_the_log_ends(tmp):
    """Retention keeps the segment of the last record and later ones: it must be that one."""
    queue = write(tmp, numbered(0, 40), [], sealed=[True, False])
    patch(queue, 1, 128, qf.record(1_000_000, b"a copy from elsewhere"))
    with tw.open_publisher(queue, retention=tw.Retention(), preallocate=False) as writer:
        assert writer.next_seq == 40
        with tw.open_subscriber(queue, "x") as reader:
            assert [r.seq for r in reader] == [*range(40)]
            reader.commit()
            time.sleep(0.3)  # some passes of retention, each of at least 10 ms
    assert reopen(queue)["next_seq"] == 40


def test_two_lost_header_pages_in_a_row_of_a_sparse_log(tmp):
    segments = [[qf.record(n, bytes(40)) for n in range(s, s + 500, 100)] for s in (0, 1000, 2000)]
    queue = write(tmp, *segments, sparse=True)
    for segment in (1, 2):
        patch(queue, segment, 0, bytes(64))
    with tw.open_publisher(queue, sparse=True, preallocate=False) as writer:
        assert writer.next_seq == 2401
    assert read(queue)[0] == [n for s in (0, 1000, 2000) for n in range(s, s + 500, 100)]


# ---- readers after a repair ----------------------------------------------------------------------


def test_a_reader_that_resumes_where_a_segment_lost_its_start_reports_the_gap(tmp):
    second = numbered(40, 20)
    queue = write(tmp, numbered(0, 40), second)
    for n in range(5):
        damage(queue, 1, offset_of(second, n))
    reopen(queue)
    set_position(queue, 1, 64)
    assert resumed(queue) == ([*range(45, 61)], [(40, 44)])


def test_a_position_after_a_hole_of_zeros_stays(tmp):
    records = numbered(0, 20)
    queue = write(tmp, records)
    patch(queue, 0, offset_of(records, 5), bytes(512))  # four records
    set_position(queue, 0, offset_of(records, 15))
    assert resumed(queue) == ([*range(15, 20)], [])


def test_skipping_damage_right_after_a_leading_pad(tmp):
    records = numbered(0, 20)
    queue = write(tmp, records)
    for n in range(10):
        damage(queue, 0, offset_of(records, n))
    reopen(queue)
    damage(queue, 0, offset_of(records, 10))
    for _ in range(2):
        assert read(queue)[0] == [*range(11, 21)]


def test_a_lost_commit_word_before_a_missing_segment_hides_no_record(tmp):
    first = numbered(0, 10)
    queue = write(tmp, first, numbered(10, 5), numbered(15, 5))
    qf.segment_path(queue, 1).unlink()
    patch(queue, 0, offset_of(first, 5), bytes(4))
    with tw.open_log(queue) as reader:
        for _ in range(5):
            reader.next()
        assert reader.skip_damaged().bytes == 128
        assert [reader.next().seq for _ in range(4)] == [6, 7, 8, 9]


def test_a_directory_in_place_of_a_file_keeps_no_writer_out(tmp, caplog):
    queue = write(tmp, numbered(0, 5))
    (queue / "readers" / "x.meta").mkdir(parents=True)
    (queue / "000000999.idx").mkdir()
    assert reopen(queue)["next_seq"] == 5
    assert "could not be checked" in caplog.text
    assert "could not be removed" in caplog.text


def test_a_kept_copy_is_not_replaced(tmp):
    records = numbered(0, 10)
    queue = write(tmp, records)
    kept = queue / "000000000.q.damaged"
    kept.write_bytes(b"of another day")
    damage(queue, 0, offset_of(records, 3))
    reopen(queue)
    assert kept.read_bytes() == b"of another day"
    assert (queue / "000000000.q.damaged.2").stat().st_size == BYTES
