"""Importing files with Spark gives the same archive as importing them one by one."""

import gzip
import os
import shutil

import pytest

from tapewire import ingest
from tapewire.spark import jobs
from tests.support.captures import content_of, futures_lines


@pytest.fixture
def captures(tmp_path):
    """Captures of two pairs of symbols, over midnight, with bad rows and a gap."""
    directory = tmp_path / "captures"
    directory.mkdir()
    for seed, symbols in enumerate([("AAA", "BBB"), ("CCC", "DDD")]):
        lines = futures_lines(3_000, seed=seed, symbols=symbols, gap_at=1_500)
        half = len(lines) // 2
        name = "".join(symbols).lower()
        for day, part in (("20231114", lines[:half]), ("20231115", lines[half:])):
            (directory / f"{name}_{day}.gz").write_bytes(gzip.compress(b"\n".join(part) + b"\n"))
    return directory


def one_by_one(captures, archive):
    for name in ("aaabbb", "cccddd"):
        ingest.run("binance-usdm", sorted(captures.glob(f"{name}_*")), archive)
    return content_of(archive)


def test_the_archive_equals_that_of_imports_one_by_one(spark, captures, tmp_path):
    summary = jobs.import_files(spark, captures, tmp_path / "archive", format="binance-usdm")

    assert content_of(tmp_path / "archive") == one_by_one(captures, tmp_path / "plain")
    assert (summary.done, summary.failed) == (2, 0)
    assert summary.counts["gaps"] >= 2
    assert summary.counts["bad_rows"] > 10
    assert summary.exit_code == 1
    assert any("rejected.jsonl" in finding.where for finding in summary.findings)


def test_another_run_does_nothing_and_reports_the_same(spark, captures, tmp_path):
    first = jobs.import_files(spark, captures, tmp_path / "archive", format="binance-usdm")
    before = content_of(tmp_path / "archive")
    again = jobs.import_files(spark, captures, tmp_path / "archive", format="binance-usdm")

    assert (again.done, again.skipped, again.rows) == (0, 2, 0)
    assert set(again.findings) == set(first.findings)
    assert again.counts == first.counts
    assert content_of(tmp_path / "archive") == before


def test_the_next_day_is_imported_after_the_others(spark, captures, tmp_path):
    later = captures / "aaabbb_20231115.gz"
    shutil.move(later, tmp_path / "later.gz")
    jobs.import_files(spark, captures, tmp_path / "archive", format="binance-usdm")
    shutil.move(tmp_path / "later.gz", later)
    os.utime(captures / "aaabbb_20231114.gz")  # touched, with the same content
    summary = jobs.import_files(spark, captures, tmp_path / "archive", format="binance-usdm")

    for file in sorted(captures.glob("aaabbb_*")):
        ingest.run("binance-usdm", [file], tmp_path / "plain")
    ingest.run("binance-usdm", sorted(captures.glob("cccddd_*")), tmp_path / "plain")
    assert content_of(tmp_path / "archive") == content_of(tmp_path / "plain")
    assert (summary.done, summary.skipped) == (1, 1)


def test_a_truncated_file_is_reported_and_the_others_are_imported(spark, captures, tmp_path):
    broken = captures / "aaabbb_20231114.gz"
    broken.write_bytes(broken.read_bytes()[:-2000])
    summary = jobs.import_files(spark, captures, tmp_path / "archive", format="binance-usdm")

    assert (summary.done, summary.failed, summary.exit_code) == (1, 1, 3)
    (damage,) = [finding for finding in summary.findings if finding.kind == "damage"]
    assert damage.where == str(broken)
    ingest.run("binance-usdm", sorted(captures.glob("cccddd_*")), tmp_path / "plain")
    got, want = content_of(tmp_path / "archive"), content_of(tmp_path / "plain")
    logs = [key for key in want if "CCC" in str(key) or "DDD" in str(key)]
    assert len(logs) > 4
    assert {key: got[key] for key in logs} == {key: want[key] for key in logs}


def test_a_file_that_changed_after_its_import_is_refused(spark, captures, tmp_path):
    jobs.import_files(spark, captures, tmp_path / "archive", format="binance-usdm")
    before = content_of(tmp_path / "archive")
    changed = captures / "aaabbb_20231114.gz"
    changed.write_bytes(gzip.compress(gzip.decompress(changed.read_bytes())[:-5000]))
    summary = jobs.import_files(spark, captures, tmp_path / "archive", format="binance-usdm")

    assert (summary.failed, summary.skipped) == (1, 1)
    assert "changed since it was imported" in str(summary)
    assert content_of(tmp_path / "archive") == before


def test_units_that_write_to_the_same_log_are_reported(spark, captures, tmp_path):
    """Cut in the middle of a day: the second one is refused or reported."""
    summary = jobs.import_files(
        spark, captures / "aaabbb_*", tmp_path / "archive", format="binance-usdm", unit="file"
    )
    assert summary.exit_code == 3
    refused = ("another import is unfinished", "the queue has a writer")
    assert any(text in str(summary) for text in ("two units", *refused))
