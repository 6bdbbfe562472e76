"""The tables of one symbol's day: its measures, all its gaps once, and its findings."""

import itertools

import pytest

from tapewire.book.gaps import Gap, GapLedger
from tapewire.quality import QualityLimits, measure_day
from tapewire.quality.findings import TABLES
from tapewire.quality.measured_day import day_book
from tapewire.scan import ReadOptions, days_of
from tests.support.faulty_days import MS, Day


@pytest.fixture
def day(tmp):
    made = Day(tmp)
    made.snapshot()
    made.diffs(50)
    return made


def closed(day, root):
    day.close()
    (found,) = days_of(root, ReadOptions())
    return found


def test_a_day_without_faults_has_tables_without_findings(day, tmp):
    day.trade(10_000, 5)
    found = measure_day(closed(day, tmp))
    assert (found.gaps, found.findings) == ([], [])
    assert {name: table.schema for name, table in found.tables.items()} == TABLES
    [facts] = found.tables["days"].to_pylist()
    assert (facts["records"], facts["book_events"], facts["gaps"]) == (52, 51, 0)
    assert found.tables["gaps"].num_rows == 0


def test_a_gap_of_the_book_that_is_in_the_ledger_is_listed_once(day, tmp):
    day.lose(3)
    day.diffs(5)
    one = closed(day, tmp)
    (gap,) = measure_day(one).gaps
    assert (gap.kind, gap.stream, gap.missing) == ("venue", "book", 3)
    known = Gap("venue", gap.venue, gap.symbol, "book", gap.first, gap.last, gap.seq, 9, "known")
    GapLedger(one.logs["book"].path).add(known)
    found = measure_day(one)
    assert found.gaps == [known]
    assert found.tables["gaps"].to_pylist()[0]["cause"] == "known"


def test_a_damaged_ledger_is_a_gap(day, tmp):
    one = closed(day, tmp)
    GapLedger(one.logs["book"].path).add(Gap("venue", "v", "s", "book", 1, 2, 3, 4))
    with open(one.logs["book"].path + "/gaps.jsonl", "a") as file:
        file.write("{\n")
    assert sorted(gap.kind for gap in measure_day(one).gaps) == ["parse", "venue"]


def test_limits_decide_what_is_a_finding(day, tmp):
    day.diffs(1, way=500 * MS)
    one = closed(day, tmp)
    assert measure_day(one).findings == []
    late = measure_day(one, QualityLimits.parse(late="100ms")).findings
    assert [(row["kind"], row["count"]) for row in late] == [("late", 1)]


def test_the_book_of_a_day_is_sampled_from_a_time_on(day, tmp):
    one = closed(day, tmp)
    begin = measure_day(one).measures.book.begin_ns
    table = day_book(one, "10ms", 5, begin_ns=begin + 20 * MS)
    times = table["timestamp_ns"].to_pylist()
    assert times == sorted(times)
    assert times[0] >= begin + 20 * MS
    assert {later - earlier for earlier, later in itertools.pairwise(times)} == {10 * MS}
    assert all(len(side) <= 5 for side in table["bid_prices"].to_pylist())
