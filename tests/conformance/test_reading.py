"""next, iteration, read_batch, for_each, types=, last_seq, position."""

import pytest

import tapewire as tw
from tests.conformance.kinds import needs
from tests.support.entries import entries, entry

MANY = 500  # through several rolls


@needs()
def test_next_returns_every_record_in_order_and_then_none(log, read):
    log.fill(MANY)
    reader = read()
    got = []
    while (record := reader.next()) is not None:
        got.append(entry(record))
    assert got == log.model


@needs()
def test_next_at_the_end_is_none_every_time(log, read):
    log.fill(1)
    reader = read()
    reader.next()
    assert [reader.next() for _ in range(3)] == [None, None, None]


@needs()
def test_iteration_yields_existing_records_and_then_stops(log, read):
    log.fill(MANY)
    assert entries(read()) == log.model


@needs("live")
def test_iteration_can_be_resumed_when_there_is_more(log, read):
    log.fill(3)
    reader = read()
    assert entries(reader) == log.model
    log.fill(2)
    assert entries(reader) == log.model[3:]


@needs()
def test_read_batch_returns_the_same_records(log, read):
    log.fill(MANY)
    assert entries(read().read_batch(MANY + 1)) == log.model


@needs()
def test_read_batch_in_pieces_returns_the_same_records(log, read):
    log.fill(MANY)
    reader = read()
    got = []
    while len(batch := reader.read_batch(7)):
        assert len(batch) <= 7
        got += entries(batch)
    assert got == log.model


@needs()
def test_read_batch_of_none_takes_none(log, read):
    log.fill(2)
    reader = read()
    assert len(reader.read_batch(0)) == 0
    assert entries(reader) == log.model


@needs()
def test_read_batch_has_a_default_size(log, read):
    log.fill(3)
    assert entries(read().read_batch()) == log.model


@needs()
def test_read_batch_refuses_a_negative_size_and_takes_nothing(log, read):
    log.fill(2)
    reader = read()
    with pytest.raises((ValueError, OverflowError)):
        reader.read_batch(-1)
    assert entries(reader) == log.model


@needs()
def test_for_each_sees_every_record_and_returns_the_count(log, read):
    log.fill(MANY)
    seen = []
    assert read().for_each(lambda record: seen.append(entry(record))) == MANY
    assert seen == log.model


@needs()
def test_for_each_stops_on_false_and_continues_after_that_record(log, read):
    log.fill(10)
    reader = read()
    assert reader.for_each(lambda record: record.seq != log.model[3].seq) == 4
    assert entries(reader) == log.model[4:]


@needs()
def test_for_each_stops_only_on_false(log, read):
    log.fill(10)
    answers = iter([None, 0, "", [], True, None, None, None, None, None])
    assert read().for_each(lambda record: next(answers)) == 10


@needs()
def test_for_each_stops_after_max_records(log, read):
    log.fill(10)
    reader = read()
    assert reader.for_each(lambda record: None, max_records=4) == 4
    assert entries(reader) == log.model[4:]


@needs()
def test_for_each_of_no_records_calls_nothing(log, read):
    log.fill(1)
    assert read().for_each(lambda record: pytest.fail("called"), max_records=0) == 0


@needs()
def test_an_error_in_for_each_propagates_and_the_reader_continues(log, read):
    log.fill(5)
    reader = read()

    def fail_at_second(record):
        if record.seq == log.model[1].seq:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        reader.for_each(fail_at_second)
    assert entries(reader) == log.model[2:]


@needs("types")
@pytest.mark.parametrize("wanted", [{1}, {2, 3}, [3], (1, 2, 3), {77}, set()])
def test_types_shows_only_those_types(log, read, wanted):
    log.fill(MANY)
    expected = [e for e in log.model if e.type_id in wanted]
    assert entries(read(types=wanted)) == expected
    assert entries(read(types=wanted).read_batch(MANY)) == expected
    seen = []
    read(types=wanted).for_each(lambda record: seen.append(entry(record)))
    assert seen == expected


@needs("types")
@pytest.mark.parametrize("wrong", [0xFFFF, -1, 65536])
def test_types_refuses_invalid_types(log, read, wrong):
    with pytest.raises(tw.InvalidTypeId):
        read(types={1, wrong})


@needs("types", "wait")
def test_wait_does_not_wake_for_a_type_that_is_skipped(log, read):
    log.append(type_id=1)
    reader = read(types={2})
    assert not reader.wait(0)
    log.append(type_id=2)
    assert reader.wait(0)


@needs("seq")
def test_last_seq_is_none_then_the_number_of_the_last_record(log, read):
    log.fill(5)
    reader = read()
    assert reader.last_seq is None
    reader.next()
    assert reader.last_seq == log.model[0].seq
    reader.read_batch(3)
    assert reader.last_seq == log.model[3].seq
    list(reader)
    assert reader.last_seq == log.model[4].seq
    reader.next()
    assert reader.last_seq == log.model[4].seq


@needs()
def test_position_moves_with_every_record_and_not_at_the_end(log, read):
    log.fill(3)
    reader = read()
    seen = [reader.position]
    for _ in reader:
        seen.append(reader.position)  # noqa: PERF401
    assert len(set(seen)) == 4
    reader.next()
    assert reader.position == seen[-1]


@needs()
def test_two_readers_have_separate_positions(log, read):
    log.fill(6)
    one, two = read(), read()
    one.read_batch(4)
    assert entries(two) == log.model
    assert entries(one) == log.model[4:]


@needs("skip_damaged")
def test_skip_damaged_skips_nothing_if_nothing_is_damaged(log, read):
    log.fill(3)
    reader = read()
    assert reader.skip_damaged().bytes == 0
    assert entries(reader) == log.model
    assert reader.skip_damaged().bytes == 0


@needs()
def test_a_closed_reader_raises_and_can_be_closed_again(log, read):
    log.fill(1)
    reader = read()
    reader.close()
    reader.close()
    for call in (reader.next, reader.read_batch, reader.seek_start, reader.seek_end):
        with pytest.raises(tw.ClosedHandle):
            call()
    with pytest.raises(tw.ClosedHandle):
        next(reader)
    with pytest.raises(tw.ClosedHandle):
        reader.wait(0)
    with pytest.raises(tw.ClosedHandle):
        _ = reader.position


@needs()
def test_a_reader_is_a_context_manager_with_a_descriptive_repr(kind, log):
    log.fill(2)
    with kind.open_reader(log.where) as reader:
        reader.next()
        assert "last_seq=0" in repr(reader)
    assert "closed" in repr(reader)
