"""What an append asks of the kernel: nothing."""

import re
import shutil
import subprocess
import sys

import pytest

import tapewire as tw
from tests.crash import disk
from tests.crash.crew import ROOT
from tests.crash.scripts import calls_between_markers

A_MILLION_APPENDS = """
    import sys, pathlib, time
    import tapewire as tw
    queue = pathlib.Path(sys.argv[1])
    payload = bytes(64)
    with tw.open_publisher(queue, segment_bytes=256 << 20) as writer:
        while not (queue / "000000001.q").exists():  # prepared after this one was populated
            time.sleep(0.001)
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
    calls = calls_between_markers(A_MILLION_APPENDS, tmp / "queue", log=tmp / "strace.txt")
    assert calls == []


BEHIND_A_DEAD_READER = """
    import sys
    import tapewire as tw
    payload = bytes(64)
    with tw.open_publisher(sys.argv[1]) as writer:
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
    assert (faults, rolls) == (0, 0)
    assert appends > 10_000


def test_page_faults_through_rolls_into_prepared_segments(tmp, crew, record_property):
    child = crew.start(
        "actors.faulter", queue=str(tmp / "queue"), segment_bytes=64 << 10, rolls=200
    )
    faults, appends, rolls, ready = child.expect("faults")
    record_property("minor_faults", faults)
    print(
        f"{faults} minor faults in {appends} appends with {rolls} rolls, {ready} of them prepared"
    )
    assert rolls == 200
    assert faults <= appends // 10, "the worker took the faults, not the appending thread"


PINNING = re.compile(r"sched_setaffinity\(")


def test_the_hot_loop_of_the_examples_makes_no_system_call(tmp):
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    records = 2_000
    feeding = ["examples/feed.py", tmp / "prices", "--seconds", "90", "--rate", "20000"]
    with subprocess.Popen([sys.executable, *feeding], cwd=ROOT, stdout=subprocess.DEVNULL) as feed:
        # -ff, a file for each thread: in one, strace splits calls that other threads interrupt.
        command = ["strace", "-ff", "-qq", "-o", tmp / "calls", sys.executable]
        command += ["examples/hot_loop.py", tmp / "prices", tmp / "orders"]
        done = subprocess.run(
            [*command, "--records", str(records)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        feed.terminate()
    assert f"answered {records} prices, the last was {records - 1}" in done.stdout
    threads = [log.read_text().splitlines() for log in tmp.glob("calls.*")]
    (calls,) = [calls for calls in threads if any(map(PINNING.match, calls))]
    (pinned,) = [i for i, call in enumerate(calls) if PINNING.match(call)]
    assert "hot_loop: answered" in calls[pinned + 1], "nothing between pinning and printing"
