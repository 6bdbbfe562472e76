"""`tapewire etl`: errors when Spark cannot start, and errors that are reported before it starts."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from tapewire.cli import etl
from tests.support.commands import tapewire

COMMAND = "import sys; sys.modules['pyspark'] = None; from tapewire.cli.app import main; main()"


def without_spark(*arguments):
    """A new interpreter in which pyspark cannot be imported."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "etl", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


JOBS = [
    ("import", ".", "to", "--format", "okx"),
    ("refine", ".", "clean"),
    ("compact", ".", "parquet"),
]


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("arguments", JOBS, ids=lambda arguments: arguments[0])
def test_a_missing_java_runtime_is_reported(arguments, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    ran = tapewire("etl", *arguments)
    assert ran.code == 2
    assert f"JAVA_HOME must be a directory with bin/java: JAVA_HOME={tmp_path}" in ran.err
    assert "apt-get install" in ran.err


def test_without_pyspark_the_error_states_how_to_install_it():
    code, output = without_spark("refine", ".", "clean")
    assert code == 2
    assert "pip install 'tapewire[spark]'" in output
    assert "Traceback" not in output


def test_a_missing_source_is_reported_without_pyspark():
    code, output = without_spark("refine", "not-there", "clean")
    assert code == 4
    assert "no such file or directory: not-there" in output


@pytest.mark.parametrize("job", ["import", "refine", "compact", "features", "bars", "quality"])
def test_help_does_not_need_pyspark(job):
    code, output = without_spark(job, "--help")
    assert code == 0
    assert f"etl {job} [OPTIONS]" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("refine", "a", "b", "--conf", "nothing"), "invalid setting: --conf nothing"),
        (("import", "a", "b", "--format", "unknown"), "unknown format: format=unknown"),
        (
            ("import", "a", "b", "--format", "okx", "--option", "x=1"),
            "invalid option of this format: --option x=1",
        ),
    ],
)
def test_invalid_options_are_refused_before_spark_starts(arguments, message, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    ran = tapewire("etl", *arguments)
    assert ran.code == 2
    assert message in ran.err


@pytest.mark.parametrize("midway", [True, False])
def test_spark_logs_nothing_when_it_is_stopped_midway(midway):
    calls = []
    context = SimpleNamespace(setLogLevel=calls.append)
    session = SimpleNamespace(_sc=context, stop=lambda: calls.append("stopped"))
    etl._stop(session, midway)
    assert calls == (["OFF", "stopped"] if midway else ["stopped"])
