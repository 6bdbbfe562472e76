"""`tapewire demo`, as a person runs it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from tapewire.cli.app import app
from tapewire.demo import run
from tapewire.demo.audit import Disagreement
from tapewire.demo.stage import DemoFailed

TAPEWIRE = [sys.executable, "-m", "tapewire.cli"]


def started_by(pid):
    """Processes whose parent this is."""
    tasks = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in tasks.split()]


def fails_with(monkeypatch, name, error):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(run, name, fail)
    return CliRunner().invoke(app, ["demo", "--seconds", "2"])


def test_it_writes_a_page_and_prints_one_object(tmp):
    done = subprocess.run(
        [*TAPEWIRE, "demo", "--seconds", "2", "--seed", "3", "--json", "--out", tmp / "out"],
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    assert result["agrees"]
    assert len(result["recoveries"]) == 3
    assert (tmp / "out" / "index.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_ctrl_c_leaves_no_process_and_no_bus(tmp, eventually):
    environment = dict(os.environ, TMPDIR=str(tmp))
    process = subprocess.Popen(
        [*TAPEWIRE, "demo", "--seconds", "30", "--out", tmp / "out"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    children = eventually(lambda: len(started_by(process.pid)) == 4 and started_by(process.pid))
    roots = {Path(json.loads(arguments_of(child))["root"]) for child in children}
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130, out + err
    assert "Traceback" not in err
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert not any(root.exists() for root in roots)


def arguments_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2]


def test_a_killed_demo_takes_its_processes_along(tmp, eventually):
    process = subprocess.Popen(
        [*TAPEWIRE, "demo", "--seconds", "30", "--out", tmp / "out", "--keep"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    children = eventually(lambda: len(started_by(process.pid)) == 4 and started_by(process.pid))
    root = Path(json.loads(arguments_of(children[0]))["root"])
    # From the first lease on each has asked for it.
    eventually(lambda: len(list(root.rglob("LEASE"))) == 4)
    process.kill()
    process.wait()
    eventually(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def test_disagreeing_tapes_end_with_3(monkeypatch):
    monkeypatch.setattr(run, "perform", lambda *arguments: None)
    result = fails_with(monkeypatch, "audited", Disagreement("a fill is lost"))
    assert result.exit_code == 3
    assert "a fill is lost" in result.stderr


def test_a_process_that_failed_ends_it_with_1(monkeypatch):
    result = fails_with(monkeypatch, "perform", DemoFailed("router ended with exit code 1"))
    assert result.exit_code == 1
    assert "router ended" in result.stderr
