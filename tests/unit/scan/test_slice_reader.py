"""Damage in a slice: an error or skipped; no row next to it is lost or read more than once."""

import logging
import random

import pytest

import tapewire as tw
from tapewire.scan import gaps
from tests.support import crafted
from tests.support import queue_format as qf
from tests.support.spark_views import reader, rows, slices, table, table_of

PARTITIONS = [1, 2, 7, 16]


def full_queue(tmp, segments=4, **options):
    """Segments of 63 records of 128 bytes each: full, but for the last 64 bytes."""
    parts = [crafted.numbered(n * 63, 63) for n in range(segments)]
    return crafted.write(tmp, *parts, **options), parts


def read_past_damage(queue):
    return crafted.read(queue)[0]


def seqs(queue, **options):
    return [row[0] for row in rows(queue, **options)]


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_a_damaged_record_raises_an_error_that_names_the_segment(tmp, partitions):
    queue, parts = full_queue(tmp)
    crafted.damage(queue, 1, crafted.offset_of(parts[1], 30))
    with pytest.raises(tw.CorruptRecord, match=r"000000001\.q at offset.*on_damage"):
        rows(queue, partitions=partitions)


@pytest.mark.parametrize("at", [0, 20, 64 + 3], ids=["length", "time", "payload"])
@pytest.mark.parametrize("index", [0, 1, 30, 61, 62])
def test_valid_records_around_damage_are_read_once(tmp, index, at):
    queue, parts = full_queue(tmp)
    crafted.damage(queue, 1, crafted.offset_of(parts[1], index), at)
    wanted = read_past_damage(queue)
    for partitions in PARTITIONS:
        assert seqs(queue, partitions=partitions, on_damage="skip") == wanted


@pytest.mark.parametrize("index", [0, 15, 62])
def test_damage_after_planning_is_reported_by_one_slice_or_two(tmp, index):
    queue, parts = full_queue(tmp)
    planned = reader(queue, partitions=252, on_damage="skip")  # every record begins a slice
    partitions = planned.partitions()
    assert len(partitions) > 200
    crafted.damage(queue, 1, crafted.offset_of(parts[1], index))
    found = table_of(planned, partitions).column("seq").to_pylist()
    assert found == read_past_damage(queue)


@pytest.mark.parametrize("seed", range(12))
def test_much_damage_loses_no_valid_record(tmp, seed):
    queue, parts = full_queue(tmp)
    rng = random.Random(seed)
    for _ in range(6):
        segment = rng.randrange(4)
        crafted.damage(queue, segment, crafted.offset_of(parts[segment], rng.randrange(63)))
    wanted = read_past_damage(queue)
    for partitions in PARTITIONS:
        assert seqs(queue, partitions=partitions, on_damage="skip") == wanted


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_a_missing_segment_raises_an_error(tmp, partitions):
    queue, _ = full_queue(tmp)
    qf.segment_path(queue, 2).unlink()
    with pytest.raises(tw.TapewireError, match=r"000000002\.q|126"):
        rows(queue, partitions=partitions)


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_a_missing_segment_is_skipped_if_asked(tmp, partitions):
    queue, _ = full_queue(tmp)
    qf.segment_path(queue, 2).unlink()
    wanted = [*range(126), *range(189, 252)]
    assert seqs(queue, partitions=partitions, on_damage="skip") == wanted


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_missing_sequence_numbers_raise_an_error(tmp, partitions):
    parts = crafted.numbered(0, 20), crafted.numbered(25, 20)
    queue = crafted.write(tmp, *parts)
    with pytest.raises(tw.GapDetected, match="first=20, last=24"):
        rows(queue, partitions=partitions)


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_missing_sequence_numbers_are_skipped_if_asked(tmp, partitions):
    queue = crafted.write(tmp, crafted.numbered(0, 20), crafted.numbered(25, 20))
    found = seqs(queue, partitions=partitions, on_damage="skip")
    assert found == [*range(20), *range(25, 45)]


def test_padding_is_no_record(tmp):
    records = [*crafted.numbered(0, 5), qf.pad(128), *crafted.numbered(5, 5)]
    queue = crafted.write(tmp, records)
    for partitions in (1, 4):
        assert seqs(queue, partitions=partitions) == list(range(10))


def test_damage_outside_the_range_is_ignored(tmp):
    queue, parts = full_queue(tmp)
    crafted.damage(queue, 1, crafted.offset_of(parts[1], 30))  # seq 93
    assert seqs(queue, seq_from=94, partitions=3) == list(range(94, 252))
    assert seqs(queue, seq_to=93, partitions=3) == list(range(93))


def test_skipped_damage_is_logged(tmp, caplog):
    queue, parts = full_queue(tmp)
    crafted.damage(queue, 1, crafted.offset_of(parts[1], 30))
    with caplog.at_level(logging.WARNING, "tapewire.spark"):
        rows(queue, partitions=4, on_damage="skip")
    lines = [record.message for record in caplog.records]
    assert len(lines) == 1
    assert "damaged: q:" in lines[0]
    assert "record 93" in lines[0]


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_what_is_missing_is_a_row_of_gaps(tmp, partitions):
    queue, parts = full_queue(tmp)
    crafted.damage(queue, 1, crafted.offset_of(parts[1], 30))
    found = table(queue, view="gaps", partitions=partitions).to_pylist()
    assert [(row["kind"], row["first"], row["last"], row["seq"]) for row in found] == [
        ("record", 93, 93, 94)
    ]
    assert "000000001.q" in found[0]["cause"]


def test_gaps_do_not_depend_on_where_a_log_is_cut(tmp):
    queue, parts = full_queue(tmp)
    for segment, index in ((0, 5), (1, 62), (2, 0), (3, 10), (3, 11)):
        crafted.damage(queue, segment, crafted.offset_of(parts[segment], index))
    one = table(queue, view="gaps", partitions=1).to_pylist()
    assert len(one) >= 3
    for partitions in (2, 7, 64):
        assert table(queue, view="gaps", partitions=partitions).to_pylist() == one


def test_a_gap_part_distinguishes_ledger_and_records(tmp):
    queue, _ = full_queue(tmp)
    kinds = [type(part) for part in slices(queue, view="gaps", partitions=2)]
    assert kinds[0] is gaps.LedgerPart
    assert gaps.LedgerPart not in kinds[1:]


@pytest.mark.parametrize("partitions", PARTITIONS)
@pytest.mark.parametrize("by", ["seq", "time"])
def test_damage_at_the_beginning_of_a_range_is_reported(tmp, caplog, partitions, by):
    queue, parts = full_queue(tmp)
    crafted.damage(queue, 1, crafted.offset_of(parts[1], 30))
    at = {"seq_from": 93} if by == "seq" else {"time_from": 1_000_093}
    assert seqs(queue, on_damage="skip", partitions=partitions, **at)[:2] == [94, 95]
    assert "record 93" in caplog.text
    (gap,) = table(queue, view="gaps", partitions=partitions, **at).to_pylist()
    assert (gap["first"], gap["last"], gap["seq"]) == (93, 93, 94)


@pytest.mark.parametrize("time", [1_000_093, 1_000_094])
def test_two_ranges_that_meet_at_damage_report_it_once(tmp, time):
    queue, parts = full_queue(tmp)
    crafted.damage(queue, 1, crafted.offset_of(parts[1], 30))
    before = table(queue, view="gaps", time_to=time).to_pylist()
    after = table(queue, view="gaps", time_from=time).to_pylist()
    assert [gap["first"] for gap in before + after] == [93]
