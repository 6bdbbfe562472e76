"""`tapewire etl`: what is said where Spark cannot start, and what is refused before it does."""

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
def test_without_a_java_runtime_it_says_so(arguments, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    ran = tapewire("etl", *arguments)
    assert ran.code == 2
    assert f"JAVA_HOME must be a directory with bin/java: JAVA_HOME={tmp_path}" in ran.err
    assert "apt-get install" in ran.err


def test_without_spark_it_says_how_to_install_it():
    code, said = without_spark("refine", "raw", "clean")
    assert code == 2
    assert "pip install 'tapewire[spark]'" in said
    assert "Traceback" not in said


def test_help_does_not_need_spark():
    code, said = without_spark("--help")
    assert code == 0
    assert all(job in said for job in ("import", "refine", "compact"))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("refine", "a", "b", "--conf", "nothing"), "not a setting"),
        (("import", "a", "b", "--format", "nobody"), "not a format"),
        (("import", "a", "b", "--format", "okx", "--option", "x=1"), "not an option"),
    ],
)
def test_what_cannot_be_is_refused_before_spark_starts(arguments, why, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    ran = tapewire("etl", *arguments)
    assert ran.code == 2
    assert why in ran.err


@pytest.mark.parametrize("midway", [True, False])
def test_a_spark_that_is_stopped_midway_does_not_tell_of_its_tasks(midway):
    said = []
    context = SimpleNamespace(setLogLevel=said.append)
    session = SimpleNamespace(_sc=context, stop=lambda: said.append("stopped"))
    etl._stop(session, midway)
    assert said == (["OFF", "stopped"] if midway else ["stopped"])
