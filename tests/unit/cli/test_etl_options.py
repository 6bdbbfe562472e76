"""`tapewire etl JOB`: arguments and options reach the job."""

import inspect

import pytest
from typer.testing import CliRunner

from tapewire.cli import etl, etl_tables
from tapewire.cli.app import app
from tests.support.commands import tapewire

pytest.importorskip("pyspark", reason="needs pyspark")


@pytest.fixture
def asked(monkeypatch):
    """Run a command without Spark; returns the job that it calls and the options it passes."""
    from tapewire.spark import jobs

    called = []

    def record(name, signature):
        def job(*positional, **named):
            given = signature.bind(*positional, **named)
            called.append((name, given.arguments))

        return job

    for name in ("bars", "compact", "features", "import_files", "quality", "refine"):
        monkeypatch.setattr(jobs, name, record(name, inspect.signature(getattr(jobs, name))))

    def run_job(name, job, source, master, conf, as_json):
        called.append((name, {"source": source}))
        job("session", "progress")

    monkeypatch.setattr(etl, "run_job", run_job)
    monkeypatch.setattr(etl_tables, "run_job", run_job)

    def run(*words):
        result = CliRunner().invoke(app, ["etl", *words])
        assert result.exit_code == 0, result.output
        [(shown, checked), (name, options)] = called
        assert shown == words[0]
        assert checked == {"source": "in"}
        assert (options.pop("spark"), options.pop("progress")) == ("session", "progress")
        assert (options.pop("source"), options.pop("target")) == ("in", "out")
        return name, {key: value for key, value in options.items() if value is not None}

    return run


def test_features(asked):
    name, options = asked("features", "in", "out", "--names", "mid, ofi", "--sample", "100ms")
    assert name == "features"
    assert options == {"names": ["mid", "ofi"], "sample": "100ms", "plots": 6}


def test_bars(asked):
    words = ["--kind", "volume", "--size", "2.5", "--symbol", "a:X", "--symbol", "Y"]
    name, options = asked("bars", "in", "out", *words, "--date", "2024-03-01")
    assert name == "bars"
    assert options == {
        "kind": "volume",
        "size": "2.5",
        "symbols": ["a:X", "Y"],
        "dates": ["2024-03-01"],
    }


def test_quality(asked):
    words = ["--late", "2s", "--early", "1ms", "--behind", "3ms", "--clock-drift", "4ms"]
    name, options = asked("quality", "in", "out", *words, "--levels", "5", "--plots", "0")
    assert name == "quality"
    assert options == {
        "late": "2s",
        "early": "1ms",
        "behind": "3ms",
        "clock_drift": "4ms",
        "levels": 5,
        "plots": 0,
    }


def test_refine(asked):
    words = ["--late", "drop", "--lateness", "2", "--snapshot-seconds", "5", "--skip-damaged"]
    name, options = asked("refine", "in", "out", *words)
    assert name == "refine"
    assert options == {
        "late": "drop",
        "lateness": 2.0,
        "snapshot_seconds": 5.0,
        "on_damage": "skip",
        "shared": False,
    }


def test_compact(asked):
    words = ["--to", "archive", "--target-bytes", "8192", "--codec", "snappy", "--yes"]
    name, options = asked("compact", "in", "out", *words)
    assert name == "compact"
    assert options == {"to": "archive", "target_bytes": 8192, "codec": "snappy", "yes": True}


def test_import(asked):
    words = ["--format", "tardis", "--unit", "all", "--symbol", "X", "--option", "keep_wire=true"]
    name, options = asked("import", "in", "out", *words)
    assert name == "import_files"
    assert options == {
        "format": "tardis",
        "unit": "all",
        "options": {"symbols": ("X",), "keep_wire": True},
    }


@pytest.mark.parametrize("job", ["import", "refine", "compact", "features", "bars", "quality"])
def test_every_job_is_a_command_with_its_own_help(job):
    shown = CliRunner().invoke(app, ["etl", job, "--help"])
    assert shown.exit_code == 0, shown.output
    assert f"etl {job} [OPTIONS]" in shown.output


@pytest.mark.parametrize(
    ("words", "code", "reported"),
    [
        (["bars", ".", "out", "--kind", "hour"], 2, "kind='hour'"),
        (["features", ".", "out", "--names", "mid,nosuch"], 2, "name='nosuch'"),
        (["features", ".", "out", "--sample", "1parsec"], 2, "sample='1parsec'"),
        (["quality", "not-there", "out"], 4, "not-there"),
    ],
)
def test_invalid_arguments_are_reported_before_spark_starts(words, code, reported, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")  # Spark would report this if it were started
    ran = tapewire("etl", *words)
    assert ran.code == code
    assert reported in ran.err
