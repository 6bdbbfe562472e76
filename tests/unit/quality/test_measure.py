"""Faults planted in a log are found at their place; a log without faults has no findings."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tapewire as tw
from tapewire.book.gaps import Gap
from tapewire.protocol.market import l2_diff, l2_snapshot, reset
from tapewire.quality import DayLogs, QualityLimits, measure
from tapewire.quality.clocks import ClockMeasure
from tapewire.quality.findings import TABLES, findings_of, rows_of
from tapewire.replay import Every, Snapshotter
from tests.support.book_tapes import BTC, START_NS
from tests.support.faulty_days import MS, Day

HOUR = 3600 * 10**9


def logs(day, **options):
    day.close()
    return DayLogs("binance", "BTCUSDT", day.paths, **options)


@pytest.fixture
def day(tmp):
    made = Day(tmp)
    made.snapshot()
    made.diffs(100)
    return made


def flip(path, seq):
    """Damage one record."""
    with tw.open_log(path) as log:
        payload = bytes(next(record for record in log if record.seq == seq).payload)
    segment = min(Path(path).glob("*.q"))  # the next one is prepared in advance
    data = bytearray(segment.read_bytes())
    data[data.index(payload) + 3] ^= 0xFF
    segment.write_bytes(data)


def kinds(found, gaps=(), limits=None):
    return [one["kind"] for one in findings_of(found, list(gaps), limits or QualityLimits())]


def test_a_day_without_faults_has_no_findings(day):
    day.snapshot()
    day.diffs(50)
    day.trade(10_000, 5)
    found = measure(logs(day))
    assert kinds(found) == []
    assert found.records == 153
    assert found.book.events == 152
    assert found.book.events_of == {"fine": 152}
    assert found.book.ns == found.book.ns_of["fine"] == 151 * MS
    assert (found.drift.compared, found.drift.differing) == (1, 0)


def test_a_lost_diff_leaves_the_book_untrusted_until_the_next_snapshot(day):
    day.lose(2)
    begin = day.time + MS
    day.diffs(10)
    end = day.snapshot()
    day.diffs(10)
    found = measure(logs(day))
    [span] = found.book.spans
    assert (span.state, span.begin_ns, span.end_ns, span.events) == ("untrusted", begin, end, 10)
    assert span.cause
    [(first, last, *_)] = found.gaps
    assert last - first + 1 == 2
    assert kinds(found) == ["untrusted"]


def test_time_before_the_first_snapshot_is_not_a_finding(tmp):
    day = Day(tmp)
    day.diffs(5)
    day.snapshot()
    day.diffs(5)
    found = measure(logs(day))
    assert [(span.state, span.events) for span in found.book.spans] == [("start", 5)]
    assert kinds(found) == []


def test_a_reset_by_the_venue_is_untrusted_time(day):
    day.event(reset(BTC, day.time))
    day.diffs(3)
    day.snapshot()
    [span] = measure(logs(day)).book.spans
    assert (span.state, span.cause, span.events) == ("untrusted", "reset by the venue", 4)


@pytest.mark.parametrize(("over", "state"), [(5, "crossed"), (0, "locked")])
def test_a_bid_at_or_above_the_ask_is_found_with_its_time(day, over, state):
    best = min(day.feed.asks)
    begin = day.own_diff(bids=[(best + over, 1)])
    day.own_diff(asks=[(best + 90, 1)])
    end = day.own_diff(bids=[(best + over, 0)])
    found = measure(logs(day))
    [span] = found.book.spans
    assert (span.state, span.begin_ns, span.end_ns, span.events) == (state, begin, end, 2)
    assert span.worst == over
    assert found.book.ns_of[state] == 2 * MS
    assert kinds(found) == [state]


def test_a_book_that_differs_from_a_snapshot_in_the_log_is_found(day):
    best = max(day.feed.bids)
    wrong = {**day.feed.bids, best: day.feed.bids[best] + 7}
    sides = {"bids": sorted(wrong.items(), reverse=True), "asks": sorted(day.feed.asks.items())}
    day.event(l2_snapshot(BTC, day.time, **sides, native_seq=day.feed.update))
    found = measure(logs(day))
    [one] = found.drift.differences
    assert (one.price, one.venue_size - one.book_size, one.differing) == (best, 7, 1)
    assert kinds(found) == ["drift"]


def test_a_snapshot_of_another_moment_is_not_compared(day):
    sides = {"bids": [(1, 1)], "asks": [(99_999, 1)]}
    day.event(l2_snapshot(BTC, day.time, **sides, native_seq=day.feed.update + 3))
    found = measure(logs(day))
    assert (found.drift.compared, found.drift.not_comparable) == (0, 1)


def test_a_stream_of_snapshots_is_compared_with_the_book_of_its_moment(tmp):
    day = Day(tmp)
    day.snapshot()
    rng = random.Random(5)
    wrong = set()
    for n in range(200):
        day.diffs(1)
        if rng.random() < 0.4:
            bids = sorted(day.feed.bids.items(), reverse=True)[:5]
            asks = sorted(day.feed.asks.items())[:5]
            if rng.random() < 0.2:
                wrong.add(day.time)
                asks[4] = (asks[4][0], asks[4][1] + 1)
            payload = l2_snapshot(BTC, day.time, bids=bids, asks=asks, native_seq=n)
            day.event(payload, stream="book_snapshot_5", after=0)
    found = measure(logs(day))
    assert found.drift.compared > 50
    assert {one.timestamp_ns for one in found.drift.differences} == wrong
    assert found.drift.differing == len(wrong) > 5
    assert {one.differing for one in found.drift.differences} == {1}


def test_records_early_late_and_behind_are_counted_separately(day):
    day.own_diff(way=-2 * MS)
    day.own_diff(way=11_000 * MS)
    day.own_diff(after=-40 * MS)
    found = measure(logs(day))
    clock = found.clocks["book"]
    assert (clock.early, clock.late, clock.behind) == (1, 1, 1)
    assert (clock.least_ns, clock.greatest_ns) == (-2 * MS, 11_000 * MS)
    assert clock.worst_behind_ns == 40 * MS
    assert kinds(found) == ["early", "late", "behind"]
    loose = replace(QualityLimits(), late_ns=60_000 * MS, early_ns=5 * MS, behind_ns=50 * MS)
    assert kinds(measure(logs(day), loose), limits=loose) == []


def test_a_drifting_clock_is_found_by_the_shortest_delays_of_hours(tmp):
    day = Day(tmp)
    day.snapshot()
    for hour in range(3):
        day.own_diff(way=(5 + 300 * hour) * MS)
        day.own_diff(way=2_000 * MS)  # load, not drift
        day.time = START_NS + (hour + 1) * HOUR
    found = measure(logs(day))
    assert found.clocks["book"].drift_ns == 602 * MS
    assert kinds(found) == ["clock-drift"]


def test_damage_is_reported_and_the_book_is_untrusted_after_it(day):
    day.diffs(400)
    day.snapshot()
    where = logs(day)
    flip(where.streams["book"], 200)
    found = measure(where)
    assert [one.stream for one in found.damage] == ["book"]
    assert found.book.events == 501
    assert kinds(found)[:2] == ["damage", "untrusted"]


def test_a_book_is_untrusted_after_damage_if_the_venue_has_no_sequence_numbers(tmp):
    day = Day(tmp)
    day.event(l2_snapshot(BTC, day.time, bids=[(10_000, 1)], asks=[(10_010, 1)], native_seq=0))
    for size in range(1, 20):
        levels = {"bids": [(9_000, size)], "asks": []}
        day.event(l2_diff(BTC, day.time, **levels, first=0, last=0, prev=0))
    where = logs(day)
    flip(where.streams["book"], 10)
    found = measure(where)
    assert kinds(found) == ["damage", "untrusted"]
    assert found.book.events_of == {"fine": 10, "untrusted": 9}


def test_a_day_starts_with_the_book_of_the_day_before(tmp):
    first = Day(tmp)
    first.snapshot()
    first.diffs(50)
    second = Day(tmp, "2023-11-15", first.time + HOUR, first.feed)
    second.diffs(50)
    before, after = logs(first), logs(second)
    alone = measure(after)
    assert alone.book.events_of == {"start": 50}
    found = measure(replace(after, before=(before.streams["book"],)))
    assert found.book.events_of == {"fine": 50}
    assert kinds(found) == []


def test_percentiles_are_within_a_percent_of_the_exact_ones():
    rng = np.random.default_rng(4)
    skew = np.concatenate([rng.lognormal(16, 2, 20_000).astype(np.int64), [-5, -4_000, 0, 1]])
    clock = ClockMeasure(QualityLimits())
    received = np.full(len(skew), START_NS)
    for part in np.array_split(np.arange(len(skew)), 7):
        clock.add(received[part], received[part] - skew[part])
    for percent in (1, 50, 90, 99, 99.9):
        exact = np.percentile(skew, percent, method="inverted_cdf")
        assert clock.percentile(percent) == pytest.approx(exact, rel=0.01)
    assert (clock.least_ns, clock.greatest_ns) == (skew.min(), skew.max())


def test_rows_fit_their_tables(day):
    import pyarrow as pa

    found = measure(logs(day))
    gaps = [Gap("venue", "binance", "BTCUSDT", "book", 5, 2**64 - 1, 7, 8, "cause")]
    rows = rows_of(found, gaps, findings_of(found, gaps, QualityLimits()))
    assert rows.keys() == TABLES.keys()
    for name, schema in TABLES.items():
        table = pa.Table.from_pylist(rows[name], schema)
        assert all(set(row) == set(schema.names) for row in rows[name]), name
        assert table.num_rows == len(rows[name])
    assert rows["gaps"][0]["last"] is None


def test_a_book_crossed_between_records_of_the_same_time_is_counted_but_not_a_finding(day):
    best = min(day.feed.asks)
    day.own_diff(bids=[(best + 2, 1)])
    day.own_diff(bids=[(best + 2, 0)], after=0)
    found = measure(logs(day))
    assert found.book.events_of["crossed"] == 1
    assert kinds(found) == []


def test_snapshots_after_the_last_event_are_counted_as_not_comparable(day):
    payload = l2_snapshot(BTC, day.time, bids=[(1, 1)], asks=[(99_999, 1)], native_seq=1)
    for _ in range(3):
        day.event(payload, stream="book_snapshot_5")
    found = measure(logs(day))
    assert (found.drift.compared, found.drift.not_comparable) == (0, 3)


def test_damage_in_a_stream_of_snapshots_is_reported_and_the_others_are_compared(day):
    for n in range(3):
        payload = l2_snapshot(
            BTC,
            day.time,
            bids=sorted(day.feed.bids.items(), reverse=True)[:5],
            asks=sorted(day.feed.asks.items())[:5],
            native_seq=n,
        )
        day.event(payload, stream="book_snapshot_5", after=0)
        day.diffs(1)
    where = logs(day)
    flip(where.streams["book_snapshot_5"], 1)
    found = measure(where)
    assert [one.stream for one in found.damage] == ["book_snapshot_5"]
    assert (found.drift.compared, found.drift.differing) == (2, 0)


def test_damage_of_the_day_before_does_not_stop_a_day(tmp):
    first = Day(tmp)
    first.snapshot()
    first.diffs(50)
    second = Day(tmp, "2023-11-15", first.time + HOUR, first.feed)
    second.diffs(10)
    second.snapshot()
    before, after = logs(first), logs(second)
    flip(before.streams["book"], 20)
    found = measure(replace(after, before=(before.streams["book"],)))
    assert found.book.events_of == {"start": 10, "fine": 1}


def test_a_day_starts_from_the_latest_snapshot_of_the_days_before(tmp):
    first = Day(tmp)
    first.snapshot()
    first.diffs(500)
    second = Day(tmp, "2023-11-15", first.time + HOUR, first.feed)
    second.diffs(50)
    before, after = logs(first), logs(second)
    Snapshotter(before.streams["book"], every=Every(records=100)).run(follow=False)
    flip(before.streams["book"], 20)  # read from its start, it has no book at its end
    found = measure(replace(after, before=(before.streams["book"],)))
    assert found.book.events_of == {"fine": 50}
