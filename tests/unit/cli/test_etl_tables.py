"""`tapewire etl features | bars | quality`: what is typed reaches the job as it was meant."""

import pytest
from typer.testing import CliRunner

from tapewire.cli import etl_tables
from tapewire.cli.app import app
from tests.support.commands import tapewire

pytest.importorskip("pyspark", reason="needs pyspark")


@pytest.fixture
def asked(monkeypatch):
    """Run a command without Spark; ``(job, source, target, options)`` that it asks for."""
    found = []
    monkeypatch.setattr(
        etl_tables,
        "run_job",
        lambda name, master, conf, as_json, source, target, **options: found.append(
            (name, source, target, options)
        ),
    )

    def run(*words):
        result = CliRunner().invoke(app, ["etl", *words])
        assert result.exit_code == 0, result.output
        [(name, source, target, options)] = found
        assert (source, target) == ("in", "out")
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


def test_every_job_is_a_command_with_its_own_help():
    for job in ("features", "bars", "quality"):
        shown = CliRunner().invoke(app, ["etl", job, "--help"])
        assert shown.exit_code == 0, shown.output
        assert f"etl {job} [OPTIONS]" in shown.output


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["bars", ".", "out", "--kind", "hour"], 2, "kind='hour'"),
        (["features", ".", "out", "--names", "mid,nosuch"], 2, "name='nosuch'"),
        (["features", ".", "out", "--sample", "1parsec"], 2, "sample='1parsec'"),
        (["quality", "not-there", "out"], 4, "not-there"),
    ],
)
def test_what_is_typed_wrongly_is_told_before_spark_starts(words, code, told, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")  # Spark, if it were started, would tell of that
    ran = tapewire("etl", *words)
    assert ran.code == code
    assert told in ran.err
