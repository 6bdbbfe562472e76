"""How far the timeline of an instrument is complete."""

import random

import pytest

import tapewire as tw
from tapewire.queue import status
from tapewire.scan.logs import LogRef
from tapewire.spark.streaming import watermarks
from tapewire.spark.streaming.batch_limits import UnreadRange
from tapewire.spark.streaming.watermarks import SeenLog, complete_until_ns

SECOND = 10**9


def seen(name="book", last_ns=None, *, alive=True, path="", date=None):
    log = LogRef(name, path, date=date, stream=name)
    return SeenLog(log, UnreadRange(name, path, 0, 0, True), alive, last_ns)


def write(path, times):
    with tw.open_publisher(path, segment_bytes=1 << 16) as writer:
        for time in times:
            writer.append(1, b"x", timestamp_ns=time)
    return seen(path=str(path), last_ns=status(path).last_timestamp_ns, alive=False)


def test_a_live_timeline_is_complete_until_the_time_that_all_logs_have_reached():
    assert complete_until_ns([seen("book", 9 * SECOND), seen("trades", 4 * SECOND)]) == 4 * SECOND
    assert complete_until_ns([seen("book", 9 * SECOND), seen("trades", None)]) is None


@pytest.mark.parametrize(
    ("trades_ns", "expected"),
    [(4 * SECOND, 7 * SECOND), (8 * SECOND, 8 * SECOND), (None, 7 * SECOND)],
)
def test_a_log_behind_by_more_than_the_maximum_skew_is_not_waited_for(trades_ns, expected):
    logs = [seen("book", 9 * SECOND), seen("trades", trades_ns)]
    assert complete_until_ns(logs, 2 * SECOND) == expected


def test_without_records_no_part_of_a_timeline_is_complete():
    assert complete_until_ns([seen("book"), seen("trades")], SECOND) is None
    assert complete_until_ns([seen("book", alive=False)], SECOND) is None


def test_a_closed_timeline_is_complete_to_its_latest_time_wherever_that_is(tmp):
    rng = random.Random(4)
    for number in range(20):
        times = [rng.randrange(10 ** rng.randrange(1, 19)) for _ in range(rng.randrange(1, 60))]
        assert complete_until_ns([write(tmp / f"q{number}", times)]) == max(times) + 1


def test_the_latest_time_is_found_in_few_seeks_after_a_large_step_back(tmp, monkeypatch):
    log = write(tmp / "q", [*range(1000, 4000), 1])
    seeks = []
    plain = watermarks.next_record

    def counted(reader):
        seeks.append(1)
        return plain(reader)

    monkeypatch.setattr(watermarks, "next_record", counted)
    assert complete_until_ns([log]) == 4000
    assert len(seeks) < 100
