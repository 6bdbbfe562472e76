"""The calling thread, and no other, is pinned to a core that it may use."""

import os
import threading

import pytest

import tapewire as tw
from tapewire import bus
from tapewire.bus import cpu_affinity


@pytest.fixture(autouse=True)
def _as_before():
    cores = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, cores)


def test_the_calling_thread_is_pinned_and_no_other():
    cores = os.sched_getaffinity(0)
    before, pinned = [], []

    def run():
        before.append(bus.pin_to_core(min(cores)))
        pinned.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert before == [cores]
    assert pinned == [{min(cores)}]
    assert os.sched_getaffinity(0) == cores


def test_the_result_undoes_it():
    before = bus.pin_to_core(max(os.sched_getaffinity(0)))
    os.sched_setaffinity(0, before)
    assert os.sched_getaffinity(0) == before


def test_a_core_that_does_not_exist_is_refused_by_name():
    with pytest.raises(tw.InvalidOption, match=r"no such core: core=99999, allowed=\d"):
        bus.pin_to_core(99999)


def test_a_core_that_is_not_allowed_is_refused():
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("needs two cores")
    os.sched_setaffinity(0, {cores[0]})
    with pytest.raises(tw.InvalidOption, match="may not use the core"):
        bus.pin_to_core(cores[1])
    assert os.sched_getaffinity(0) == {cores[0]}


@pytest.mark.parametrize("core", [-1, "0", 1.0, None, True])
def test_an_invalid_core_is_refused(core):
    with pytest.raises(tw.InvalidOption):
        bus.pin_to_core(core)


def test_cores_are_shown_as_ranges():
    assert cpu_affinity._ranges({0, 1, 2, 5, 8, 9}) == "0-2,5,8-9"
