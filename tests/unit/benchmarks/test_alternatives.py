"""Alternatives: the contract of their modules; their processes and servers always end."""

import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from benchmarks import compare
from benchmarks.compare import measure, nats_jetstream, pyzmq_ipc, server, tables
from benchmarks.harness import Scale
from benchmarks.latency.pair import Trips

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", compare.ALTERNATIVES)
def test_every_alternative_has_a_title_and_something_to_measure(name):
    module = compare.ALTERNATIVES[name].load()
    assert measure.identity(name)["title"] == module.TITLE
    assert module.WHAT
    assert callable(module.missing)
    assert callable(module.version)
    assert callable(module.one_way) or callable(module.throughput)
    if module.throughput is not None:
        assert module.throughput.__doc__, "results say how the throughput was reached"


def test_a_package_or_a_server_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(server, "PLACES", "")
    assert pyzmq_ipc.missing() == "the package pyzmq is not installed"
    assert nats_jetstream.missing() == (
        "the package nats-py is not installed; there is no program nats-server"
    )


def test_an_alternative_that_fails_is_reported_with_the_reason(monkeypatch, capsys):
    def broken(*_):
        raise ValueError("not today\nand more")

    monkeypatch.setattr(pyzmq_ipc, "one_way", broken)
    result = measure.measured_or_failed("pyzmq", Scale(smoke=True))
    assert result["failed"] == "ValueError: not today"
    assert "not today" in capsys.readouterr().err
    assert tables.absent([result]) == [("pyzmq ipc://", "ValueError: not today")]


def test_an_alternative_that_hangs_is_stopped():
    with pytest.raises(TimeoutError, match="not done within"), measure.time_limit(0.05):
        signal.pause()


def test_fewer_messages_than_were_sent_are_a_failure(monkeypatch):
    monkeypatch.setattr(pyzmq_ipc, "one_way", lambda *_: np.zeros(3, np.int64))
    with pytest.raises(RuntimeError, match="200 sent, 3 received"):
        measure.measure("pyzmq", Scale(smoke=True))


def trips(stamp):
    due = np.array([100, 200, 300])
    return Trips(due, due + 5, due + np.array([10, 20, 30]), np.array(stamp))


def test_latency_counts_from_when_a_message_was_due_not_from_when_it_was_sent():
    assert trips([100, 200, 300]).from_due().tolist() == [10, 20, 30]


@pytest.mark.parametrize("stamp", [[100, 300, 200], [100, 100, 200], [0, 200, 300]])
def test_messages_lost_doubled_or_out_of_order_are_found(stamp):
    with pytest.raises(RuntimeError, match="lost, duplicated or reordered"):
        trips(stamp).from_due()


def run(program, *, status=0):
    """Run in a separate process: a fork is safe only without other threads."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


PAIR = """
import contextlib, os
from benchmarks.latency.pair import begin_receiving, run_flow, run_pair

@contextlib.contextmanager
def opened():
    yield lambda *message: None

def childless():
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
"""


def test_a_receiver_that_fails_is_reported_at_once_and_leaves_no_process():
    said = run(
        PAIR
        + """
def receive(shared):
    raise ValueError("broken")

try:
    run_pair(10, 64, 1000, opened, receive)
except RuntimeError as error:
    print(error, childless())
"""
    )
    assert said == "the receiving process failed: status=1 True\n"


def test_a_sender_that_fails_takes_the_receiver_with_it():
    said = run(
        PAIR
        + """
@contextlib.contextmanager
def broken():
    def send_all():
        raise ValueError("broken")
    yield send_all

def receive(shared):
    begin_receiving(shared)
    while True:
        pass

try:
    run_flow(10, broken, receive)
except ValueError as error:
    print(error, childless())
"""
    )
    assert said == "broken True\n"


def test_a_receiver_does_not_outlive_a_killed_sender(eventually):
    program = (
        PAIR
        + """
@contextlib.contextmanager
def killed():
    def send_all():
        os.kill(os.getpid(), 9)
    yield send_all

def receive(shared):
    print(os.getpid(), flush=True)
    begin_receiving(shared)
    while True:
        pass

run_flow(10, killed, receive)
"""
    )
    receiver = int(run(program, status=-signal.SIGKILL))

    def gone():
        try:
            state = Path(f"/proc/{receiver}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        return state == "Z"

    eventually(gone)


def test_a_server_is_gone_after_its_block_even_after_an_error(tmp):
    def block():
        with server.running("sleep", "1000", directory=tmp, answers=lambda: True):
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            raise KeyboardInterrupt(children[-1])

    with pytest.raises(KeyboardInterrupt) as stopped:
        block()
    assert not Path(f"/proc/{stopped.value}").exists()


def test_a_server_that_ends_by_itself_is_reported_with_what_it_said(tmp):
    with (
        pytest.raises(RuntimeError, match=r"(?s)ls ended by itself.*no-such-file"),
        server.running("ls", "no-such-file", directory=tmp, answers=lambda: False),
    ):
        pass
