"""fileno and `async for`."""

import asyncio
import gc
import os
import selectors
import threading

import pytest

import tapewire as tw
from tests.conformance.kinds import needs
from tests.support.entries import entries, entry


def readable(reader, timeout=0.0):
    with selectors.DefaultSelector() as selector:
        selector.register(reader.fileno(), selectors.EVENT_READ)
        return bool(selector.select(timeout))


def waiter_threads():
    names = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/comm") as comm:
            names.append(comm.read().strip())
    return names.count("tw-ready")


@needs("wait")
def test_the_descriptor_is_readable_until_the_end_was_found(log, read):
    log.fill(3)
    reader = read()
    for _ in range(3):
        assert readable(reader)
        assert reader.next() is not None
    assert readable(reader), "the end was not yet looked for"
    assert reader.next() is None
    assert not readable(reader)


@needs("wait")
def test_a_batch_that_found_nothing_found_the_end(log, read):
    log.fill(3)
    reader = read()
    reader.fileno()
    assert len(reader.read_batch()) == 3
    assert readable(reader)
    assert len(reader.read_batch()) == 0
    assert not readable(reader)


@needs("wait", "live")
def test_the_descriptor_wakes_up_a_loop_for_every_record(log, read):
    reader = read()
    reader.fileno()
    for n in range(300):  # across rolls
        assert reader.next() is None
        assert not readable(reader)
        log.fill(1)
        assert readable(reader, timeout=30), f"record {n}"
        assert entry(reader.next()) == log.model[-1]


@needs("wait", "live")
def test_a_record_that_comes_while_the_loop_sleeps(log, read):
    reader = read()
    reader.fileno()
    assert reader.next() is None
    timer = threading.Timer(0.02, log.fill, [1])
    timer.start()
    assert readable(reader, timeout=30)
    timer.join()
    assert entries(reader) == log.model


@needs("wait", "live", "seek_seq")
def test_a_reader_that_moves_is_readable_again(log, read):
    log.fill(5)
    reader = read()
    reader.fileno()
    assert len(entries(reader)) == 5
    assert not readable(reader)
    assert reader.seek_seq(2)
    assert readable(reader)
    assert len(entries(reader)) == 3
    assert not readable(reader)
    log.fill(1)
    assert readable(reader, timeout=30)


@needs("wait", "live", "types")
def test_records_of_other_types_do_not_leave_it_readable(log, read):
    reader = read(types={2})
    reader.fileno()
    assert reader.next() is None
    log.append(type_id=1)
    assert readable(reader, timeout=30), "something came; what it is, next() sees"
    assert reader.next() is None
    assert not readable(reader)
    log.append(type_id=2)
    assert readable(reader, timeout=30)
    assert reader.next().type_id == 2


@needs("wait")
def test_the_native_waiter_exists_only_while_it_is_used(log, read):
    before = waiter_threads()
    reader = read()
    log.fill(1)
    assert reader.wait(1)
    assert waiter_threads() == before
    fd = reader.fileno()
    assert reader.fileno() == fd
    assert waiter_threads() == before + 1
    reader.close()
    assert waiter_threads() == before
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    with pytest.raises(tw.ClosedHandle):
        reader.fileno()


@needs("wait", "live")
def test_async_for_yields_existing_and_new_records(log, read):
    log.fill(400)

    async def main():
        got = []
        async for record in read():
            got.append(entry(record))
            if len(got) in (400, 401, 500):
                asyncio.get_running_loop().call_later(0.01, log.fill, 100)
            if len(got) == 700:
                break
        return got

    assert asyncio.run(main()) == log.model


@needs("wait")
def test_a_long_backlog_does_not_starve_other_tasks(log, read):
    log.fill(2_000)
    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def main():
        other = asyncio.create_task(count_turns())
        seen = 0
        async for _ in read():
            seen += 1
            assert sum(range(2_000)) == 1_999_000  # about 20 µs of work: 40 ms in all
            if seen == 2_000:
                break
        other.cancel()

    asyncio.run(main())
    assert turns >= 5


@needs("wait")
def test_closing_the_reader_ends_async_for(log, read):
    async def main():
        reader = read()
        asyncio.get_running_loop().call_later(0.01, reader.close)
        return [record async for record in reader]

    assert asyncio.run(asyncio.wait_for(main(), 30)) == []


@needs("wait")
def test_closing_in_another_thread_ends_async_for(log, read):
    async def main():
        reader = read()
        timer = threading.Timer(0.02, reader.close)
        timer.start()
        got = [record async for record in reader]
        timer.join()
        return got

    assert asyncio.run(asyncio.wait_for(main(), 30)) == []


@needs("wait", "live")
def test_a_cancelled_wait_loses_no_record(log, read):
    async def main():
        reader = read()

        async def first():
            async for record in reader:
                return entry(record)

        for _ in range(10):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(first(), 0.01)
        log.fill(1)
        return await asyncio.wait_for(first(), 30)

    descriptors = len(os.listdir("/proc/self/fd"))
    assert asyncio.run(main()) == log.model[0]
    read().close()
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 8, "each wait closed its copy"


@needs("wait", "live")
def test_two_readers_in_one_loop(log, read):
    async def take(reader, count):
        got = []
        async for record in reader:
            got.append(entry(record))
            if len(got) == count:
                return got

    async def main():
        tasks = [asyncio.create_task(take(read(), 300)) for _ in range(2)]
        for _ in range(30):
            log.fill(10)
            await asyncio.sleep(0.001)
        return await asyncio.gather(*tasks)

    first, second = asyncio.run(asyncio.wait_for(main(), 60))
    assert first == second == log.model


@needs("wait")
def test_async_for_over_a_closed_reader_ends(log, read):
    async def main():
        reader = read()
        reader.close()
        return [record async for record in reader]

    log.fill(3)
    assert asyncio.run(main()) == []


@needs("wait")
def test_a_dropped_iteration_leaves_no_descriptor(log, read):
    async def main(reader):
        iteration = aiter(reader)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(iteration), 0.01)
        return iteration

    reader = read()
    counts = []
    for _ in range(5):
        asyncio.run(main(reader))
        gc.collect()
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts == counts[:1] * 5
