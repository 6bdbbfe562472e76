"""`tapewire demo` as a command."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tapewire import archive
from tapewire.cli.app import app
from tapewire.demo import pipeline, run
from tapewire.demo.audit import Disagreement
from tapewire.demo.process_group import DemoFailed
from tests.unit.demo.small_bus import play

TAPEWIRE = [sys.executable, "-m", "tapewire.cli"]


def processes_of(demo):
    """{pid: settings} of a demo's processes when all have started; None for the commands."""
    found = {}
    for pid in Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split():
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if {b"snapshotter", b"archive"} & set(arguments):  # it has executed the command
            found[int(pid)] = None
        elif len(arguments) > 1 and arguments[-2].startswith(
            b"{"
        ):  # otherwise it has not started yet
            found[int(pid)] = json.loads(arguments[-2])
    commands = sum(settings is None for settings in found.values())
    return found if commands == 2 and len(found) == 6 else None


@contextlib.contextmanager
def running_demo(*arguments):
    with subprocess.Popen(
        [*TAPEWIRE, "demo", "--seconds", "30", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def fails_with(monkeypatch, name, error):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(run, name, fail)
    return CliRunner().invoke(app, ["demo", "--seconds", "2"])


def test_it_writes_a_page_and_prints_one_object(tmp):
    done = subprocess.run(
        [
            *TAPEWIRE,
            "demo",
            "--seconds",
            "2",
            "--seed",
            "3",
            "--json",
            "--no-spark",
            "--out",
            tmp / "out",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    assert result["agrees"]
    assert len(result["recoveries"]) == 4
    assert result["joiner"]["snapshot"] > 0
    assert (tmp / "out" / "index.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def run_without_spark(monkeypatch, tmp, *arguments):
    """Run the command with a short session, where Spark is not available."""
    paths, history = play(tmp / "bus")
    archive.tap(paths.root, paths.archive).run(follow=False)
    monkeypatch.setattr(run, "run_session", lambda *arguments: history)
    monkeypatch.setattr(run, "scratch", lambda keep: contextlib.nullcontext(paths.root))
    monkeypatch.setattr(pipeline, "why_no_spark", lambda: "Spark is an extra")
    return CliRunner().invoke(app, ["demo", "--json", "--out", str(tmp / "out"), *arguments])


def test_a_missing_spark_is_reported_and_skipped(monkeypatch, tmp):
    result = run_without_spark(monkeypatch, tmp)
    assert result.exit_code == 0
    assert "skipping Spark: Spark is an extra" in result.stderr
    shown = json.loads(result.stdout)
    assert shown["spark"] is None
    assert shown["archive"]["records"] > 100


def test_no_spark_skips_it_silently(monkeypatch, tmp):
    result = run_without_spark(monkeypatch, tmp, "--no-spark")
    assert result.exit_code == 0
    assert result.stderr == ""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_it_computes_tables(tmp):
    pytest.importorskip("pyspark")
    done = subprocess.run(
        [*TAPEWIRE, "demo", "--seconds", "4", "--json", "--out", tmp / "out"],
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    assert [job["job"] for job in result["spark"]["jobs"]] == ["refine", "features", "quality"]
    assert result["spark"]["features"]["rows"] > 20
    for name in result["spark"]["pages"].values():
        assert f'href="{name}"' in (tmp / "out" / "index.html").read_text(encoding="utf-8")
        assert (tmp / "out" / name).exists()


def test_ctrl_c_leaves_no_process_and_no_bus(tmp, eventually):
    with running_demo("--out", tmp / "out") as demo:
        processes = eventually(lambda: processes_of(demo))
        demo.send_signal(signal.SIGINT)
        out, err = demo.communicate(timeout=20)
    assert demo.returncode == 130, out + err
    assert "Traceback" not in err
    for pid, settings in processes.items():
        assert eventually(lambda pid=pid: not Path(f"/proc/{pid}").exists())
        assert settings is None or not Path(settings["root"]).exists()


def test_a_killed_demo_ends_its_processes(tmp, eventually):
    with running_demo("--out", tmp / "out") as demo:
        processes = eventually(lambda: processes_of(demo))
        root = Path(next(filter(None, processes.values()))["root"])
        try:
            # A process writes its first lease after prctl, which ends it with the demo.
            eventually(lambda: len(list(root.rglob("LEASE"))) == 4)
            demo.kill()
            eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes))
        finally:
            shutil.rmtree(root)


def test_disagreeing_logs_exit_3(monkeypatch):
    monkeypatch.setattr(run, "run_session", lambda *arguments: None)
    result = fails_with(monkeypatch, "audit_session", Disagreement("a fill is lost"))
    assert result.exit_code == 3
    assert "a fill is lost" in result.stderr


def test_a_failed_process_exits_1(monkeypatch):
    result = fails_with(monkeypatch, "run_session", DemoFailed("router ended with exit code 1"))
    assert result.exit_code == 1
    assert "router ended" in result.stderr


def test_a_file_that_is_not_a_capture_is_refused_before_any_process_starts(tmp):
    (tmp / "notes.txt").write_text("hello\n")
    done = subprocess.run(
        [*TAPEWIRE, "demo", "--capture", tmp / "notes.txt"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "not a line of a depth capture: line=1" in done.stderr
