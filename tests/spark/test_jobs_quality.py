"""The job `quality`: every planted fault, and the findings of real captures."""

import re

import pytest

from tapewire import ingest
from tapewire import spark as tws
from tests.support.book_tapes import BTC, ETH, START_NS, L2Feed
from tests.support.faulty_days import MS, Day
from tests.support.marketdata import capture

TABLES = ("days", "clocks", "clock_times", "spans", "snapshots", "gaps", "findings")


def faultless(root, instrument=ETH):
    day = Day(root, feed=L2Feed(instrument, seed=8))
    day.snapshot()
    day.diffs(60)
    day.trade(10_000, 3)
    day.close()


def faulty(root):
    """A lost diff, a crossed book, an incorrect snapshot, early, late and out-of-order records."""
    day = Day(root, feed=L2Feed(BTC, seed=3))
    day.snapshot()
    day.diffs(50)
    day.lose(3)
    day.diffs(10)
    day.snapshot()
    day.diffs(20)
    best = min(day.feed.asks)
    day.own_diff(bids=[(best + 2, 1)])
    day.own_diff(bids=[(best + 2, 0)])
    day.own_diff(way=-5 * MS)
    day.own_diff(way=20_000 * MS)
    day.own_diff(after=-7 * MS)
    wrong = dict(day.feed.bids)
    day.feed.bids[max(wrong)] += 1
    day.snapshot(after=10 * MS)
    day.trade(10_000, 3)
    day.close()


def findings_of(spark, target):
    rows = spark.read.parquet(f"{target}/findings").collect()
    return {(row["symbol"], row["kind"]): row["count"] for row in rows}


def test_every_planted_fault_is_found_and_nothing_else(spark, tmp):
    faulty(tmp / "clean")
    faultless(tmp / "clean")
    summary = tws.jobs.quality(spark, tmp / "clean", tmp / "out")
    assert findings_of(spark, tmp / "out") == {
        ("BTCUSDT", "gaps"): 1,
        ("BTCUSDT", "untrusted"): 10,
        ("BTCUSDT", "crossed"): 1,
        ("BTCUSDT", "drift"): 1,
        ("BTCUSDT", "early"): 1,
        ("BTCUSDT", "late"): 1,
        ("BTCUSDT", "behind"): 1,
    }
    assert (summary.exit_code, len(summary.findings), summary.counts["gaps"]) == (1, 7, 1)
    [gap] = spark.read.parquet(f"{tmp}/out/gaps").collect()
    assert gap["last"] - gap["first"] + 1 == 3
    for name in TABLES:
        frame = spark.read.parquet(f"{tmp}/out/{name}")
        assert {"venue", "date", "symbol"} <= set(frame.columns), name
    text = (tmp / "out" / "_report.html").read_text(encoding="utf-8")
    for finding in summary.findings:
        assert finding.what in text
    assert 'class="flaw' in text
    assert not re.search(r"(src|href)=|url\((?!#)|@import|https?:|\bnan\b", text)


def test_a_tape_without_faults_is_said_to_be_so(spark, tmp):
    faultless(tmp / "clean")
    summary = tws.jobs.quality(spark, tmp / "clean", tmp / "out")
    assert (summary.exit_code, summary.findings) == (0, [])
    assert "Nothing was found" in (tmp / "out" / "_report.html").read_text(encoding="utf-8")


def test_what_is_done_is_skipped_with_its_findings_and_other_limits_measure_anew(spark, tmp):
    faulty(tmp / "clean")
    first = tws.jobs.quality(spark, tmp / "clean", tmp / "out")
    again = tws.jobs.quality(spark, tmp / "clean", tmp / "out")
    assert (first.done, again.done, again.skipped) == (1, 0, 1)
    assert again.findings == first.findings
    loose = tws.jobs.quality(spark, tmp / "clean", tmp / "out", late="1m", early="1s", behind="1s")
    assert loose.done == 1
    assert {kind for _, kind in findings_of(spark, tmp / "out")} == {
        "gaps",
        "untrusted",
        "crossed",
        "drift",
    }


def test_the_second_day_begins_with_the_book_of_the_first(spark, tmp):
    first = Day(tmp / "clean")
    first.snapshot()
    first.diffs(30)
    first.close()
    second = Day(tmp / "clean", "2023-11-15", START_NS + 86_400 * 10**9, first.feed)
    second.diffs(30)
    second.close()
    tws.jobs.quality(spark, tmp / "clean", tmp / "out")
    rows = spark.read.parquet(f"{tmp}/out/days").orderBy("date").collect()
    assert [(row["book_events"], row["start_events"]) for row in rows] == [(31, 0), (30, 0)]


CAPTURES = {
    # name: format, files, snapshots compared, kinds of findings
    "tardis": (
        "tardis",
        [
            f"tardis/binance-futures_2024-08-08_BTCUSDT_{kind}.csv.gz"
            for kind in ("incremental_book_L2", "trades", "book_snapshot_25")
        ],
        6_223,
        {"early"},
    ),
    "shanghai": ("sse", ["sse/600519_20230207.zip"], 4_858, set()),
    "futures": (
        "binance-usdm",
        ["binance/usdm_btcusdt_20240718.gz", "binance/usdm_btcusdt_20240719.gz"],
        1,
        {"early"},
    ),
    "bitget": ("bitget", ["bitget/BITGET.ws.1.0", "bitget/BITGET.ws.2.0"], 0, set()),
}


# The same measures without Spark are those of tests/unit/quality: one capture of each kind.
SHORT = ("tardis", "shanghai")


@pytest.mark.parametrize(
    "name", [n if n in SHORT else pytest.param(n, marks=pytest.mark.long) for n in CAPTURES]
)
def test_of_a_real_capture_it_finds_what_is_there_and_nothing_else(spark, tmp, name):
    """No gaps, no crossed books, and every level of every snapshot equal.

    The clock of the machine that recorded Binance was more than a second behind: records came, by
    that clock, before the venue had sent them.
    """
    format, files, compared, kinds = CAPTURES[name]
    ingest.run(format, [capture(file) for file in files], tmp / "archive")
    summary = tws.jobs.quality(spark, tmp / "archive", tmp / "out", plots=2)
    assert summary.failed == 0
    found = {kind for _, kind in findings_of(spark, tmp / "out")}
    assert found == kinds, summary.findings
    rows = spark.read.parquet(f"{tmp}/out/days").collect()
    assert sum(row["snapshots_compared"] for row in rows) == compared
    for key in ("gaps", "crossed_events", "locked_events", "untrusted_events"):
        assert sum(row[key] for row in rows) == 0, key
    assert sum(row["snapshots_differing"] for row in rows) == 0


def test_a_larger_day_is_drawn_and_no_other_is_measured_again(spark, tmp):
    faultless(tmp / "clean")
    tws.jobs.quality(spark, tmp / "clean", tmp / "out", plots=1)
    larger = Day(tmp / "clean", feed=L2Feed(BTC, seed=5))
    larger.snapshot()
    larger.diffs(5_000)
    larger.close()
    summary = tws.jobs.quality(spark, tmp / "clean", tmp / "out", plots=1)
    assert (summary.done, summary.skipped) == (1, 1)
    text = (tmp / "out" / "_report.html").read_text(encoding="utf-8")
    assert "Book of BTCUSDT" in text
    assert "Book of ETHUSDT" not in text
    again = tws.jobs.quality(spark, tmp / "clean", tmp / "out", plots=2)
    assert (again.done, again.skipped) == (0, 2)
    assert "Book of ETHUSDT" in (tmp / "out" / "_report.html").read_text(encoding="utf-8")
