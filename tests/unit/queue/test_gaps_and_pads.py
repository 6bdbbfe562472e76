"""Missing sequence numbers, missing segments, and padding."""

import pytest

import tapewire as tw
from tests.support import queue_format as qf
from tests.support.crafted import BYTES, numbered, read, reopen, untouched, write

# ---- missing sequence numbers -------------------------------------------------------------------


def gappy(tmp):
    return write(tmp, [qf.record(n, b"x") for n in (0, 1, 5, 6, 8)])


def test_a_gap_is_raised_once_and_then_reading_continues(tmp):
    queue = gappy(tmp)
    with tw.open_log(queue) as reader:
        assert [reader.next().seq, reader.next().seq] == [0, 1]
        with pytest.raises(tw.GapDetected) as gap:
            reader.next()
        assert (gap.value.first, gap.value.last) == (2, 4)
        assert gap.value.path == str(qf.segment_path(queue, 0))
        assert gap.value.offset == 64 + 2 * 128
        assert gap.value.hint
        assert [reader.next().seq, reader.next().seq] == [5, 6]
        with pytest.raises(tw.GapDetected) as gap:
            reader.next()
        assert (gap.value.first, gap.value.last) == (7, 7)
        assert reader.next().seq == 8
        assert reader.next() is None


def test_a_gap_is_raised_once_by_read_batch_between_the_records_around_it(tmp):
    found = []
    with tw.open_log(gappy(tmp)) as reader:
        for _ in range(6):
            try:
                found.append(reader.read_batch().seq.tolist())
            except tw.GapDetected as gap:
                found.append((gap.first, gap.last))
    assert found == [[0, 1], (2, 4), [5, 6], (7, 7), [8], []]


def test_a_gap_before_the_very_first_record_is_reported(tmp):
    queue = write(tmp, numbered(3, 3))
    assert read(queue) == ([3, 4, 5], [("gap", 0, 2)])


def test_a_seek_past_a_gap_does_not_report_it(tmp):
    with tw.open_log(gappy(tmp)) as reader:
        assert reader.seek_seq(3) is True
        assert [reader.next().seq, reader.next().seq] == [5, 6]


def test_a_sparse_log_has_no_gaps(tmp):
    queue = write(tmp, [qf.record(n, b"x") for n in (4, 9, 10, 99)], sparse=True)
    assert read(queue) == ([4, 9, 10, 99], [])


def test_a_writer_counts_gaps_and_continues_after_the_last_number(tmp):
    found = reopen(gappy(tmp))
    assert (found["gaps_found"], found["next_seq"]) == (2, 9)
    assert found["damaged_spans"] == 0


def test_a_lower_number_is_shown_as_stored(tmp):
    numbers = [0, 1, 2, 0, 1, 2, 3, 1]
    queue = write(tmp, [qf.record(n, b"x", checked=False) for n in numbers])
    assert read(queue) == (numbers, [])
    assert reopen(queue)["next_seq"] == 2
    assert read(queue) == ([*numbers, 2], [])


def test_a_missing_segment_in_the_middle_is_reported_each_time(tmp):
    queue = write(tmp, numbered(0, 5), numbered(5, 5), numbered(10, 5))
    qf.segment_path(queue, 1).unlink()
    with tw.open_log(queue) as reader:
        assert [reader.next().seq for _ in range(5)] == [*range(5)]
        for _ in range(2):
            with pytest.raises(tw.SegmentMissing) as missing:
                reader.next()
            assert missing.value.path == str(qf.segment_path(queue, 1))
            assert missing.value.first_available_seq == 0
            assert missing.value.hint
        with pytest.raises(tw.SegmentMissing):
            reader.wait(0)
        assert reader.seek_seq(10) is True
        assert [r.seq for r in reader] == [*range(10, 15)]


def test_a_writer_continues_over_a_missing_segment_in_the_middle(tmp):
    queue = write(tmp, numbered(0, 5), numbered(5, 5), numbered(10, 5))
    qf.segment_path(queue, 1).unlink()
    found = reopen(queue)
    assert (found["next_seq"], found["place"][0]) == (15, 2)
    assert qf.segment_ids(queue) == [0, 1, 2], "no evidence that it had reached the disk"
    assert read(queue) == ([*range(5), *range(10, 16)], [("gap", 5, 9)])


def test_records_before_the_checkpoint_are_not_restored(tmp):
    queue = write(tmp, numbered(0, 5), numbered(5, 5), numbered(10, 5))
    reopen(queue)  # closes cleanly: everything up to segment 2 is on disk
    qf.segment_path(queue, 1).unlink()
    assert reopen(queue)["next_seq"] == 16
    assert qf.segment_ids(queue) == [0, 2]


def test_skip_damaged_continues_after_missing_segments(tmp):
    queue = write(tmp, *(numbered(5 * i, 5) for i in range(5)))
    for segment in (1, 2):
        qf.segment_path(queue, segment).unlink()
    with tw.open_log(queue) as reader:
        for _ in range(5):
            reader.next()
        assert reader.skip_damaged().bytes == 2 * BYTES
        with pytest.raises(tw.GapDetected) as gap:
            reader.next()
        assert (gap.value.first, gap.value.last) == (5, 14)
        assert [r.seq for r in reader] == [*range(15, 25)]
        assert reader.skip_damaged().bytes == 0


def test_a_missing_last_segment_is_detected_by_the_hint_of_the_position(tmp):
    queue = write(tmp, numbered(0, 5), numbered(5, 5))
    qf.segment_path(queue, 1).unlink()
    with tw.open_log(queue) as reader:
        for _ in range(5):
            reader.next()
        with pytest.raises(tw.SegmentMissing):
            reader.next()


def test_missing_first_segments_are_not_damage(tmp):
    queue = write(tmp, numbered(0, 5), numbered(5, 5), numbered(10, 5))
    qf.segment_path(queue, 0).unlink()
    assert read(queue) == ([*range(5, 15)], [])
    assert reopen(queue)["next_seq"] == 15


# ---- PAD ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("checked", [True, False])
def test_a_pad_anywhere_is_skipped(tmp, checked):
    rest = BYTES - 64 - 128
    queue = write(
        tmp,
        [qf.pad(64, checked=checked), *numbered(0, 3), qf.pad(1024, checked=checked)],
        [qf.pad(BYTES - 64, checked=checked)],
        [qf.record(3, b"x"), qf.pad(rest, checked=checked)],
        numbered(4, 2),
    )
    assert read(queue) == ([*range(6)], [])
    with tw.open_log(queue) as reader:
        assert reader.read_batch().seq.tolist() == [*range(6)]
        for n in range(6):
            assert reader.seek_seq(n) is True
            assert reader.next().seq == n
    assert reopen(queue)["next_seq"] == 6


def test_only_the_length_of_a_pad_counts(tmp):
    pad = qf.record(
        77, b"\xaa" * 64, timestamp_ns=2**63, type_id=qf.PAD, flags=0xFF00, payload_crc=1
    )
    queue = write(tmp, [*numbered(0, 2), pad, *numbered(2, 2)])
    assert read(queue) == ([*range(4)], [])
    found = reopen(queue)
    assert found["next_seq"] == 4
    assert untouched(found)
