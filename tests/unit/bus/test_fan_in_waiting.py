"""A fan-in waits for all of its sources at once and is woken by any."""

import asyncio
import os
import threading
import time

import pytest

import tapewire as tw
from tapewire import bus
from tapewire.bus import _native
from tests.unit.bus.sources import given


@pytest.fixture(params=["several words", "old kernel"])
def sleeping(request):
    """Both ways of waiting for several queues: with one call, and with a descriptor for each."""
    _native.pretend_old_kernel(request.param == "old kernel")
    yield
    _native.pretend_old_kernel(False)


def append_later(sources, name, seconds=0.05):
    thread = threading.Timer(seconds, sources.write, (name, 1))
    thread.start()
    return thread


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_any_source_wakes_it(sources, sleeping, name):
    sources.write("a").write("b").write("c")
    fan = sources.fan(max_skew=0, wait=tw.SpinThenPark(spin_us=0))
    thread = append_later(sources, name)
    began = time.monotonic()
    assert fan.wait(30)
    assert time.monotonic() - began < 10, "woken, not timed out"
    assert given(fan) == [(name, 0)]
    thread.join()


def test_a_wait_without_records_ends_at_its_timeout(sources, sleeping):
    sources.write("a").write("b")
    assert sources.fan(max_skew=0).wait(0.05) is False


def test_it_sleeps_while_it_waits(sources, sleeping):
    sources.write("a", 1).write("b")
    fan = sources.fan(max_skew=None)
    used = time.process_time()
    assert fan.wait(0.5) is False, "b has a writer and may still come first"
    assert time.process_time() - used < 0.25


@pytest.mark.parametrize("wait", [tw.BusySpin(), tw.Sleep(0.001)])
def test_it_waits_by_the_given_strategy(sources, wait):
    sources.write("a").write("b")
    fan = sources.fan(max_skew=0, wait=wait)
    thread = append_later(sources, "b")
    assert fan.wait(30)
    assert given(fan) == [("b", 0)]
    thread.join()


def test_an_invalid_wait_strategy_is_refused():
    with pytest.raises(tw.InvalidOption, match="wait"):
        bus.FanInReader({}, wait="spin")


def test_more_sources_than_one_call_can_wait_for(sources, sleeping):
    names = [f"s{i:03}" for i in range(140)]
    for name in names:
        sources.write(name)
    fan = sources.fan(max_skew=0, wait=tw.SpinThenPark(spin_us=0))
    for name in (names[0], names[-1]):
        thread = append_later(sources, name)
        assert fan.wait(30)
        assert [source for source, _ in given(fan)] == [name]
        thread.join()


def test_rolls_wake_it_too(sources, sleeping):
    sources.write("a").write("b")
    fan = sources.fan(max_skew=0, wait=tw.SpinThenPark(spin_us=0))

    def appending():
        for i in range(300):  # dozens of segments
            sources.write("a", i, payload=bytes(1000))

    thread = threading.Thread(target=appending)
    thread.start()
    seen = [record.seq for record, _ in zip(fan.follow(timeout=10), range(300), strict=False)]
    thread.join()
    assert seen == list(range(300))


def test_inside_asyncio(sources):
    sources.write("a").write("b")
    fan = sources.fan(max_skew=0.05)

    async def main():
        got = []

        async def reading():
            async for record in fan:
                got.append((record.source, record.seq))
                if len(got) == 4:
                    return

        task = asyncio.create_task(reading())
        for name in ("a", "b", "b", "a"):
            await asyncio.sleep(0.005)
            sources.write(name, time.time_ns())
        await asyncio.wait_for(task, 30)
        return got

    assert asyncio.run(main()) == [("a", 0), ("b", 0), ("b", 1), ("a", 1)]


def test_asyncio_does_not_spin_while_a_record_is_delayed(sources):
    sources.write("a").write("b")
    fan = sources.fan(max_skew=0.4)

    async def main():
        async for record in fan:
            return record.seq

    sources.write("a", time.time_ns())
    used = time.process_time()
    assert asyncio.run(main()) == 0
    assert time.process_time() - used < 0.2


def test_closing_ends_the_async_loop(sources):
    sources.write("a").write("b")
    fan = sources.fan(max_skew=0)

    async def main():
        async def reading():
            return [record async for record in fan]

        task = asyncio.create_task(reading())
        await asyncio.sleep(0.05)
        fan.close()
        return await asyncio.wait_for(task, 10)

    assert asyncio.run(main()) == []


def test_nothing_is_leaked(sources):
    names = [f"s{i}" for i in range(20)]
    for name in names:
        sources.write(name, 1)

    def use():
        with bus.FanInReader(sources.readers(*names), max_skew=0) as fan:
            fan.fileno()
            assert len(given(fan)) == 20
            fan.wait(0.001)
            for reader in fan.readers.values():
                reader.close()

    use()
    descriptors, threads = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    for _ in range(5):
        use()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert len(os.listdir("/proc/self/task")) == threads
