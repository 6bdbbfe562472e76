"""The order in which a fan-in returns records, and how long it waits for a silent source."""

import time

import numpy as np
import pytest
from hypothesis import given as cases
from hypothesis import settings
from hypothesis import strategies as st

import tapewire as tw
from tapewire import _native, bus
from tests.unit.bus.sources import Sources, given

SECOND = 1_000_000_000


def now():
    return _native.wall_clock_ns()


@pytest.fixture
def wall_clock():
    """Shifts the wall clock of this process and restores it."""
    shifts = []

    def shift(ns):
        _native.shift_wall_clock(ns)
        shifts.append(ns)

    yield shift
    for ns in shifts:
        _native.shift_wall_clock(-ns)


def test_records_are_ordered_by_time(sources):
    sources.write("a", 10, 40).write("b", 20, 30)
    assert given(sources.fan()) == [("a", 0), ("b", 0), ("b", 1), ("a", 1)]


def test_equal_times_are_ordered_by_name_then_seq(sources):
    sources.write("b", 5, 5).write("a", 5, 5).write("B", 5)
    fan = sources.fan("b", "a", "B")
    assert given(fan) == [("B", 0), ("a", 0), ("a", 1), ("b", 0), ("b", 1)]


def test_names_beyond_ascii_are_ordered_as_python_orders_them(sources):
    names = ["é", "z", "\U0001f600", "\uffee"]
    for name in names:
        sources.write(name, 1)
    assert [source for source, _ in given(sources.fan())] == sorted(names)


def test_a_source_keeps_its_order_if_its_times_decrease(sources):
    sources.write("a", 30, 10, 20).write("b", 15, 25)
    fan = sources.fan()
    assert given(fan) == [("b", 0), ("b", 1), ("a", 0), ("a", 1), ("a", 2)]
    assert fan.sources == {"a": (3, 2), "b": (2, 0)}
    assert fan.late == 2


@settings(max_examples=60, deadline=None)
@cases(
    st.dictionaries(
        st.sampled_from("abcdef"), st.lists(st.integers(0, 50), max_size=40), min_size=1
    ),
    st.sampled_from([None, 0, 0.5]),
    st.integers(1, 70),
)
def test_the_order_is_that_of_a_merge_sort(tmp_path_factory, times, max_skew, batch):
    sources = Sources(tmp_path_factory.mktemp("queues"))
    for name, stamps in times.items():
        sources.write(name, *sorted(stamps))
    expected = sorted(
        (stamp, name, seq)
        for name, stamps in times.items()
        for seq, stamp in enumerate(sorted(stamps))
    )
    try:
        fan = sources.fan(max_skew=max_skew)
        one_by_one = [(record.timestamp_ns, record.source, record.seq) for record in fan]
        assert one_by_one == expected
        assert fan.late == 0
        fan.seek_start()
        columns = []
        while len(rows := fan.read_batch(batch)):
            times_of, names, seqs = rows.timestamp_ns, rows.source, rows.seq
            columns += zip(times_of.tolist(), names.tolist(), seqs.tolist(), strict=True)
        assert columns == expected
    finally:
        sources.close()


def test_records_appended_between_two_calls_are_in_order(sources):
    sources.write("a", 10, 30).write("b")
    for max_skew in (None, 0, 0.001):
        fan = sources.fan(max_skew=max_skew)
        fan.seek_time(10)
        assert fan.next().timestamp_ns == 10
        sources.write("b", 20)
        assert next(record.timestamp_ns for record in fan) == 20
        assert fan.late == 0


# ---- with a limit: a silent source delays the others by at most max_skew ------------------------


def test_a_fresh_record_waits_for_the_silent_source(sources):
    sources.write("a").write("b")
    fan = sources.fan(max_skew=1000)
    sources.write("a", now())
    assert fan.next() is None
    assert fan.wait(0.01) is False
    sources.write("b", now() - SECOND)
    assert given(fan) == [("b", 0)], "now b is silent again, and holds a back"
    sources.write("b", now())
    assert given(fan) == [("a", 0)]


def test_a_record_older_than_the_limit_does_not_wait(sources):
    sources.write("a", now() - SECOND).write("b")
    assert given(sources.fan(max_skew=0.5)) == [("a", 0)]


def test_with_max_skew_0_a_record_is_returned_as_soon_as_it_is_read(sources):
    sources.write("a").write("b")
    fan = sources.fan(max_skew=0)
    sources.write("a", now() + 3600 * SECOND)
    assert given(fan) == [("a", 0)]


def test_a_silent_source_delays_a_record_by_the_limit_and_no_longer(sources):
    sources.write("a").write("b")
    fan = sources.fan(max_skew=0.1)
    stamp = now()
    sources.write("a", stamp)
    assert fan.next() is None
    assert fan.wait(30)
    assert now() - stamp >= 0.1 * SECOND
    assert given(fan) == [("a", 0)]


def test_a_late_record_is_returned_immediately_and_counted(sources):
    sources.write("a", now() - SECOND).write("b")
    fan = sources.fan(max_skew=0.001)
    assert given(fan) == [("a", 0)]
    sources.write("b", now() - 2 * SECOND)
    assert given(fan) == [("b", 0)]
    assert fan.sources == {"a": (1, 0), "b": (1, 1)}


def test_a_record_stamped_in_the_future_does_not_stop_its_source(sources):
    sources.write("a", now() + 3600 * SECOND).write("b")
    fan = sources.fan(max_skew=0.02)
    assert fan.wait(30), "it counts as of now"
    assert given(fan) == [("a", 0)]


def test_a_wall_clock_set_back_by_an_hour_stops_no_source(sources, wall_clock):
    sources.write("a").write("b").write("c")
    fan = sources.fan(max_skew=0.05)
    sources.write("a", now())
    assert fan.next() is None, "held back"
    wall_clock(-3600 * SECOND)
    sources.write("b", now())
    sources.write("b", now())
    got = []
    deadline = time.monotonic() + 30
    while len(got) < 3 and time.monotonic() < deadline:
        fan.wait(1)
        got += given(fan)
    assert sorted(got) == [("a", 0), ("b", 0), ("b", 1)]


def test_a_wall_clock_that_was_ahead_does_not_end_the_wait(sources, wall_clock):
    sources.write("a").write("b")
    fan = sources.fan(max_skew=30)
    before = now()
    wall_clock(3600 * SECOND)
    sources.write("a", before)
    assert given(fan) == [("a", 0)]
    wall_clock(-3600 * SECOND)
    sources.write("a", now())
    assert fan.next() is None, "held back"
    sources.write("b", before)
    assert fan.next().source == "b"


def test_a_wall_clock_that_does_not_advance_stops_no_source(sources, wall_clock, eventually):
    sources.write("a").write("b")
    fan = sources.fan(max_skew=0.05)
    stamp = now()
    sources.write("a", stamp)

    def back_again():
        wall_clock(stamp - now())
        return fan.next()

    assert eventually(back_again).source == "a"


# ---- without a limit: for replay ----------------------------------------------------------------


def test_replays_of_closed_queues_are_equal(sources):
    rng = np.random.default_rng(5)
    for name in "abcd":
        sources.write(name, *np.sort(rng.integers(0, 1000, 300)).tolist())
        sources.stop(name)
    first = given(sources.fan("a", "b", "c", "d"))
    assert len(first) == 1200
    assert given(sources.fan("d", "c", "b", "a")) == first


def test_following_waits_for_every_source_that_has_a_writer(sources):
    sources.write("a", 10, 20).write("b", 15)
    fan = sources.fan()
    assert [record.timestamp_ns for record in fan.follow(timeout=0.05)] == [10, 15]
    assert fan.wait(0.01) is False, "b may still have something before 20"
    sources.write("b", 17)
    assert [record.timestamp_ns for record in fan.follow(timeout=0.05)] == [17]
    sources.stop("b")
    assert next(fan.follow(timeout=10)).timestamp_ns == 20


def test_nonblocking_calls_return_what_is_available(sources):
    sources.write("a", 10, 20).write("b", 15)
    fan = sources.fan()
    assert [record.timestamp_ns for record in fan] == [10, 15, 20]
    fan.seek_start()
    assert fan.read_batch().timestamp_ns.tolist() == [10, 15, 20]


@pytest.mark.parametrize("wrong", [-1, float("nan"), "1", True])
def test_an_invalid_limit_is_refused(wrong):
    with pytest.raises((tw.InvalidOption, TypeError), match="max_skew"):
        bus.FanInReader({}, max_skew=wrong)


def test_a_run_of_records_stamped_in_the_future_is_delayed_once(sources, eventually):
    ahead = time.time_ns() + 3600 * 10**9
    sources.write("a", *range(ahead, ahead + 10)).write("b")
    fan = sources.fan(max_skew=0.2)
    assert fan.next() is None
    eventually(lambda: fan.next() is not None)
    assert len(given(fan)) == 9
