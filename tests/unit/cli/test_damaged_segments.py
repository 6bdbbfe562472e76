"""How the commands that read logs report a segment with a damaged header."""

import pytest

import tapewire as tw
from tapewire.queue import status
from tests.support.commands import tapewire
from tests.support.crafted import break_header
from tests.support.taps import MIDNIGHT_NS

RECORDS = 100
PLACES = pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "middle", "last"])


def write(path):
    with tw.open_publisher(path, segment_bytes=8192) as writer:
        for n in range(RECORDS):
            writer.append(1, b"x" * 200, timestamp_ns=MIDNIGHT_NS + n)
    return path


def damage(log, which):
    """Damage a segment header; return the file's name and the sequence numbers that are left."""
    parts = [part for part in status(log).segments if part.holds_records]
    starts = [*(part.first_seq for part in parts), RECORDS]
    place = range(len(parts))[which]
    break_header(parts[place].path)
    lost = range(starts[place], starts[place + 1])
    return f"{parts[place].id:09}.q", [n for n in range(RECORDS) if n not in lost]


@PLACES
def test_tail_reports_it_and_shows_the_rest(tmp, which):
    log = write(tmp / "q")
    name, left = damage(log, which)
    for asked in (("--from-seq", 0), ("-n", 1000)):
        ran = tapewire("tail", log, *asked, "--json")
        assert ran.code == 3
        assert [record["seq"] for record in ran.json] == left
        assert ran.err.count("segment header is damaged") == 1
        assert name in ran.err


@PLACES
def test_export_ends_there_or_skips_it(tmp, which):
    log = write(tmp / "q")
    name, left = damage(log, which)
    ran = tapewire("export", log, "--to", tmp / "all.jsonl")
    assert ran.code == 3
    assert "segment header is damaged" in ran.err
    assert name in ran.err
    assert not (tmp / "all.jsonl").exists()
    ran = tapewire("export", log, "--to", tmp / "all.jsonl", "--skip-damaged", "--json")
    (summary,) = ran.json
    assert (ran.code, summary["records"], len(summary["damaged"])) == (0, len(left), 1)


@PLACES
def test_verify_reports_its_file(tmp, which):
    log = write(tmp / "q")
    name, left = damage(log, which)
    ran = tapewire("verify", log, "--json")
    (verdict,) = ran.json
    assert (ran.code, verdict["records"], verdict["damaged_places"]) == (3, len(left), 1)
    assert verdict["damage"][0]["file"].endswith(name)
    assert verdict["complete"] == (which != -1)


@PLACES
def test_archive_verify_reports_it(tmp, which):
    log = write(tmp / "archive/v1/okx/BTCUSDT/2026-01-01/trades")
    _, left = damage(log, which)
    ran = tapewire("archive", "verify", tmp / "archive", "--json")
    (reported,) = ran.json
    assert ran.code == 3
    assert [(each["intact"], each["records"]) for each in reported["logs"]] == [(False, len(left))]


@PLACES
def test_a_tap_skips_and_reports_it(tmp, which):
    log = write(tmp / "q")
    _, left = damage(log, which)
    names = ("--venue", "okx", "--symbol", "BTCUSDT", "--stream", "trades")
    ran = tapewire("archive", "tap", log, "--to", tmp / "archive", *names, "--once", "--json")
    assert ran.code == 1
    reported = ran.json[-1]
    assert any("segment header is damaged" in finding for finding in reported["findings"])
    with tw.open_log(tmp / "archive/v1/okx/BTCUSDT/2026-01-01/trades") as reader:
        assert [record.seq for record in reader] == left
