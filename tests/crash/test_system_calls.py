"""An append makes no system call."""

import re
import shutil
import subprocess
import sys
import textwrap

import pytest

import tapewire as tw
from tests.crash import disk
from tests.crash.crew import ROOT
from tests.crash.scripts import calls_between_markers

A_MILLION_APPENDS = """
    import sys, pathlib
    import tapewire as tw
    queue = pathlib.Path(sys.argv[1])
    payload = bytes(64)
    options = {"require_prealloc": True} if sys.argv[2] == "prepared" else {}
    with tw.open_publisher(queue, segment_bytes=256 << 20, **options) as writer:
        append = writer.append
        append(1, payload)
        os.write(mark, b"BEGIN")
        for _ in range(1_000_000):
            append(1, payload)
        os.write(mark, b"END")
        assert writer.next_seq == 1_000_001
        assert writer.metrics()["rolls"] == 0
"""


def test_a_million_appends_without_a_roll_make_no_system_call(tmp):
    log = tmp / "strace.txt"
    assert calls_between_markers(A_MILLION_APPENDS, tmp / "queue", "prepared", log=log) == []


def test_on_a_disk_default_options_make_no_system_call_either(tmp_path):
    """On disk, a segment has all its blocks at once; on tmpfs, it gets them in steps."""
    look = ["stat", "-f", "-c", "%T", tmp_path]
    kind = subprocess.run(look, capture_output=True, text=True, check=True)
    if kind.stdout.strip() in ("tmpfs", "ramfs"):
        pytest.skip("needs a temporary directory on a disk")
    log = tmp_path / "strace.txt"
    assert calls_between_markers(A_MILLION_APPENDS, tmp_path / "queue", "default", log=log) == []


BEHIND_A_DEAD_READER = """
    import sys
    import tapewire as tw
    payload = bytes(64)
    with tw.open_publisher(sys.argv[1], require_prealloc=True) as writer:
        os.write(mark, b"BEGIN")
        for _ in range(100_000):
            writer.append(1, payload)
        os.write(mark, b"END")
        assert writer.metrics()["wakes"] == 1
"""


def test_a_reader_killed_while_parked_costs_one_futex_call_in_all(tmp, crew, eventually):
    queue = tmp / "queue"
    with tw.open_publisher(queue, segment_bytes=64 << 20) as writer:
        writer.append(1, b"the only one it sees")
        reader = crew.start("actors.parker", queue=str(queue), checked=False)
        reader.expect("open")
        reader.expect("read")
        eventually(lambda: disk.control(queue, disk.WAITERS_PENDING) == 1)
        assert reader.kill() == -9
    assert disk.control(queue, disk.WAITERS_PENDING) == 1, "its flag outlives it"
    calls = calls_between_markers(
        BEHIND_A_DEAD_READER, queue, log=tmp / "strace.txt", trace="futex"
    )
    assert len(calls) == 1
    assert "FUTEX_WAKE" in calls[0]


def test_appends_into_a_populated_segment_take_no_page_fault(tmp, crew):
    child = crew.start("actors.faulter", queue=str(tmp / "queue"), segment_bytes=4 << 20, rolls=0)
    faults, appends, rolls, _ = child.expect("faults")
    # The forked interpreter copies a page of its own at any time; pages of the segment would be
    # missing in every stretch.
    assert min(faults) == 0
    assert sum(faults) < len(faults)
    assert rolls == 0
    assert appends > 10_000


def test_page_faults_through_rolls_into_prepared_segments(tmp, crew, record_property):
    child = crew.start(
        "actors.faulter", queue=str(tmp / "queue"), segment_bytes=64 << 10, rolls=200
    )
    stretches, appends, rolls, ready = child.expect("faults")
    faults = sum(stretches)
    record_property("minor_faults", faults)
    print(
        f"{faults} minor faults in {appends} appends with {rolls} rolls, {ready} of them prepared"
    )
    assert rolls == 200
    assert faults <= appends // 10, "the worker took the faults, not the appending thread"


PINNING = re.compile(r"sched_setaffinity\(")


def traced(tmp, *command):
    """The output of an example, and the system calls of each of its threads: (time, call)."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    # -ff, a file for each thread: in one file strace splits calls that other threads interrupt.
    strace = ["strace", "-ff", "-ttt", "-qq", "-o", tmp / "calls", sys.executable]
    done = subprocess.run(
        [*strace, *command], cwd=ROOT, capture_output=True, text=True, timeout=100, check=True
    )
    logs = [log.read_text().splitlines() for log in tmp.glob("calls.*")]
    return done.stdout, [[line.split(" ", 1) for line in log] for log in logs]


def between(threads, first, last):
    """The calls of one thread after the one that matches `first` and before `last`."""
    (calls,) = [calls for calls in threads if any(first.match(call) for _, call in calls)]
    (begin,) = [i for i, (_, call) in enumerate(calls) if first.match(call)]
    (end,) = [i for i, (_, call) in enumerate(calls) if last in call]
    return calls[begin + 1 : end]


def test_the_hot_loop_of_the_examples_makes_no_system_call(tmp):
    records = 2_000
    feeding = ["examples/feed.py", tmp / "prices", "--seconds", "90", "--rate", "20000"]
    with subprocess.Popen([sys.executable, *feeding], cwd=ROOT, stdout=subprocess.DEVNULL) as feed:
        command = ["examples/hot_loop.py", tmp / "prices", tmp / "orders"]
        said, threads = traced(tmp, *command, "--records", str(records))
        feed.terminate()
    assert f"answered {records} prices, the last was {records - 1}" in said
    assert between(threads, PINNING, "hot_loop: answered") == []


STRATEGY = """
    import sys, time
    import tapewire as tw
    from tapewire import bus
    me = bus.Layout(sys.argv[1]).orders.strategy(sys.argv[2])
    with (
        tw.open_publisher(me.orders_out, segment_bytes=1 << 20) as orders,
        bus.SubscriberDiscovery(me.orders_in, "me", interval=0.01) as discovery,
    ):
        bus.mark_ready(me.orders_out)
        bus.write_lease(me.orders_out)
        while not isinstance(event := discovery.poll(), bus.Connected):
            time.sleep(0.001)
        for n in range(int(sys.argv[3])):
            orders.append(0x3001, b"%d" % n)
            while (fill := event.reader.next()) is None:  # who sleeps in wait() has to be woken
                time.sleep(0.0002)
            assert bytes(fill.payload) == b"%d" % n
"""


def test_the_hot_loop_of_the_router_makes_no_system_call_while_its_sidecar_sleeps(tmp):
    orders = 1_000
    strategies = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(STRATEGY), tmp / "bus", name, str(orders)]
        )
        for name in ("alpha", "beta")
    ]
    try:
        command = ["examples/router_hot_loop.py", tmp / "bus", "--strategies", "2"]
        said, threads = traced(tmp, *command, "--orders", str(2 * orders))
        assert [strategy.wait(60) for strategy in strategies] == [0, 0]
    finally:
        for strategy in strategies:
            strategy.kill()
            strategy.wait()
    assert f"answered {2 * orders} orders of 2 strategies" in said
    (sidecar,) = [t for t in threads if any("inotify_add_watch(" in call for _, call in t)]
    asleep = [time for time, call in sidecar if re.match(r"epoll_p?wait", call)][-1]
    calls = [c for c in between(threads, PINNING, "router: answered") if c[0] >= asleep]
    # When it goes to sleep, the sidecar releases the GIL, which may cost the hot thread some calls.
    assert len(calls) <= 4, "one order in hundreds made a system call"
    assert all(call.startswith("futex(") for _, call in calls)
