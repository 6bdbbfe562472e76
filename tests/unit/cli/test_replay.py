"""`tapewire replay`, `tapewire snapshotter`, and the ledger in `tapewire inspect`."""

import json
import signal
import subprocess
import sys

import pytest

import tapewire as tw
from tapewire.book.gaps import GapLedger
from tapewire.replay import snapshots
from tests.support.book_tapes import (
    BOOK_EVENT,
    BTC,
    ETH,
    START_NS,
    STEP_NS,
    TRADE_TICK,
    L2Feed,
    append_l2,
    trade,
    write_l2,
)
from tests.support.commands import tapewire


@pytest.fixture
def log(tmp):
    """60 records of two books; a diff of the first is lost, and a snapshot restores the book."""
    feeds = [L2Feed(BTC, 1), L2Feed(ETH, 2)]
    write_l2(tmp / "q", 60, feeds=feeds, lose={24}, snapshot_every=20)
    return tmp / "q"


def test_each_change_of_the_best_level_is_a_line_before_the_summary(log):
    done = tapewire("replay", log, "--symbol", "BTCUSDT")
    first, *_ = done.out.splitlines()
    assert (
        first == "2023-11-14T22:13:20.000000000Z  binance:BTCUSDT  100.00 × 0.001 | 100.01 × 0.001"
    )
    assert "not trusted: update id 112 is missing" in done.out
    assert "gaps     1, 0 of them open" in done.out
    assert done.code == 1


def test_json_is_one_line_per_step_and_a_summary(log):
    lines = tapewire("replay", log, "--levels", 2, "--json").json
    assert {line["what"] for line in lines} == {"book", "summary"}
    assert lines[0]["bids"] == [["100.00", "0.001"], ["99.99", "0.002"]]
    summary = lines[-1]
    assert (summary["records"], summary["gaps"], summary["gaps_open"]) == (59, 1, 0)
    (gap,) = summary["gap_list"]
    assert (gap["kind"], gap["first"], gap["last"], gap["action"]) == (
        "venue",
        112,
        112,
        "resynced",
    )
    assert tapewire("replay", log, "--levels", 0, "--json").json[-1]["hash"] == summary["hash"]


def test_a_range_shows_only_its_time(log):
    span = ["--from", START_NS + 10 * STEP_NS, "--to", START_NS + 20 * STEP_NS]
    lines = tapewire("replay", log, "--json", "--levels", 50, *span).json[:-1]
    assert lines
    assert all(10 <= (line["timestamp_ns"] - START_NS) // STEP_NS < 20 for line in lines)


def test_a_ladder_has_its_best_levels_on_top(log):
    out = tapewire("replay", log, "--levels", 3, "--symbol", "ETHUSDT").out.splitlines()
    assert [line.split() for line in out[1:4]] == [
        ["0.001", "100.00", "|", "100.01", "0.001"],
        ["0.002", "99.99", "|", "100.02", "0.002"],
        ["0.003", "99.98", "|", "100.03", "0.003"],
    ]


def test_trades_are_shown(log):
    with tw.open_publisher(log) as writer:
        time = START_NS + 60 * STEP_NS
        writer.append(TRADE_TICK, trade(BTC, time, 10_001, 5, 77), timestamp_ns=time)
    assert "binance:BTCUSDT  trade 0.005 at 100.01" in tapewire("replay", log).out
    line = tapewire("replay", log, "--json").json[-2]
    assert (line["what"], line["price"], line["trade_id"]) == ("trade", "100.01", 77)


def test_damage_is_a_gap_and_exit_code_3(tmp):
    write_l2(tmp / "q", 400, segment_bytes=8192)
    sorted((tmp / "q").glob("*.q"))[2].unlink()
    done = tapewire("replay", tmp / "q")
    assert done.code == 3
    assert "gap: records" in done.out
    assert "gap" in {line["what"] for line in tapewire("replay", tmp / "q", "--json").json}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--symbol", "NONE"], 2), (["--from", "yesterday"], 2), (["--speed", "0"], 2)],
)
def test_replay_usage_errors(log, arguments, code):
    assert tapewire("replay", log, *arguments).code == code


def test_replay_of_a_missing_log_is_not_found(tmp):
    assert tapewire("replay", tmp / "none").code == 4


def test_the_snapshotter_saves_to_the_end_and_reports_it(log):
    done = tapewire("snapshotter", log, "--once", "--records", 20, "--json")
    assert done.code == 0
    assert [(line["what"], line["last_seq"]) for line in done.json] == [
        ("saved", 19),
        ("saved", 39),
        ("saved", 58),
        ("done", 58),
    ]
    assert [file.seq for file in snapshots.files(log, BTC.venue_id, BTC.market_id)] == [19, 39, 58]
    assert tapewire("snapshotter", log, "--once").out == "done  nothing new in the log\n"


def test_the_snapshotter_prints_when_a_round_saved_nothing(tmp):
    diff = L2Feed().diff(START_NS)
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 16) as writer:
        writer.append(BOOK_EVENT, diff, timestamp_ns=START_NS)
    assert tapewire("snapshotter", tmp / "q", "--once").out.splitlines() == [
        "waits record 0  2023-11-14T22:13:20.000000000Z  snapshots: 0, removed: 0, gaps: 0, "
        "books not trusted: 1",
        "done  record 0  2023-11-14T22:13:20.000000000Z  snapshots: 0, removed: 0, gaps: 0, "
        "books not trusted: 1",
    ]


def test_the_snapshotter_reports_skipped_snapshots(log):
    tapewire("snapshotter", log, "--once", "--records", 20)
    snapshots.files(log, BTC.venue_id, BTC.market_id)[-1].path.write_bytes(b"")
    done = tapewire("snapshotter", log, "--once")
    assert (done.code, "skipped" in done.err) == (1, True)


def test_a_snapshotter_follows_and_exits_0_at_sigterm(log, eventually):
    command = [sys.executable, "-m", "tapewire.cli", "snapshotter", str(log), "--records", "10"]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True) as process:
        try:
            eventually(lambda: len(snapshots.files(log, BTC.venue_id, BTC.market_id)) >= 4)
            with tw.open_publisher(log) as writer:
                append_l2(writer, [L2Feed(BTC, 1)], 10, start=0)
            eventually(lambda: snapshots.files(log, BTC.venue_id, BTC.market_id)[-1].seq >= 59)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert json.loads(out.splitlines()[-1])["what"] == "done"


def test_inspect_lists_the_ledger(log):
    tapewire("snapshotter", log, "--once")
    text = tapewire("inspect", log)
    assert text.out.splitlines()[-2:] == [
        "gap       venue binance:BTCUSDT 112 … 112, venue gap",
        "          at record 25, 2023-11-14T22:13:20.026000000Z: resynced",
    ]
    assert text.code == 0
    (gap,) = tapewire("inspect", log, "--json").json[0]["gaps"]
    assert (gap["first"], gap["last"], gap["action"]) == (112, 112, "resynced")


def test_inspect_reports_damaged_lines_of_the_ledger(log):
    tapewire("snapshotter", log, "--once")
    with GapLedger(log).path.open("ab") as file:
        file.write(b"broken\n")
    done = tapewire("inspect", log)
    assert done.code == 1
    assert "gaps.jsonl, line 2" in done.out
    fields = tapewire("inspect", log, "--json").json[0]
    assert [damage["line"] for damage in fields["ledger_damage"]] == [2]
    assert len(fields["gaps"]) == 1


def test_a_queue_without_a_ledger_has_no_gaps(log):
    assert tapewire("inspect", log, "--json").json[0]["gaps"] == []
