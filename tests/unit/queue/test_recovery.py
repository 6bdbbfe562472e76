"""Recovery: where a writer continues after another one was killed, and what it repairs."""

import logging
import random

import pytest

import tapewire as tw
from tests.support import queue_format as qf
from tests.support.crafted import (
    BYTES,
    damage,
    full,
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

# ---- a clean tail -------------------------------------------------------------------------------


def test_after_a_clean_tail_the_writer_appends_in_place(tmp):
    records = numbered(0, 5)
    queue = write(tmp, records)
    found = reopen(queue)
    assert found["place"] == (0, offset_of(records, 5))
    assert found["next_seq"] == 5
    assert untouched(found)
    assert qf.segment_ids(queue) == [0]
    assert read(queue) == ([*range(6)], [])


def test_an_empty_queue_starts_with_its_first_number(tmp):
    queue = write(tmp, [], first_seq=17)
    assert reopen(queue)["next_seq"] == 17
    assert read(queue) == ([17], [])


def test_a_queue_without_any_segment_gets_its_first(tmp):
    queue = write(tmp, [])
    qf.segment_path(queue, 0).unlink()
    assert reopen(queue)["place"] == (0, 64)


def test_empty_segments_ahead_are_not_the_end(tmp):
    records = numbered(0, 3)
    queue = write(tmp, records, [], [], sealed=[False, False, False])
    found = reopen(queue)
    assert found["place"] == (0, offset_of(records, 3))
    assert not is_sealed(queue, 0)


def test_after_a_sealed_segment_it_continues_in_the_next_empty_one(tmp):
    queue = write(tmp, numbered(0, 3), [], [], sealed=[True, False, False])
    found = reopen(queue)
    assert (found["place"], found["next_seq"]) == ((1, 64), 3)
    assert untouched(found)


def test_after_a_sealed_last_segment_it_creates_the_next(tmp):
    queue = write(tmp, numbered(0, 3), sealed=[True])
    found = reopen(queue)
    assert (found["place"], found["next_seq"]) == ((1, 64), 3)


def test_after_a_segment_filled_to_its_last_byte_it_creates_the_next(tmp):
    queue = write(tmp, full(0, 20))
    found = reopen(queue)
    assert (found["place"], found["next_seq"]) == ((1, 64), 20)
    assert is_sealed(queue, 0)
    assert read(queue) == ([*range(21)], [])


# ---- an unfinished tail -------------------------------------------------------------------------

UNFINISHED = {
    "a header without its commit word": b"\0\0\0\0" + qf.record(5, b"x" * 40)[4:],
    "a payload without a header": bytes(64) + b"payload bytes",
    "a commit word and nothing else": b"\x29\0\0\0",
    "a record whose payload is torn": qf.record(5, b"x" * 40)[:80],
    "a record whose length reaches too far": qf.record(5, b"", commit_len=BYTES),
    "a single bit in the middle of nowhere": bytes(3000) + b"\x01",
}


@pytest.mark.parametrize("what", UNFINISHED)
def test_an_unfinished_tail_becomes_one_pad_and_the_writer_continues_in_the_next_segment(tmp, what):
    records = numbered(0, 5)
    queue = write(tmp, records)
    end = offset_of(records, 5)
    patch(queue, 0, end, UNFINISHED[what])
    found = reopen(queue)
    assert (found["place"], found["next_seq"]) == ((1, 64), 5)
    assert (found["recovered_pads"], found["damaged_spans"]) == (1, 0)
    assert pads(queue, 0) == [(end, BYTES)]
    assert is_sealed(queue, 0)
    assert read(queue) == ([*range(6)], [])
    assert not list(queue.glob("*.damaged"))


def test_an_unfinished_tail_of_exactly_one_header_becomes_a_pad(tmp):
    records = [*numbered(0, 4, 0), qf.record(4, bytes(BYTES - 64 - 4 * 64 - 64 - 64))]
    queue = write(tmp, records)
    end = offset_of(records, 5)
    assert end == BYTES - 64
    patch(queue, 0, end + 8, b"\x05")
    found = reopen(queue)
    assert pads(queue, 0) == [(end, BYTES)]
    assert found["place"] == (1, 64)
    assert read(queue) == ([*range(6)], [])


def test_a_first_append_that_was_not_finished_becomes_a_pad_in_the_segment_ahead(tmp):
    queue = write(tmp, numbered(0, 3), [], sealed=[True, False])
    patch(queue, 1, 68, b"\x01\0\0\0\x03")
    found = reopen(queue)
    assert (found["place"], found["next_seq"]) == ((2, 64), 3)
    assert pads(queue, 1) == [(64, BYTES)]
    assert read(queue) == ([*range(4)], [])


def test_an_unfinished_end_of_a_segment_that_is_not_the_last_is_fenced_off(tmp):
    first = numbered(0, 3)
    queue = write(tmp, first, numbered(3, 3), sealed=[False, False])
    end = offset_of(first, 3)
    patch(queue, 0, end + 16, b"half")
    (queue / "index.meta").write_bytes(qf.checkpoint(0, 64))
    found = reopen(queue)
    assert pads(queue, 0) == [(end, BYTES)]
    assert is_sealed(queue, 0)
    assert found["next_seq"] == 6
    assert read(queue) == ([*range(7)], [])


def test_a_second_opening_finds_nothing_to_repair(tmp):
    records = numbered(0, 9)
    queue = write(tmp, records)
    damage(queue, 0, offset_of(records, 4))
    patch(queue, 0, offset_of(records, 9) + 8, b"half")
    first = reopen(queue)
    assert (first["recovered_pads"], first["damaged_spans"]) == (1, 1)
    second = reopen(queue)
    assert untouched(second)
    assert second["next_seq"] == first["next_seq"] + 1
    (queue / "index.meta").unlink()
    assert untouched(reopen(queue))


# ---- damage in the middle -----------------------------------------------------------------------

WRONG = {
    "length": {"commit_len": 5000},
    "length beyond the segment": {"commit_len": 2**31},
    "commit word lost": {"commit_len": 0},
    "number": {"seq": 99},
    "header check": {"header_check": 0x12345678},
    "payload CRC": {"payload_crc": 1},
}


@pytest.mark.parametrize("what", WRONG)
def test_damage_in_the_middle_is_fenced_off_and_what_follows_stays(tmp, caplog, what):
    records = numbered(0, 10)
    queue = write(tmp, records)
    at, end = offset_of(records, 4), offset_of(records, 5)
    with open(qf.segment_path(queue, 0), "r+b") as file:
        data = bytearray(file.read())
        qf.poke(data, "RecordHeader", at, **WRONG[what])
        if what == "payload CRC":  # the header is valid, only the payload is not
            qf.poke(data, "RecordHeader", at, header_check=qf.crc32c(data[at : at + 32]))
        file.seek(0)
        file.write(data)
    with caplog.at_level(logging.WARNING, "tapewire.queue"):
        found = reopen(queue)
    assert (found["damaged_spans"], found["recovered_pads"]) == (1, 0)
    assert found["next_seq"] == 10
    assert found["place"] == (0, offset_of(records, 10))
    assert pads(queue, 0) == [(at, end)]
    assert (queue / "000000000.q.damaged").read_bytes() == data
    assert read(queue) == ([0, 1, 2, 3, 5, 6, 7, 8, 9, 10], [("gap", 4, 4)])
    assert "damaged" in caplog.text
    assert str(qf.segment_path(queue, 0)) in caplog.text


def test_each_of_several_damaged_places_is_fenced_off_separately(tmp):
    records = numbered(0, 20)
    queue = write(tmp, records)
    for n in (3, 4, 9, 15):
        damage(queue, 0, offset_of(records, n))
    before = qf.segment_path(queue, 0).read_bytes()
    found = reopen(queue)
    assert found["damaged_spans"] == 3
    assert pads(queue, 0) == [
        (offset_of(records, a), offset_of(records, b)) for a, b in ((3, 5), (9, 10), (15, 16))
    ]
    assert (queue / "000000000.q.damaged").read_bytes() == before
    kept = [n for n in range(21) if n not in (3, 4, 9, 15)]
    assert read(queue) == (kept, [("gap", 3, 4), ("gap", 9, 9), ("gap", 15, 15)])


def test_the_copy_of_an_earlier_damage_is_not_replaced(tmp):
    records = numbered(0, 10)
    queue = write(tmp, records)
    (queue / "000000000.q.damaged").write_bytes(b"the older one holds more of the truth")
    damage(queue, 0, offset_of(records, 4))
    assert reopen(queue)["damaged_spans"] == 1
    assert (queue / "000000000.q.damaged").read_bytes().startswith(b"the older one")


def test_a_dense_run_of_empty_records_loses_only_the_damaged_one(tmp):
    records = numbered(0, 100, 0)
    queue = write(tmp, records)
    damage(queue, 0, offset_of(records, 10))
    found = reopen(queue)
    assert found["damaged_spans"] == 1
    assert read(queue) == ([*range(10), *range(11, 101)], [("gap", 10, 10)])


def test_damage_of_many_records_in_a_row_is_bridged(tmp):
    records = numbered(0, 100, 0)
    queue = write(tmp, records)
    patch(queue, 0, offset_of(records, 10), random.Random(1).randbytes(64 * 50))
    assert reopen(queue)["damaged_spans"] == 1
    assert read(queue) == ([*range(10), *range(60, 101)], [("gap", 10, 59)])


def test_damage_before_a_pad_ends_after_it(tmp):
    records = [*numbered(0, 3), qf.pad(256), *numbered(3, 3)]
    queue = write(tmp, records)
    damage(queue, 0, offset_of(records, 2))
    assert reopen(queue)["damaged_spans"] == 1
    assert read(queue) == ([0, 1, 3, 4, 5, 6], [("gap", 2, 2)])


def test_a_reader_without_a_writer_bridges_the_same_damage(tmp):
    records = numbered(0, 20, 0)
    queue = write(tmp, records)
    damage(queue, 0, offset_of(records, 5))
    with tw.open_log(queue) as reader:
        for _ in range(5):
            reader.next()
        with pytest.raises(tw.CorruptRecord):
            reader.next()
        assert reader.skip_damaged() == (0, offset_of(records, 5), 64, 5, 5)
        assert [r.seq for r in reader] == [*range(6, 20)]


# ---- records inside payloads --------------------------------------------------------------------


def with_inner(inner):
    """Ten records, the fifth with `inner` as its payload; return its offset."""
    records = numbered(100, 10)
    records[4] = qf.record(104, inner)
    return records, offset_of(records, 4)


INNER = {
    "of the record before": lambda: qf.record(103, b"inner"),
    "of a much older record": lambda: qf.record(3, b"inner" * 20),
    "of a much later record": lambda: qf.record(5000, b"inner"),
    "of many": lambda: b"".join(qf.record(n, b"inner") for n in (90, 91, 92, 4000, 2**63)),
    "of a pad": lambda: qf.pad(512),
}


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("what", INNER)
def test_a_copy_of_a_record_in_a_damaged_payload_is_not_mistaken_for_one(tmp, what, checked):
    records, at = with_inner(INNER[what]())
    if not checked:
        records = [qf.record(s.seq, s.payload, checked=False) for s in stored(records)]
    queue = write(tmp, records, first_seq=100)
    patch(queue, 0, at + 4, b"\x07")  # a version that never existed
    with tw.open_log(queue) as reader:
        assert [reader.next().seq for _ in range(4)] == [100, 101, 102, 103]
        with pytest.raises(tw.CorruptRecord):
            reader.next()
        assert reader.skip_damaged() == (0, at, len(records[4]), 104, 104)
        assert [r.seq for r in reader] == [*range(105, 110)]
    found = reopen(queue)
    assert found["damaged_spans"] == 1
    assert pads(queue, 0) == [(at, at + len(records[4]))]
    assert read(queue) == ([*range(100, 104), *range(105, 111)], [("gap", 104, 104)])


def stored(records):
    return [r for r in qf.parse_records(bytes(64) + b"".join(records)) if not r.is_pad]


def test_a_copy_in_the_first_payload_of_the_last_segment_is_not_mistaken_for_a_record(tmp):
    first = numbered(0, 50)
    inner = qf.record(3, b"inner" * 20) + qf.record(4000, b"inner")
    last = [qf.record(50, inner), *numbered(51, 5)]
    queue = write(tmp, first, last)
    damage(queue, 1, 64)
    found = reopen(queue)
    assert found["next_seq"] == 56
    assert pads(queue, 1) == [(64, 64 + len(last[0]))]
    assert read(queue) == ([*range(50), *range(51, 57)], [("gap", 50, 50)])


def test_a_copy_in_the_only_payload_of_the_last_segment_is_not_mistaken_for_a_record(tmp):
    first = numbered(0, 50)
    queue = write(tmp, first, [qf.record(50, qf.record(3, b"inner" * 20))])
    damage(queue, 1, 64)
    found = reopen(queue)
    assert found["next_seq"] == 50
    assert read(queue) == ([*range(51)], [])


@pytest.mark.parametrize("seek", ["seek_seq", "seek_time", "resume"])
def test_after_a_seek_a_copy_in_a_damaged_payload_is_not_mistaken_for_a_record(tmp, seek):
    records, at = with_inner(qf.record(3, b"inner" * 20) + qf.record(5000, b"inner"))
    queue = write(tmp, records, first_seq=100)
    damage(queue, 0, at)
    with tw.open_subscriber(queue, "x", start="earliest") as reader:
        if seek == "seek_seq":
            reader.seek_seq(104)
        elif seek == "seek_time":
            reader.seek_time(1_000_104)
        else:
            for _ in range(4):
                reader.next()
            reader.commit()
            reader.close()
            reader = tw.open_subscriber(queue, "x")  # noqa: PLW2901
        with reader:
            assert reader.position == (0, at)
            with pytest.raises(tw.CorruptRecord):
                reader.next()
            assert reader.skip_damaged().bytes == len(records[4])
            assert [r.seq for r in reader] == [*range(105, 110)]


def test_a_seek_past_a_damaged_first_record_finds_no_copy_in_its_payload(tmp):
    inner = qf.record(3, b"inner" * 20) + qf.record(4000, b"inner")
    queue = write(tmp, numbered(0, 50), [qf.record(50, inner), *numbered(51, 5)])
    damage(queue, 1, 64)
    with tw.open_log(queue) as reader:
        for wanted in (3, 49, 51, 53):
            assert reader.seek_seq(wanted) is True
            assert reader.next().seq == wanted
        assert reader.seek_seq(4000) is False
        assert reader.next() is None
