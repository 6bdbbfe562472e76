"""Recovery: where the scan begins, and which sequence number it continues with."""

import os

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
    read,
    reopen,
    untouched,
    write,
)

# ---- sparse logs --------------------------------------------------------------------------------


def test_a_sparse_log_continues_after_its_highest_number(tmp):
    records = [qf.record(n, b"x") for n in (3, 10, 500, 10**12)]
    queue = write(tmp, records, sparse=True)
    found = reopen(queue)
    assert found["next_seq"] == 10**12 + 1
    assert untouched(found)
    assert read(queue) == ([3, 10, 500, 10**12, 10**12 + 1], [])


def test_damage_in_a_sparse_log_ends_at_any_higher_number(tmp):
    records = [qf.record(n, b"x") for n in (3, 10, 500, 10**12, 10**12 + 7)]
    queue = write(tmp, records, sparse=True)
    damage(queue, 0, offset_of(records, 1))
    found = reopen(queue)
    assert found["damaged_spans"] == 1
    assert read(queue) == ([3, 500, 10**12, 10**12 + 7, 10**12 + 8], [])


def test_a_lower_copy_inside_a_damaged_payload_of_a_sparse_log_is_not_shown(tmp):
    records = [qf.record(n, b"x") for n in (3, 10, 500, 900)]
    records[2] = qf.record(500, qf.record(4, b"inner"))
    queue = write(tmp, records, sparse=True)
    damage(queue, 0, offset_of(records, 2))
    reopen(queue)
    assert read(queue) == ([3, 10, 900, 901], [])


def test_a_segment_created_by_recovery_is_sparse_if_the_log_is(tmp):
    queue = write(tmp, [qf.record(8, b"x")], sparse=True, sealed=[True])
    reopen(queue)
    header, _ = qf.parse_segment(qf.segment_path(queue, 1))
    assert header["flags"] & qf.SPARSE


# ---- the checkpoint -----------------------------------------------------------------------------


CHECKPOINTS = {
    "missing": None,
    "empty": b"",
    "short": qf.checkpoint(1, 64)[:15],
    "between the two forms": qf.checkpoint(1, 64)[:20],
    "too long": qf.checkpoint(1, 64) + b"\0",
    "wrong checksum": qf.checkpoint(1, 64)[:16] + b"\1\2\3\4\0\0\0\0",
    "stale": qf.checkpoint(0, 64),
    "stale in the middle": qf.checkpoint(0, 640),
    "at the start of the last": qf.checkpoint(1, 64),
    "inside a record": qf.checkpoint(1, 65),
    "before the data": qf.checkpoint(1, 0),
    "beyond the segment": qf.checkpoint(1, 2**63),
    "in the empty segment ahead": qf.checkpoint(2, 64),
    "in a segment that is not there": qf.checkpoint(3, 64),
    "nowhere": qf.checkpoint(2**64 - 1, 2**64 - 1),
    "old form": qf.checkpoint(1, 128, checked=False),
    "old form, ahead in the segment": qf.checkpoint(1, BYTES, checked=False),
    "old form, nowhere": qf.checkpoint(2**64 - 1, 2**64 - 1, checked=False),
}


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("what", CHECKPOINTS)
def test_whatever_the_checkpoint_contains_the_writer_continues_after_the_last_record(
    tmp, what, indexed
):
    first, last = numbered(0, 30), numbered(30, 7)
    queue = write(tmp, first, last, [], sealed=[True, False, False])
    if CHECKPOINTS[what] is not None:
        (queue / "index.meta").write_bytes(CHECKPOINTS[what])
    if indexed:
        write_index(queue, 0, stride=4)
        write_index(queue, 1, stride=2, partial=True)
    found = reopen(queue)
    assert found["place"] == (1, offset_of(last, 7))
    assert found["next_seq"] == 37
    assert untouched(found)
    assert read(queue) == ([*range(38)], [])


def test_lost_records_that_a_checkpoint_proves_keep_their_place(tmp):
    """A reader may have committed a position after it: new records come there, not before."""
    records = numbered(0, 7)
    queue = write(tmp, records)
    end = offset_of(records, 7)
    (queue / "index.meta").write_bytes(qf.checkpoint(0, end + 640, next_seq=12))
    found = reopen(queue)
    assert found["place"] == (0, end + 640)
    assert found["next_seq"] == 12
    assert (found["damaged_spans"], found["recovered_pads"]) == (1, 0)
    assert pads(queue, 0) == [(end, end + 640)]
    assert read(queue) == ([*range(7), 12], [("gap", 7, 11)])


def write_index(queue, segment, **options):
    _, records = qf.parse_segment(qf.segment_path(queue, segment))
    data = qf.seek_index(segment, BYTES, records, **options)
    qf.index_path(queue, segment).write_bytes(data)


def test_a_clean_close_leaves_a_checkpoint_at_the_tail(tmp):
    records = numbered(0, 5)
    queue = write(tmp, records)
    found = reopen(queue)
    segment, offset = found["place"]
    assert qf.parse_checkpoint((queue / "index.meta").read_bytes()) == (segment, offset + 128)


def test_a_checkpoint_without_a_crc_that_is_beyond_the_end_is_not_replaced_by_a_proven_one(tmp):
    """Nothing shows that the records before the end were ever synced."""
    queue = write(tmp, numbered(0, 5))
    stored = qf.checkpoint(0, BYTES, checked=False)
    (queue / "index.meta").write_bytes(stored)
    with tw.open_publisher(queue):
        content = (queue / "index.meta").read_bytes()
        assert content == stored + bytes(len(content) - len(stored))


@pytest.mark.parametrize("checked", [True, False])
def test_segments_before_the_checkpoint_are_not_scanned(tmp, checked):
    first, last = numbered(0, 30), numbered(30, 7)
    queue = write(tmp, first, last)
    damage(queue, 0, offset_of(first, 8))
    (queue / "index.meta").write_bytes(qf.checkpoint(1, 64, checked=checked))
    assert untouched(reopen(queue))
    assert read(queue) == ([*range(8), *range(9, 38)], [("damage", offset_of(first, 8))])


@pytest.mark.parametrize("checked", [True, False])
def test_segments_from_the_checkpoint_on_are_scanned(tmp, checked):
    first, last = numbered(0, 30), numbered(30, 7)
    queue = write(tmp, first, last)
    damage(queue, 0, offset_of(first, 8))
    damage(queue, 1, offset_of(last, 3))
    (queue / "index.meta").write_bytes(qf.checkpoint(0, 64, checked=checked))
    assert reopen(queue)["damaged_spans"] == 2
    kept = [n for n in range(38) if n not in (8, 33)]
    assert read(queue) == (kept, [("gap", 8, 8), ("gap", 33, 33)])


def test_without_a_checkpoint_the_highest_segment_with_a_record_is_scanned(tmp):
    first, last = numbered(0, 30), numbered(30, 7)
    queue = write(tmp, first, last, [], sealed=[True, False, False])
    damage(queue, 0, offset_of(first, 8))
    damage(queue, 1, offset_of(last, 3))
    assert reopen(queue)["damaged_spans"] == 1
    assert pads(queue, 1) == [(offset_of(last, 3), offset_of(last, 4))]


# ---- the seek index shortens the scan -----------------------------------------------------------


def indexed_queue(tmp, checkpoint_at, **index):
    """20 records; an entry for every fourth; the checkpoint before record `checkpoint_at`."""
    records = numbered(0, 20)
    queue = write(tmp, records)
    write_index(queue, 0, stride=4, partial=True, **index)
    (queue / "index.meta").write_bytes(qf.checkpoint(0, offset_of(records, checkpoint_at)))
    return queue, records


def test_the_scan_starts_at_the_last_index_entry_before_the_checkpoint(tmp):
    queue, records = indexed_queue(tmp, 14)
    damage(queue, 0, offset_of(records, 10))  # before entry 12: on disk, and not read again
    damage(queue, 0, offset_of(records, 13))  # after it
    found = reopen(queue)
    assert found["damaged_spans"] == 1
    assert found["next_seq"] == 20
    assert read(queue) == (
        [n for n in range(21) if n not in (10, 13)],
        [("damage", offset_of(records, 10)), ("gap", 13, 13)],
    )


def test_an_entry_after_the_checkpoint_is_not_used(tmp):
    queue, records = indexed_queue(tmp, 10)
    damage(queue, 0, offset_of(records, 9))  # entry 8 is the last before the checkpoint, not 16
    assert reopen(queue)["damaged_spans"] == 1


def test_an_entry_whose_record_is_damaged_is_not_used(tmp):
    queue, records = indexed_queue(tmp, 14)
    damage(queue, 0, offset_of(records, 12))
    damage(queue, 0, offset_of(records, 9))  # after entry 8, which is used instead
    damage(queue, 0, offset_of(records, 5))  # before it
    assert reopen(queue)["damaged_spans"] == 2


def test_an_entry_with_the_number_of_another_record_is_not_used(tmp):
    queue, records = indexed_queue(tmp, 14)
    data = bytearray(qf.index_path(queue, 0).read_bytes())
    qf.poke(data, "SeekIndexEntry", 80 + 3 * 24, seq=400)
    data[-16:] = qf.seek_index_trailer(bytes(data[:80]), bytes(data[80:-16]))
    qf.index_path(queue, 0).write_bytes(data)
    damage(queue, 0, offset_of(records, 9))
    found = reopen(queue)
    assert (found["damaged_spans"], found["next_seq"]) == (1, 20)


def test_an_index_without_checksums_does_not_shorten_the_scan(tmp):
    queue, records = indexed_queue(tmp, 14, foreign=True)
    damage(queue, 0, offset_of(records, 2))
    assert reopen(queue)["damaged_spans"] == 1


def test_a_restarted_writer_completes_the_index_rather_than_replacing_it(tmp):
    queue, _ = indexed_queue(tmp, 14)
    reopen(queue)
    header, entries = qf.parse_index(qf.index_path(queue, 0).read_bytes())
    _, records = qf.parse_segment(qf.segment_path(queue, 0))
    assert header["entry_stride"] == 4
    assert [e["seq"] for e in entries] == [0, 4, 8, 12, 16, 20]
    assert [e["offset"] for e in entries] == [r.offset for r in records[::4]]


# ---- earlier segments and other files -----------------------------------------------------------


def test_every_unsealed_segment_below_the_writers_is_sealed(tmp):
    queue = write(
        tmp, numbered(0, 5), numbered(5, 5), numbered(10, 5), sealed=[False, False, False]
    )
    reopen(queue)
    assert [is_sealed(queue, n) for n in (0, 1, 2)] == [True, True, False]
    assert read(queue) == ([*range(16)], [])


def test_temporary_files_are_removed_and_other_files_are_not(tmp):
    queue = write(tmp, numbered(0, 5))
    for name in ("000000001.q.tmp", "control.meta.tmp"):
        (queue / name).write_bytes(b"left behind")
    for name in ("READY", "types.json", "notes.txt"):
        (queue / name).write_bytes(b"not ours to remove")
    reopen(queue)
    assert not list(queue.glob("*.tmp"))
    assert all((queue / name).exists() for name in ("READY", "types.json", "notes.txt"))


def test_a_segment_file_of_which_no_byte_reached_the_disk_is_created_again(tmp):
    queue = write(tmp, numbered(0, 5), sealed=[True])
    qf.segment_path(queue, 1).write_bytes(b"")
    found = reopen(queue)
    assert (found["place"], found["next_seq"]) == ((1, 64), 5)
    assert os.path.getsize(qf.segment_path(queue, 1)) == BYTES


def test_the_position_in_control_is_correct_after_opening(tmp):
    records = numbered(0, 5)
    queue = write(tmp, records)
    data = bytearray((queue / "control.meta").read_bytes())
    qf.poke(data, "ControlBlock", current_segment=9, write_offset=4096, segment_gen=7)
    (queue / "control.meta").write_bytes(data)
    with tw.open_publisher(queue, preallocate=False):
        fields = qf.unpack("ControlBlock", (queue / "control.meta").read_bytes())
        assert (fields["current_segment"], fields["write_offset"]) == (0, offset_of(records, 5))
        assert fields["segment_gen"] % 2 == 0


def test_seeks_are_correct_after_a_repair(tmp):
    records = numbered(0, 40)
    queue = write(tmp, records)
    damage(queue, 0, offset_of(records, 17))
    reopen(queue, index_stride=4)
    with tw.open_log(queue) as reader:
        for n in (0, 5, 16, 18, 19, 39):
            assert reader.seek_seq(n) is True
            assert reader.next().seq == n
            assert reader.seek_time(1_000_000 + n) is True
            assert reader.next().seq == n
        assert reader.seek_seq(17) is True
        assert reader.next().seq == 18


def test_a_reader_before_the_damage_continues_after_the_repair(tmp):
    records = numbered(0, 10)
    queue = write(tmp, records)
    damage(queue, 0, offset_of(records, 4))
    with tw.open_log(queue) as reader:
        for _ in range(4):
            reader.next()
        with pytest.raises(tw.CorruptRecord):
            reader.next()
        reopen(queue)
        with pytest.raises(tw.GapDetected) as gap:
            reader.next()
        assert (gap.value.first, gap.value.last) == (4, 4)
        assert [r.seq for r in reader] == [*range(5, 11)]
