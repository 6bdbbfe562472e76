"""Processes on the stage are heard, killed, and never left behind."""

import json
import os
import time

import pytest

from tapewire.demo.stage import DemoFailed, Stage

SPEAKER = """
import json, sys, time
print(json.dumps({"event": "hello", "time_ns": 1, "argument": sys.argv[1]}), flush=True)
if sys.argv[1] == "fail":
    raise SystemExit("I cannot go on")
if sys.argv[1] == "stay":
    time.sleep(60)
"""


@pytest.fixture
def stage(tmp, monkeypatch):
    (tmp / "speaker.py").write_text(SPEAKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp))
    with Stage(tmp / "logs") as stage:
        yield stage


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_hears_what_a_process_tells_even_when_that_has_ended(stage):
    stage.start("one", "speaker", "end")
    stage.wait_for(lambda: not stage.runs("one"), "its end")
    [told] = stage.told
    assert (told.process, told.event, told.facts) == ("one", "hello", {"argument": "end"})


def test_a_process_that_fails_fails_the_demo_with_its_last_words(stage):
    stage.start("one", "speaker", "fail")
    with pytest.raises(DemoFailed, match=r"one ended with exit code 1.*I cannot go on"):
        stage.wait_for(lambda: False, "nothing")


def test_a_killed_process_is_gone_and_no_failure(stage):
    stage.start("one", "speaker", "stay")
    stage.wait_for(lambda: stage.count("one", "hello") == 1, "a word")
    pid = stage.kill("one")
    assert not alive(pid)
    assert not stage.runs("one")
    stage.listen(until=time.monotonic())


def test_leaving_the_stage_ends_every_process(stage):
    pids = [stage.start(str(n), "speaker", "stay") for n in range(3)]
    assert all(map(alive, pids))
    stage.close()
    assert not any(map(alive, pids))


def test_waiting_in_vain_says_for_what(stage, monkeypatch):
    monkeypatch.setattr("tapewire.demo.stage._PATIENCE", 0.05)
    with pytest.raises(DemoFailed, match="in vain for a miracle"):
        stage.wait_for(lambda: False, "a miracle")


def test_a_line_of_another_form_fails_the_demo(stage, tmp):
    (tmp / "babbler.py").write_text("print('hello')")
    stage.start("one", "babbler", json.dumps({}))
    with pytest.raises(DemoFailed, match="one told what cannot be read"):
        stage.wait_for(lambda: not stage.runs("one"), "its end")
