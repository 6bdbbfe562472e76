"""A process group receives events, kills processes, and leaves none running."""

import json
import os
import time

import pytest

from tapewire.demo.process_group import DemoFailed, ProcessGroup

SPEAKER = """
import json, sys, time
print(json.dumps({"event": "hello", "time_ns": 1, "argument": sys.argv[1]}), flush=True)
if sys.argv[1] == "fail":
    raise SystemExit("cannot continue")
if sys.argv[1] == "stay":
    time.sleep(60)
"""


@pytest.fixture
def processes(tmp, monkeypatch):
    (tmp / "speaker.py").write_text(SPEAKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp))
    with ProcessGroup(tmp / "logs") as processes:
        yield processes


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_events_of_a_process_that_has_ended_are_received(processes):
    processes.start("one", "speaker", "end")
    processes.wait_for(lambda: not processes.runs("one"), "its end")
    [found] = processes.events
    assert (found.process, found.event, found.facts) == ("one", "hello", {"argument": "end"})


def test_a_failed_process_fails_the_demo_with_its_log(processes):
    processes.start("one", "speaker", "fail")
    with pytest.raises(DemoFailed, match=r"one ended with exit code 1.*cannot continue"):
        processes.wait_for(lambda: False, "nothing")


def test_a_killed_process_is_not_a_failure(processes):
    processes.start("one", "speaker", "stay")
    processes.wait_for(lambda: processes.count("one", "hello") == 1, "a word")
    pid = processes.kill("one")
    assert not alive(pid)
    assert not processes.runs("one")
    processes.listen(until=time.monotonic())


def test_closing_the_group_ends_every_process(processes):
    pids = [processes.start(str(n), "speaker", "stay") for n in range(3)]
    assert all(map(alive, pids))
    processes.close()
    assert not any(map(alive, pids))


def test_a_timeout_states_what_was_waited_for(processes, monkeypatch):
    monkeypatch.setattr("tapewire.demo.process_group._TIMEOUT_SECONDS", 0.05)
    with pytest.raises(DemoFailed, match="in vain for a miracle"):
        processes.wait_for(lambda: False, "a miracle")


def test_an_invalid_line_fails_the_demo(processes, tmp):
    (tmp / "babbler.py").write_text("print('hello')")
    processes.start("one", "babbler", json.dumps({}))
    with pytest.raises(DemoFailed, match="one reported an invalid line"):
        processes.wait_for(lambda: not processes.runs("one"), "its end")
