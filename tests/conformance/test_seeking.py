"""seek_seq, seek_time, seek_start, seek_end: return values and the next record."""

import datetime as dt

import numpy as np
import pytest

from tests.conformance.kinds import needs
from tests.support.entries import BASE_NS, entries, entry, first_at_or_after

MANY = 300


def rest(reader):
    return entries(reader.read_batch(MANY * 2))


@needs("seek_seq")
def test_seek_seq_to_each_number_moves_to_it(log, read):
    log.fill(MANY)
    reader = read()
    for expected in log.model[::7]:
        assert reader.seek_seq(expected.seq) is True
        assert entry(reader.next()) == expected


@needs("seek_seq")
def test_seek_seq_goes_backwards_too(log, read):
    log.fill(MANY)
    reader = read()
    for expected in reversed(log.model[::13]):
        assert reader.seek_seq(expected.seq)
        assert entry(reader.next()) == expected


@needs("seek_seq")
def test_seek_seq_past_the_end_is_false_and_moves_to_the_end(log, read):
    log.fill(MANY)
    reader = read()
    assert reader.seek_seq(log.model[-1].seq + 1) is False
    assert reader.next() is None
    assert reader.seek_seq(2**63) is False
    assert reader.next() is None


@needs("seek_seq", "live")
def test_after_a_seek_past_the_end_the_next_record_appended_is_read(log, read):
    log.fill(5)
    reader = read()
    reader.seek_seq(log.model[-1].seq + 100)
    log.fill(1)
    assert rest(reader) == log.model[5:]


@needs("seek_seq")
def test_seek_seq_before_the_first_record_moves_to_the_first(log, read):
    log.fill(3)
    reader = read()
    list(reader)
    assert reader.seek_seq(0) is True
    assert rest(reader) == log.model


@needs("seek_seq")
@pytest.mark.parametrize("wrong", [-1, 2**64])
def test_seek_seq_refuses_an_invalid_number_and_does_not_move(log, read, wrong):
    log.fill(3)
    reader = read()
    reader.next()
    with pytest.raises((ValueError, OverflowError)):
        reader.seek_seq(wrong)
    with pytest.raises(TypeError):
        reader.seek_seq("1")
    assert rest(reader) == log.model[1:]


@needs("seek_time")
def test_times_out_of_the_range_of_a_log_are_its_start_and_its_end(log, read):
    log.fill(3)
    reader = read()
    assert reader.seek_time(-(2**70)) is True
    assert entry(reader.next()) == log.model[0]
    assert reader.seek_time("9999-12-31T00:00:00Z") is False
    assert reader.next() is None


@needs("seek_time")
def test_seek_time_to_each_time_moves_to_it(log, read):
    log.fill(MANY)
    reader = read()
    for expected in log.model[::11]:
        assert reader.seek_time(expected.timestamp_ns) is True
        assert entry(reader.next()) == expected


@needs("seek_time")
def test_seek_time_between_two_records_moves_to_the_later(log, read):
    log.fill(MANY)
    reader = read()
    assert reader.seek_time(log.model[100].timestamp_ns + 1) is True
    assert rest(reader) == log.model[101:]


@needs("seek_time")
def test_seek_time_before_the_first_record_moves_to_the_first(log, read):
    log.fill(MANY)
    reader = read()
    for time in (0, -1, log.model[0].timestamp_ns - 1):
        list(reader)
        assert reader.seek_time(time) is True
        assert rest(reader) == log.model


@needs("seek_time")
def test_seek_time_past_the_last_record_is_false_and_moves_to_the_end(log, read):
    log.fill(MANY)
    reader = read()
    assert reader.seek_time(log.model[-1].timestamp_ns + 1) is False
    assert reader.next() is None
    assert reader.seek_time(2**63 - 1) is False
    assert reader.next() is None


@needs("seek_time", "out_of_order_times")
def test_seek_time_moves_to_where_the_log_first_reached_the_time(log, read):
    rng = np.random.default_rng(5)
    for offset in rng.integers(0, 1000, MANY):
        log.append(bytes(60), timestamp_ns=BASE_NS + int(offset))
    times = [e.timestamp_ns for e in log.model]
    reader = read()
    for wanted in range(BASE_NS - 1, BASE_NS + 1002, 17):
        expected = first_at_or_after(times, wanted)
        assert reader.seek_time(wanted) is (expected < MANY)
        assert rest(reader) == log.model[expected:]


@needs("seek_time", "out_of_order_times")
def test_of_equal_times_seek_time_finds_the_first(log, read):
    for i in range(MANY):
        log.append(timestamp_ns=BASE_NS + i // 100)
    reader = read()
    assert reader.seek_time(BASE_NS + 1)
    assert rest(reader) == log.model[100:]


MOMENT_NS = 1_709_294_400_123_456_000


@needs("seek_time")
@pytest.mark.parametrize(
    "time",
    [
        MOMENT_NS,
        np.int64(MOMENT_NS),
        dt.datetime(2024, 3, 1, 12, 0, 0, 123456, tzinfo=dt.UTC),
        dt.datetime(2024, 3, 1, 14, 0, 0, 123456, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        np.datetime64("2024-03-01T12:00:00.123456"),
        np.datetime64(MOMENT_NS, "ns"),
        "2024-03-01T12:00:00.123456Z",
        "2024-03-01T12:00:00.123456000+00:00",
        "2024-03-01T06:00:00.123456-06:00",
    ],
    ids=repr,
)
def test_seek_time_takes_every_form_of_a_time(log, read, time):
    for shift in (-1, 0, 1):
        log.append(timestamp_ns=MOMENT_NS + shift)
    reader = read()
    assert reader.seek_time(time)
    assert rest(reader) == log.model[1:]


@needs("seek_time")
@pytest.mark.parametrize(
    "naive", [dt.datetime(2024, 3, 1, 12), "2024-03-01T12:00:00", "2024-03-01"], ids=repr
)
def test_seek_time_refuses_a_time_without_a_zone_and_does_not_move(log, read, naive):
    log.fill(3)
    reader = read()
    reader.next()
    with pytest.raises(ValueError, match="zone"):
        reader.seek_time(naive)
    assert rest(reader) == log.model[1:]


@needs("seek_time")
@pytest.mark.parametrize("wrong", [None, 1.5, True, b"2024-03-01T12:00:00Z", dt.date(2024, 3, 1)])
def test_seek_time_refuses_an_invalid_time(log, read, wrong):
    with pytest.raises(TypeError):
        read().seek_time(wrong)


@needs()
def test_seek_start_goes_back_to_the_first_record(log, read):
    log.fill(MANY)
    reader = read()
    list(reader)
    assert reader.seek_start() is True
    assert rest(reader) == log.model


@needs()
def test_seek_end_moves_after_the_last_record_and_is_false(log, read):
    log.fill(MANY)
    reader = read()
    assert reader.seek_end() is False
    assert reader.next() is None


@needs("live")
def test_after_seek_end_only_what_is_appended_later_is_read(log, read):
    log.fill(MANY)
    reader = read()
    reader.seek_end()
    log.fill(MANY)
    assert rest(reader) == log.model[MANY:]


@needs("seek_seq", "seek_time")
def test_in_an_empty_log_every_seek_is_false(log, read):
    reader = read()
    assert reader.seek_start() is False
    assert reader.seek_end() is False
    assert reader.seek_seq(0) is False
    assert reader.seek_seq(5) is False
    assert reader.seek_time(0) is False
    assert reader.seek_time(BASE_NS) is False
    assert reader.next() is None


@needs("seek_seq", "live")
def test_a_reader_that_sought_in_an_empty_log_reads_new_records(log, read):
    reader = read()
    reader.seek_seq(0)
    log.fill(3)
    assert rest(reader) == log.model


@needs("seek_seq", "seek_time")
def test_a_seek_forgets_the_last_number_read(log, read):
    log.fill(5)
    reader = read()
    for seek in (
        reader.seek_start,
        reader.seek_end,
        lambda: reader.seek_seq(1),
        lambda: reader.seek_time(0),
    ):
        reader.seek_start()
        reader.next()
        seek()
        assert reader.last_seq is None


@needs("seek_seq", "types")
def test_seeks_work_with_types_too(log, read):
    log.fill(MANY)
    reader = read(types={2})
    assert reader.seek_seq(log.model[150].seq)
    assert rest(reader) == [e for e in log.model[150:] if e.type_id == 2]
