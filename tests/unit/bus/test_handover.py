"""One thread offers, one takes: everything once, in order, and nobody waits."""

import sys
import threading
import tracemalloc
import weakref

import pytest

import tapewire as tw
from tapewire import bus
from tests.crash.scripts import calls_between_markers


def test_objects_come_out_in_order_through_many_turns_of_the_ring():
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


def test_none_is_not_an_object_to_hand_over():
    with pytest.raises(TypeError):
        bus.Handover(1).offer(None)


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True])
def test_a_capacity_that_cannot_be_is_refused(capacity):
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


@pytest.mark.parametrize(("capacity", "count"), [(1, 200), (2, 1_000), (64, 10_000)])
def test_two_threads_that_are_switched_often_see_every_object_once(capacity, count):
    ring = bus.Handover(capacity)
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


def test_looking_into_an_empty_ring_allocates_nothing():
    ring = bus.Handover(4)
    for n in range(1000):  # counters beyond the small ints that Python keeps
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
    # The loop itself counts: one int at a time.
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
