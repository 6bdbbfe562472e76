"""`tapewire archive tap|ls|verify`."""

import json
import signal
import subprocess
import sys

import pytest

import tapewire as tw
from tests.support.commands import tapewire
from tests.support.taps import DAY_NS, all_archived, clean_queue, fill, records_of, run_once


@pytest.fixture
def bus(tmp):
    fill(clean_queue(tmp / "bus"), 300, step_ns=DAY_NS // 200)
    return tmp / "bus"


def test_tap_to_the_end_reports_what_it_did(tmp, bus):
    ran = tapewire("archive", "tap", bus, "--to", tmp / "archive", "--once")
    assert ran.code == 0
    assert ran.out.startswith("done   300 records of 1 queues into 2 logs, gaps: 0, ")
    ran = tapewire("archive", "tap", bus, "--to", tmp / "archive", "--once", "--json")
    (reported,) = ran.json
    assert (reported["what"], reported["records"], reported["clean"]) == ("done", 0, True)
    assert reported["sources"][0]["stream"] == "okx/BTCUSDT/trades"


def test_tap_exits_1_with_findings_and_reports_them(tmp, bus):
    queue = clean_queue(bus)
    segment = queue / "000000000.q"
    data = bytearray(segment.read_bytes())
    data[64 + 64] ^= 1
    segment.write_bytes(data)
    ran = tapewire("archive", "tap", bus, "--to", tmp / "archive", "--once")
    assert ran.code == 1
    assert "before record 1" in ran.err
    assert "CRC" in ran.err


def test_a_path_outside_a_bus_needs_its_names(tmp):
    fill(tmp / "q", 3)
    ran = tapewire("archive", "tap", tmp / "q", "--to", tmp / "archive", "--once")
    assert ran.code == 2
    assert "does not name what the queue carries" in ran.err
    names = ["--venue", "okx", "--symbol", "BTC", "--stream", "book"]
    assert tapewire("archive", "tap", tmp / "q", "--to", tmp / "a", "--once", *names).code == 0


def test_a_following_tap_exits_0_after_a_signal(tmp, bus, eventually):
    command = [sys.executable, "-m", "tapewire.cli", "archive", "tap", str(bus), "--json"]
    with subprocess.Popen(
        [*command, "--to", str(tmp / "archive")], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            eventually(lambda: clean_queue(bus).joinpath("readers/archive-tap.meta").exists())
            eventually(
                lambda: [r.lag_records for r in tw.queue.status(clean_queue(bus)).readers] == [0]
            )
        finally:
            process.send_signal(signal.SIGTERM)
        reported = json.loads(process.stdout.read().splitlines()[-1])
    assert process.returncode == 0
    assert (reported["what"], reported["records"]) == ("done", 300)
    assert all_archived(tmp / "archive") == records_of(clean_queue(bus))


def test_ls_lists_every_log(tmp, bus):
    run_once(bus, tmp / "archive")
    ran = tapewire("archive", "ls", tmp / "archive")
    assert ran.code == 0
    assert (
        "v1/okx/BTCUSDT/2026-01-02/trades    200   299  2026-01-02T11:52:48.000000000Z" in ran.out
    )
    assert ran.out.splitlines()[-1].startswith("2 logs, 2 days, ")
    (reported,) = tapewire("archive", "ls", tmp / "archive", "--json").json
    assert [(log["date"], log["last_seq"]) for log in reported["logs"]] == [
        ("2026-01-01", 199),
        ("2026-01-02", 299),
    ]


def test_verify_reports_totals_and_damage(tmp, bus):
    run_once(bus, tmp / "archive")
    ran = tapewire("archive", "verify", tmp / "archive")
    assert ran.code == 0
    assert ran.out.startswith("2 logs, 300 records")
    segment = tmp / "archive/v1/okx/BTCUSDT/2026-01-02/trades/000000000.q"
    data = bytearray(segment.read_bytes())
    data[64 + 64] ^= 1
    segment.write_bytes(data)
    ran = tapewire("archive", "verify", tmp / "archive")
    assert ran.code == 3
    assert "damage: v1/okx/BTCUSDT/2026-01-02/trades: " in ran.out
    (reported,) = tapewire("archive", "verify", tmp / "archive", "--json").json
    assert not reported["intact"]
    assert [log["damaged_places"] for log in reported["logs"]] == [0, 1]


@pytest.mark.parametrize("command", ["ls", "verify"])
def test_a_directory_that_is_not_an_archive_is_not_found(tmp, command):
    assert tapewire("archive", command, tmp).code == 4
    assert tapewire("archive", command, tmp / "nothing").code == 4
