"""Fan-ins and readers that are collected, closed or forked during a call."""

import asyncio
import contextlib
import gc
import itertools
import os
import subprocess
import sys
import textwrap

import pytest

import tapewire as tw
from tapewire import bus
from tests.unit.bus.sources import given


@pytest.fixture
def when_collected():
    """`when_collected(fn, n)`: call `fn` in the n-th run of the collector, at an allocation."""
    before = gc.get_threshold()

    def install(fn, n):
        runs = 0
        install.called = False

        def run(phase, info):
            nonlocal runs
            runs += phase == "start"
            if phase == "start" and runs == n:
                install.called = True
                fn()

        gc.collect()
        gc.callbacks.append(run)
        gc.set_threshold(1)

    def end():
        gc.set_threshold(*before)
        gc.callbacks[:] = callbacks

    install.end = end
    callbacks = list(gc.callbacks)
    yield install
    end()


def test_a_collected_fan_in_releases_its_readers_whatever_is_cleared_first(sources):
    sources.write("a", 1, 2)
    reader = tw.open_log(sources.path("a"))
    fan = bus.FanInReader({"a": reader})
    fan.next()
    cycle = [fan]  # younger than the fan-in's own dict, which the collector clears first
    cycle.append(cycle)
    del fan, cycle
    gc.collect()
    assert reader.next().seq == 1


def test_readers_collected_with_their_fan_in_leak_nothing(sources):
    sources.write("a", 1).write("b", 1)
    gc.collect()  # from earlier tests
    before = len(os.listdir("/proc/self/fd"))
    inner = bus.FanInReader(sources.readers("a"))
    fan = bus.FanInReader({"inner": inner} | sources.readers("b"))
    fan.fileno()
    assert len(given(fan)) == 2
    cycle = [inner, fan]
    cycle.append(cycle)
    del inner, fan, cycle
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("follow", [False, True])
def test_closing_it_by_the_collector_during_a_call(sources, when_collected, follow):
    sources.write("a", 1, 2)
    for n in itertools.count(1):  # each run of the collector that a call causes
        fan = sources.fan()
        following = fan.follow(0)
        when_collected(fan.close, n)
        with contextlib.suppress(tw.ClosedHandle):
            next(following, None) if follow else fan.next()
        when_collected.end()
        assert fan.closed == when_collected.called
        fan.close()
        if not when_collected.called:
            break
    assert n > 1, "the collector ran in no call"


def test_closing_it_while_the_error_of_a_call_is_created(sources, monkeypatch):
    sources.write("a", 1, payload=b"x")
    with open(sources.path("a") / "000000000.q", "r+b") as file:
        file.seek(64 + 64)
        file.write(b"\xff")
    fan = sources.fan()
    made = tw.ChecksumMismatch.__init__

    def close_and_make(self, *args, **kwargs):
        fan.close()  # as in a signal handler, which runs in Python code
        made(self, *args, **kwargs)

    monkeypatch.setattr(tw.ChecksumMismatch, "__init__", close_and_make)
    with pytest.raises(tw.ChecksumMismatch):
        next(fan.follow(0))
    assert fan.closed


def test_closing_it_while_the_event_loop_gets_its_descriptor(sources, monkeypatch):
    sources.write("a", 1)
    fan = sources.fan()
    dup = os.dup

    def close_and_dup(fd):
        monkeypatch.undo()
        fan.close()
        return dup(fd)

    async def read():
        return [record.seq async for record in fan]

    monkeypatch.setattr(os, "dup", close_and_dup)
    assert asyncio.run(read()) == []
    assert fan.closed


def test_a_fan_in_that_another_thread_drops_while_its_reader_is_closed(sources):
    sources.write("a")
    program = textwrap.dedent("""
        import sys, threading
        import tapewire as tw
        from tapewire import bus
        reader = tw.open_log(sys.argv[1])
        waiting = threading.Thread(target=lambda: bus.FanInReader({"a": reader}).wait(0.3))
        waiting.start()
        while "in use" not in repr(reader):
            pass
        reader.close()
        waiting.join()
        print(reader)
    """)
    # In this mode freed memory is overwritten immediately.
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program, str(sources.path("a"))],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout.endswith(" closed>\n"), done.stderr


def test_a_forked_child_does_not_close_reused_descriptors(sources, tmp):
    sources.write("a", 1).write("b", 1)
    fan = sources.fan()
    fan.fileno()
    assert len(given(fan)) == 2
    pid = os.fork()
    if pid == 0:
        files = [open(tmp / f"file{i}", "wb") for i in range(40)]  # noqa: SIM115 (numbers used again)
        fan.readers["a"].close()
        fan.remove("b").close()
        os._exit(sum(os.fstat(file.fileno()).st_size for file in files))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_forked_child_cannot_add(sources):
    sources.write("a", 1).write("b", 1)
    fan = sources.fan("a")
    fan.fileno()
    pid = os.fork()
    if pid == 0:
        reader = tw.open_log(sources.path("b"))
        try:
            fan.add("b", reader)
        except tw.ForkedHandle:
            os._exit(42 if reader.next().seq == 0 else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42


def test_following_a_reader_that_was_added_to_a_fan_in_is_refused(sources):
    sources.write("a", 1, 2)
    reader = tw.open_log(sources.path("a"))
    following = reader.follow(0)
    assert next(following).seq == 0
    with bus.FanInReader({"a": reader}), pytest.raises(tw.ConcurrentUse):
        next(following)


def test_a_for_each_that_adds_its_reader_to_a_fan_in_is_refused(sources):
    sources.write("a", 1, 2)
    reader = tw.open_log(sources.path("a"))
    fan = bus.FanInReader()
    with pytest.raises(tw.ConcurrentUse):
        reader.for_each(lambda record: fan.add("a", reader))
    fan.close()


def test_a_name_that_cannot_be_encoded_is_refused(sources):
    sources.write("a", 1)
    reader = tw.open_log(sources.path("a"))
    with bus.FanInReader() as fan, pytest.raises(tw.InvalidName):
        fan.add("\ud800", reader)
    assert reader.next().seq == 0
