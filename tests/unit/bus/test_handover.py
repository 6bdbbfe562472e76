"""One thread offers and one takes: every object once, in order, without waiting."""

import sys
import threading
import tracemalloc
import weakref

import pytest

import tapewire as tw
from tapewire import bus
from tests.crash.scripts import calls_between_markers


def test_objects_stay_in_order_through_many_turns_of_the_ring():
    ring = bus.Handover(3)
    taken = []
    for n in range(100):
        assert ring.offer(n)
        if n % 3 == 2:
            taken += [ring.take() for _ in range(3)]
    taken.append(ring.take())
    assert taken == list(range(100))
    assert ring.take() is None


def test_a_full_ring_refuses_and_loses_nothing():
    ring = bus.Handover(2)
    assert [ring.offer(n) for n in "abc"] == [True, True, False]
    assert len(ring) == 2
    assert ring.take() == "a"
    assert ring.offer("c")
    assert [ring.take(), ring.take(), ring.take()] == ["b", "c", None]


def test_none_cannot_be_offered():
    with pytest.raises(TypeError):
        bus.Handover(1).offer(None)


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True])
def test_an_invalid_capacity_is_refused(capacity):
    with pytest.raises(tw.InvalidOption):
        bus.Handover(capacity)


def test_what_was_taken_is_not_kept_alive():
    class Thing:
        pass

    ring = bus.Handover(4)
    thing = Thing()
    gone = weakref.ref(thing)
    ring.offer(thing)
    del thing
    ring.take()
    assert gone() is None


def at_every_line(method, other, *arguments):
    """Calls `method`, and `other` before each of its lines, where a thread switch is possible."""

    def trace(frame, event, _):
        if event == "line" and frame.f_code is method.__func__.__code__:
            other()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return method(*arguments)
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_take_may_run_at_any_line_of_offer(capacity):
    ring, taken = bus.Handover(capacity), []

    def take():
        if (item := ring.take()) is not None:
            taken.append(item)

    for n in range(20):
        assert at_every_line(ring.offer, take, n)
    take()
    assert taken == list(range(20))


@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_offer_may_run_at_any_line_of_take(capacity):
    ring, offered = bus.Handover(capacity), []

    def offer():
        if ring.offer(len(offered)):
            offered.append(len(offered))

    taken = [at_every_line(ring.take, offer) for _ in range(20)]
    taken += iter(ring.take, None)
    assert taken == offered
    assert len(offered) >= 20


def test_two_threads_that_are_switched_often_see_every_object_once():
    ring, count = bus.Handover(64), 5_000
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def offer_all():
        for n in range(1, count + 1):
            while not ring.offer(n):
                pass

    thread = threading.Thread(target=offer_all)
    try:
        thread.start()
        taken = []
        while len(taken) < count:
            if (item := ring.take()) is not None:
                taken.append(item)
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    assert taken == list(range(1, count + 1))
    assert ring.take() is None


def test_taking_from_an_empty_ring_allocates_nothing():
    ring = bus.Handover(4)
    for n in range(1000):  # counters beyond the small ints that Python caches
        ring.offer(n)
        ring.take()
    take = ring.take
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for _ in range(1000):
            take()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The loop itself allocates one int at a time.
    assert peak - before < 200


def test_neither_side_makes_a_system_call(tmp):
    code = """
        from tapewire import bus
        ring = bus.Handover(64)
        offer, take = ring.offer, ring.take
        os.write(mark, b"BEGIN")
        for n in range(10_000):
            take()
            offer(n)
            take()
        os.write(mark, b"END")
    """
    assert calls_between_markers(code, log=tmp / "strace.txt") == []
