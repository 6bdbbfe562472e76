"""A router finds ready strategies, immediately by inotify, at the latest by a rescan."""

import asyncio
import gc
import os
import resource
import select
import shutil
import warnings
from pathlib import Path

import pytest

import tapewire as tw
from tapewire import bus
from tapewire.bus import discovery as module
from tapewire.bus import watches
from tapewire.bus.inotify import Inotify, OutOfWatches

LONG = 3600.0  # effectively without rescans: changes are found by inotify


@pytest.fixture
def discover(layout):
    made = []

    def make(rescan):
        made.append(bus.RouterDiscovery(layout.orders, rescan=rescan))
        return made[-1]

    yield make
    for discovery in made:
        discovery.close()


@pytest.fixture
def watching(discover, layout):
    """A discovery that has scanned an empty directory and then depends on inotify."""
    layout.orders.directory.mkdir(parents=True)
    discovery = discover(LONG)
    assert discovery.poll() == []
    return discovery


def names(events):
    return [(type(event).__name__, event.strategy) for event in events]


def test_the_first_poll_finds_strategies_that_are_ready(discover, strategy):
    out = strategy("beta")
    strategy("alpha")
    strategy("not_ready", ready=False)
    found = discover(LONG).poll()
    assert names(found) == [("Added", "alpha"), ("Added", "beta")]
    assert found[1].orders_out == out


def test_a_strategy_is_found_at_once_when_it_becomes_ready(watching, strategy):
    out = strategy("alpha", ready=False)
    assert watching.poll() == []
    bus.mark_ready(out)
    assert names(watching.poll()) == [("Added", "alpha")]
    assert watching.poll() == []


def test_a_strategy_created_completely_between_two_polls_is_found(watching, strategy):
    strategy("alpha")
    assert names(watching.poll()) == [("Added", "alpha")]


def test_ready_is_found_when_its_directories_are_created_step_by_step(watching, layout):
    out = layout.orders.strategy("alpha").orders_out
    out.parent.mkdir()
    assert watching.poll() == []
    out.mkdir()
    assert watching.poll() == []
    bus.mark_ready(out)
    assert names(watching.poll()) == [("Added", "alpha")]


def test_it_is_removed_when_ready_is_removed(watching, strategy):
    out = strategy("alpha")
    watching.poll()
    bus.clear_ready(out)
    assert watching.poll() == [bus.Removed("alpha")]
    assert watching.strategies == []


@pytest.mark.parametrize("rescan", [LONG, 0.0], ids=["inotify", "rescan"])
@pytest.mark.parametrize("which", ["orders_out", "strategy"])
def test_it_is_removed_when_its_directory_is_removed(discover, strategy, which, rescan):
    out = strategy("alpha")
    discovery = discover(rescan)
    discovery.poll()
    shutil.rmtree(out if which == "orders_out" else out.parent)
    assert discovery.poll() == [bus.Removed("alpha")]
    assert discovery.poll() == []


@pytest.mark.parametrize("rescan", [LONG, 0.0], ids=["inotify", "rescan"])
@pytest.mark.parametrize("which", ["orders_out", "strategy"])
def test_a_directory_replaced_between_two_polls_is_removed_and_added(
    discover, strategy, which, rescan
):
    out = strategy("alpha")
    discovery = discover(rescan)
    discovery.poll()
    old = out if which == "orders_out" else out.parent
    old.rename(old.with_name("moved-away"))
    strategy("alpha")
    events = [e for e in discovery.poll() if e.strategy == "alpha"]
    assert names(events) == [("Removed", "alpha"), ("Added", "alpha")]
    bus.clear_ready(out)
    assert bus.Removed("alpha") in discovery.poll(), "the new directory is the one that is watched"


class Forgetful:
    """Simulates the status of a file on a filesystem that reuses inodes and has a coarse clock."""

    def __init__(self, path):
        self.st_mode = REAL_LSTAT(path).st_mode
        self.st_dev = self.st_ino = self.st_mtime_ns = 1


REAL_LSTAT = os.lstat


@pytest.mark.parametrize("rescan", [LONG, 0.0], ids=["inotify", "rescan"])
def test_a_directory_created_again_with_the_same_inode_is_another_one(
    monkeypatch, discover, strategy, rescan
):
    discovery = discover(rescan)

    def poll():
        with monkeypatch.context() as patch:
            patch.setattr(module.os, "lstat", Forgetful)
            return names(discovery.poll())

    out = strategy("alpha")
    poll()
    shutil.rmtree(out)
    strategy("alpha")
    assert poll() == [("Removed", "alpha"), ("Added", "alpha")]


def test_a_renamed_strategy_is_another_one(watching, strategy):
    out = strategy("alpha")
    watching.poll()
    out.parent.rename(out.parent.with_name("beta"))
    assert names(watching.poll()) == [("Removed", "alpha"), ("Added", "beta")]
    bus.clear_ready(out.parent.with_name("beta") / "orders_out")
    assert watching.poll() == [bus.Removed("beta")]


def test_marking_ready_again_reports_nothing(watching, strategy):
    strategy("alpha")
    watching.poll()
    strategy("alpha")
    assert watching.poll() == []


def test_ready_removed_and_set_again_between_two_polls_is_a_new_start(watching, strategy):
    out = strategy("alpha")
    watching.poll()
    (out / "READY").rename(out / "old")  # keeps its inode from being reused
    bus.mark_ready(out)
    assert names(watching.poll()) == [("Removed", "alpha"), ("Added", "alpha")]


def test_scan_events_and_rescan_together_report_each_strategy_once(discover, strategy):
    discovery = discover(0.0)
    discovery.poll()
    seen = []
    for n in range(20):
        strategy(f"s{n}")
        seen += names(discovery.poll())
    assert seen == [("Added", f"s{n}") for n in range(20)]


def test_there_is_no_strategy_before_the_directory_exists(discover, strategy):
    discovery = discover(0.0)
    assert discovery.poll() == []
    strategy("alpha")
    assert names(discovery.poll()) == [("Added", "alpha")]


@pytest.mark.parametrize("there", ["", "bus", "bus/orders"])
def test_the_first_strategy_of_a_bus_is_reported_whichever_directories_exist(
    discover, tmp, strategy, there
):
    (tmp / there).mkdir(parents=True, exist_ok=True)
    discovery = discover(LONG)
    assert discovery.poll() == []
    strategy("alpha")
    assert names(discovery.poll()) == [("Added", "alpha")]
    assert discovery.poll() == []
    (tmp / "noise").touch()
    assert not select.select([discovery], [], [], 0)[0], "the parents are no longer watched"
    strategy("beta")
    assert names(discovery.poll()) == [("Added", "beta")]


def test_the_directories_of_a_new_bus_may_appear_step_by_step_and_below_a_link(
    discover, tmp, layout
):
    (tmp / "real").mkdir()
    layout.root.symlink_to(tmp / "real")
    discovery = discover(LONG)
    out = layout.orders.strategy("alpha").orders_out
    for directory in (*reversed(out.relative_to(layout.root).parents[:-1]), out):
        assert discovery.poll() == []
        (layout.root / directory).mkdir()
    assert discovery.poll() == []
    bus.mark_ready(out)
    assert names(discovery.poll()) == [("Added", "alpha")]


def test_replacing_the_orders_directory_is_detected(watching, layout, strategy):
    strategy("alpha")
    watching.poll()
    layout.orders.directory.rename(layout.root / "old")
    strategy("beta")
    assert names(watching.poll()) == [("Removed", "alpha"), ("Added", "beta")]
    strategy("gamma")
    assert names(watching.poll()) == [("Added", "gamma")]


def test_links_and_invalid_names_are_skipped(discover, layout, strategy, tmp):
    strategy("good")
    elsewhere = tmp / "elsewhere" / "orders_out"
    elsewhere.mkdir(parents=True)
    bus.mark_ready(elsewhere)
    directory = layout.orders.directory
    (directory / "linked").symlink_to(elsewhere.parent)
    (directory / "half_linked").mkdir()
    (directory / "half_linked" / "orders_out").symlink_to(elsewhere)
    strategy("ready_linked", ready=False).joinpath("READY").symlink_to(elsewhere / "READY")
    (directory / "a file").touch()
    hidden = directory / ".hidden" / "orders_out"
    hidden.mkdir(parents=True)
    bus.mark_ready(hidden)
    for rescan in (LONG, 0.0):
        assert names(discover(rescan).poll()) == [("Added", "good")]


@pytest.mark.parametrize("rescan", [0, LONG])
@pytest.mark.parametrize("circle", ["alpha", "alpha/orders_out", "alpha/orders_out/READY"])
def test_a_cycle_of_links_does_not_affect_other_strategies(
    discover, layout, strategy, circle, rescan
):
    layout.orders.directory.mkdir(parents=True)
    discovery = discover(rescan)
    assert discovery.poll() == []
    link = layout.orders.directory / circle
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(link.name)
    strategy("zeta")
    assert names(discovery.poll()) == [("Added", "zeta")]
    assert discovery.poll() == []


def test_a_link_created_later_is_skipped(watching, layout, strategy, tmp):
    strategy("good")
    layout.orders.directory.joinpath("good").rename(tmp / "elsewhere")
    layout.orders.directory.joinpath("linked").symlink_to(tmp / "elsewhere")
    assert watching.poll() == []


class Blind(Inotify):
    """Loses every event, like a full kernel queue, but without reporting an overflow."""

    def read(self):
        super().read()
        return []


def test_a_rescan_finds_what_inotify_lost(monkeypatch, discover, strategy):
    monkeypatch.setattr(watches, "Inotify", Blind)
    blind, rescanning = discover(LONG), discover(0.0)
    blind.poll(), rescanning.poll()
    out = strategy("alpha")
    assert blind.poll() == [], "the test's watch is not blind"
    assert names(rescanning.poll()) == [("Added", "alpha")]
    shutil.rmtree(out.parent)
    assert blind.poll() == []
    assert rescanning.poll() == [bus.Removed("alpha")]


def test_the_rescan_is_due_on_the_monotonic_clock(monkeypatch, discover, strategy):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(watches, "Inotify", Blind)
    discovery = discover(5.0)
    discovery.poll()
    strategy("alpha")
    now[0] += 4.9
    assert discovery.poll() == []
    assert discovery.rescan_in == pytest.approx(0.1)
    now[0] += 0.2
    assert names(discovery.poll()) == [("Added", "alpha")]


def test_an_overflow_of_the_kernel_queue_loses_no_strategy(watching, layout, strategy):
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 200_000:
        pytest.skip(f"needs a smaller fs.inotify.max_queued_events than {limit}")
    noise = layout.orders.directory / "noise"
    for _ in range(limit // 2 + 10):  # created and removed: two events each
        noise.touch()
        noise.unlink()
    strategy("alpha")
    found = []
    while not found:
        found = watching.poll()
    assert names(found) == [("Added", "alpha")]


def test_strategies_that_went_unready_while_events_were_lost_leave_no_watch(
    monkeypatch, discover, strategy, layout, tmp
):
    discovery = discover(0)
    before = held()
    for n in range(10):
        strategy(f"s{n}", ready=False)
    assert discovery.poll() == []
    monkeypatch.setattr(Inotify, "read", lambda self: [])
    for n in range(10):  # renamed: the directories, and so the kernel's watches, remain
        layout.orders.strategy(f"s{n}").orders_out.parent.rename(tmp / f"s{n}")
    assert discovery.poll() == []
    assert held()[2] <= before[2] + 1, "that of the directory of strategies"


def refuse(*_):
    raise OutOfWatches(28, "No space left on device")


@pytest.mark.parametrize("method", ["__init__", "watch"])
def test_without_watches_it_rescans_and_warns(monkeypatch, discover, strategy, method, caplog):
    monkeypatch.setattr(Inotify, method, refuse)
    discovery = discover(0.0)
    strategy("alpha")
    assert names(discovery.poll()) == [("Added", "alpha")]
    assert not discovery.watching
    strategy("beta")
    assert names(discovery.poll()) == [("Added", "beta")]
    assert [r.levelname for r in caplog.records] == ["WARNING"], "said once"
    assert "max_user_watches" in caplog.text


def test_it_watches_again_when_watches_are_available(monkeypatch, discover, strategy):
    discovery = discover(0.0)
    with monkeypatch.context() as limited:
        limited.setattr(Inotify, "watch", refuse)
        discovery.poll()
        assert not discovery.watching
    discovery.poll()
    assert discovery.watching


def test_a_process_without_descriptors_to_spare_rescans(layout, discover, strategy):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        discovery = discover(0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    strategy("alpha")
    assert names(discovery.poll()) == [("Added", "alpha")]
    with pytest.raises(OSError, match="timer"):
        discovery.fileno()


def test_the_descriptor_is_readable_when_there_is_something_to_poll(watching, strategy):
    def readable():
        return bool(select.select([watching], [], [], 0)[0])

    assert not readable()
    strategy("alpha")
    assert readable()
    watching.poll()
    watching.poll()  # events from watching the new directories
    assert not readable()


def test_a_running_strategy_causes_no_wakeup(watching, strategy):
    """A sidecar that wakes up takes the GIL from the hot thread."""
    out = strategy("alpha")
    watching.poll(), watching.poll()
    with tw.open_publisher(out, segment_bytes=8192) as writer:
        for _ in range(1000):
            writer.append(1, bytes(64))
        bus.write_lease(out)
        assert writer.metrics()["rolls"] > 5
    assert select.select([watching], [], [], 0)[0] == []
    bus.clear_ready(out)
    assert watching.poll() == [bus.Removed("alpha")]
    bus.mark_ready(out)
    assert names(watching.poll()) == [("Added", "alpha")]


def test_a_strategy_without_permission_is_skipped(monkeypatch, discover, strategy):
    out = strategy("alpha")

    def guarded(path):
        if Path(path) == out / "READY":
            raise PermissionError(13, "Permission denied", str(path))
        return REAL_LSTAT(path)

    strategy("beta")
    monkeypatch.setattr(module.os, "lstat", guarded)
    assert names(discover(LONG).poll()) == [("Added", "beta")]


def test_a_closed_discovery_raises_and_leaks_nothing(layout, strategy):
    strategy("alpha")
    before = held()
    discovery = bus.RouterDiscovery(layout.orders)
    discovery.poll()
    assert held() != before
    discovery.close()
    discovery.close()
    assert held() == before
    assert "closed" in repr(discovery)
    with pytest.raises(tw.ClosedHandle):
        discovery.poll()


def test_a_forked_child_keeps_no_watch_and_takes_no_event(watching, strategy, layout):
    code = 0
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # other libraries' threads, from 3.12 on
        child = os.fork()
    if child == 0:
        try:
            if held()[2] != 0:
                code = 1
            watching.poll()
            code = 2
        except tw.ForkedHandle:
            with bus.RouterDiscovery(layout.orders) as own:
                own.poll()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    strategy("alpha")
    assert names(watching.poll()) == [("Added", "alpha")]


def test_async_for_yields_the_same_events(watching, strategy):
    async def scenario():
        seen, descriptor = [], watching.fileno()
        async for event in watching:
            assert not asyncio.get_running_loop().remove_reader(descriptor), "left behind"
            seen += names([event])
            if seen == [("Added", "alpha")]:
                shutil.rmtree(watching.orders.strategy("alpha").orders_out)
            else:
                watching.close()
        return seen

    async def main():
        task = asyncio.create_task(scenario())
        await asyncio.sleep(0)
        strategy("alpha")
        return await asyncio.wait_for(task, 30)

    assert asyncio.run(main()) == [("Added", "alpha"), ("Removed", "alpha")]


def test_leaving_an_async_for_loses_no_event(watching, strategy):
    for name in ("alpha", "beta", "gamma"):
        strategy(name)

    async def first():
        async for event in watching:
            return event

    async def main():
        return [await asyncio.wait_for(first(), 30) for _ in range(2)]

    assert names(asyncio.run(main())) == [("Added", "alpha"), ("Added", "beta")]
    shutil.rmtree(watching.orders.strategy("alpha").orders_out)
    assert names(watching.poll()) == [("Added", "gamma"), ("Removed", "alpha")]


def test_async_for_rescans_by_its_timer(monkeypatch, discover, strategy):
    monkeypatch.setattr(watches, "Inotify", Blind)
    discovery = discover(0.01)

    async def main():
        asyncio.get_running_loop().call_later(0.02, strategy, "alpha")
        async with asyncio.timeout(30):
            async for event in discovery:
                return event

    assert asyncio.run(main()).strategy == "alpha"


def test_closing_ends_an_async_for_that_sleeps(watching):
    async def iterate():
        async for _ in watching:
            pass

    async def main():
        task = asyncio.create_task(iterate())
        asyncio.get_running_loop().call_later(0.01, watching.close)
        await asyncio.wait_for(task, 30)

    asyncio.run(main())


def test_two_tasks_may_not_iterate_over_one_discovery(watching):
    async def iterate():
        async for _ in watching:
            pass

    async def main():
        first = asyncio.create_task(iterate())
        await asyncio.sleep(0)
        with pytest.raises(tw.ConcurrentUse):
            await iterate()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)

    asyncio.run(main())


def held():
    """Return how many descriptors, segment mappings and inotify watches this process has."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()
    descriptors = [entry for entry in Path("/proc/self/fdinfo").iterdir() if entry.exists()]
    watches = sum(entry.read_text().count("inotify wd:") for entry in descriptors)
    return len(descriptors), sum("/orders_out/" in line for line in maps), watches


def test_a_thousand_strategies_appear_and_disappear_without_leaks(layout, watching):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    at_once = 1000 if hard >= 8192 else 100
    try:
        with tw.open_publisher(layout.root / "any", segment_bytes=65536):  # starts native threads
            tw.open_subscriber(layout.root / "any", "router").close()
        before = held()
        for first in range(0, 1000, at_once):
            come_and_go(layout, watching, [f"s{n:03}" for n in range(first, first + at_once)])
            assert held() == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert watching.strategies == []


def come_and_go(layout, discovery, strategies):
    writers, readers = {}, {}
    for name in strategies:
        out = layout.orders.strategy(name).orders_out
        writers[name] = tw.open_publisher(out, segment_bytes=65536, preallocate=False)
        bus.mark_ready(out)
    added = discovery.poll()
    assert [event.strategy for event in added] == strategies
    for event in added:
        readers[event.strategy] = tw.open_subscriber(event.orders_out, "router")
    assert all(count >= len(strategies) for count in held()), "else the test counts nothing"
    for name in strategies:
        bus.clear_ready(layout.orders.strategy(name).orders_out)
        writers[name].close()
        shutil.rmtree(layout.orders.strategy(name).orders_out.parent)
    for event in discovery.poll():
        readers.pop(event.strategy).close()
    assert readers == {}
