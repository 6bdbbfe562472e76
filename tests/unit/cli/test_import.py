"""`tapewire import`: its table, its JSON, its exit codes."""

import gzip

import pytest

from tapewire import ingest
from tests.support.captures import futures_lines, write_capture
from tests.support.commands import tapewire

FORMAT = "binance-usdm"


@pytest.fixture
def clean(tmp):
    return write_capture(tmp / "clean.gz", futures_lines(200, bad_every=0))


@pytest.fixture
def faulty(tmp):
    return write_capture(tmp / "faulty.gz", futures_lines(300, bad_every=29, gap_at=70))


def test_an_import_without_findings_exits_0_with_a_table_of_logs(tmp, clean):
    ran = tapewire("import", FORMAT, clean, "--to", tmp / "archive")
    assert ran.code == 0
    head, *rows = ran.out.splitlines()
    assert head.split() == ["log", "records", "new", "gaps"]
    assert any(row.startswith("v1/binance_usdm/AAA/2023-11-14/book ") for row in rows)
    assert "gaps: 0" in rows[-1]
    assert "rows/s" in rows[-1]


def test_the_help_names_every_format():
    shown = " ".join(tapewire("import", "--help").out.split())
    assert [name for name in ingest.IMPORTERS if name not in shown] == []


def test_files_of_another_format_are_reported(tmp, clean):
    ran = tapewire("import", "okx", clean, "--to", tmp / "archive")
    assert ran.code == 1
    assert "check that the files are of this format" in ran.out


def test_a_capture_of_another_market_exits_2_and_names_the_right_format(tmp, clean):
    ran = tapewire("import", "binance-spot", clean, "--to", tmp / "archive")
    assert ran.code == 2
    assert "import it as binance-usdm" in ran.err
    assert not (tmp / "archive").exists()


def test_a_symbol_that_no_file_has_exits_1_and_is_named(tmp, clean):
    ran = tapewire("import", FORMAT, clean, "--to", tmp / "archive", "--symbol", "NOPE")
    assert (ran.code, "NOPE" in ran.err) == (1, True)


def test_bad_rows_and_gaps_exit_1_and_are_counted_by_reason(tmp, faulty):
    ran = tapewire("import", FORMAT, faulty, "--to", tmp / "archive")
    assert ran.code == 1
    assert "bad rows: 11" in ran.out
    assert "not JSON" in ran.out
    assert "rejected.jsonl" in ran.out
    assert "not trusted at the end: binance_usdm/AAA/book" in ran.out
    assert "gaps: 1" in ran.out


def test_json_is_one_object_with_the_same_values(tmp, faulty):
    ran = tapewire("import", FORMAT, faulty, "--to", tmp / "archive", "--json")
    (reported,) = ran.json
    # A gap of the venue, and one of each book that a bad row may have changed.
    assert (reported["bad_rows"], reported["gaps"], reported["already"]) == (11, 15, False)
    assert reported["records"] == sum(log["records"] for log in reported["logs"])
    assert list(reported["untrusted"]) == ["binance_usdm/AAA/book"]


def test_a_second_run_reports_already_imported_and_exits_the_same(tmp, faulty):
    first = tapewire("import", FORMAT, faulty, "--to", tmp / "archive")
    again = tapewire("import", FORMAT, faulty, "--to", tmp / "archive")
    assert again.out.startswith("already imported")
    assert first.code == again.code == 1


def test_a_truncated_file_exits_3_and_is_named(tmp):
    complete = gzip.compress(b"\n".join(futures_lines(3000)))
    (tmp / "cut.gz").write_bytes(complete[: len(complete) // 2])
    ran = tapewire("import", FORMAT, tmp / "cut.gz", "--to", tmp / "archive")
    assert ran.code == 3
    assert "cut.gz" in ran.err


def test_a_missing_file_exits_4(tmp):
    ran = tapewire("import", FORMAT, tmp / "nothing.gz", "--to", tmp / "archive")
    assert ran.code == 4
    assert "nothing.gz" in ran.err


def test_an_unknown_format_exits_2_and_lists_the_known_ones(tmp, clean):
    ran = tapewire("import", "nasdaq-by-post", clean, "--to", tmp / "archive")
    assert ran.code == 2
    assert "binance-spot" in ran.err


def test_options_reach_the_importer(tmp, clean):
    options = ("--symbol", "BBB", "--price-scale", 2, "--option", "size_scale=3", "--keep-wire")
    ran = tapewire("import", FORMAT, clean, "--to", tmp / "archive", *options, "--json")
    assert {log["log"].split("/")[2] for log in ran.json[0]["logs"]} == {"BBB"}
    assert {log["log"].split("/")[4] for log in ran.json[0]["logs"]} >= {"raw", "book"}
    text = (tmp / "archive" / "instruments.json").read_text()
    assert '"price_scale": 2, "size_scale": 3' in text


@pytest.mark.parametrize("option", ["colour=red", "size_scale", "size_scale=x", "keep_wire=maybe"])
def test_an_invalid_option_exits_2(tmp, clean, option):
    ran = tapewire("import", FORMAT, clean, "--to", tmp / "archive", "--option", option)
    assert ran.code == 2
