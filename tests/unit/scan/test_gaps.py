import pytest

import tapewire as tw
from tapewire import replay
from tapewire.book.gaps import Gap, GapLedger
from tests.support import crafted
from tests.support.faulty_days import Day
from tests.support.spark_views import reader, table, table_of

VENUE_GAP = Gap("venue", "okx", "BTC", "book", 11, 14, 3, 2_000, "numbers skip", "untrusted")


@pytest.fixture
def queue(tmp):
    queue = crafted.write(tmp, crafted.numbered(0, 5), crafted.numbered(8, 5))
    GapLedger(queue).add(VENUE_GAP)
    return queue


def rows(queue, **options):
    return table(queue, view="gaps", **options).to_pylist()


def test_a_log_without_gaps_has_no_rows(tmp):
    assert rows(crafted.write(tmp, crafted.numbered(0, 5))) == []


def test_the_ledger_comes_first_and_then_what_reading_finds(queue):
    found = rows(queue)
    assert [(row["kind"], row["first"], row["last"]) for row in found] == [
        ("venue", 11, 14),
        ("record", 5, 7),
    ]
    assert found[0].pop("timestamp").timestamp() == 2e-6
    assert found[0] == {
        "queue": "q",
        "venue": "okx",
        "symbol": "BTC",
        "stream": "book",
        "kind": "venue",
        "first": 11,
        "last": 14,
        "seq": 3,
        "timestamp_ns": 2_000,
        "cause": "numbers skip",
        "action": "untrusted",
    }
    assert (found[1]["seq"], found[1]["action"]) == (8, "skipped")
    assert found[1]["timestamp_ns"] is not None


def test_a_gap_in_the_ledger_is_not_reported_again(queue):
    GapLedger(queue).add(Gap("record", "", "", "", 5, 7, 8, 1, "lost in a crash", "resynced"))
    assert [row["cause"] for row in rows(queue)] == ["numbers skip", "lost in a crash"]


def test_skipped_sequence_numbers_in_a_sparse_log_are_no_gap(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20, sparse=True) as writer:
        for seq in (1, 5, 90):
            writer.append(1, b"", seq=seq)
    assert rows(tmp / "q") == []


def test_a_range_has_its_own_gaps(queue):
    assert [row["kind"] for row in rows(queue, seq_to=5)] == ["venue"]
    assert [row["kind"] for row in rows(queue, seq_from=4)] == ["record"]
    assert [row["kind"] for row in rows(queue, seq_from=9)] == []


def test_symbols_select_their_gaps_and_those_of_the_log(queue):
    assert [row["kind"] for row in rows(queue, symbols="BTC")] == ["venue", "record"]
    assert [row["kind"] for row in rows(queue, symbols="okx:ETH")] == ["record"]


def test_damaged_lines_of_the_ledger_are_a_row(queue):
    with open(queue / "gaps.jsonl", "a") as ledger:
        ledger.write("{}\n")
    (row,) = [row for row in rows(queue) if row["kind"] == "ledger"]
    assert "1 lines of gaps.jsonl are damaged, the first: line 2" in row["cause"]


def test_only_the_columns_asked_for_are_returned(queue):
    assert rows(queue, columns="last,kind")[0] == {"last": 14, "kind": "venue"}


def lossy_day(root):
    """A day whose book lacks three diffs and, after a snapshot, two; without a ledger."""
    day = Day(root)
    day.snapshot()
    day.diffs(5)
    day.lose(3)
    day.diffs(4)
    day.snapshot()
    day.diffs(3)
    day.lose(2)
    day.diffs(1)
    day.close()
    return day


def test_gaps_in_the_venues_sequence_numbers_are_found_without_a_ledger(tmp):
    day = lossy_day(tmp / "a")
    found = rows(tmp / "a")
    assert [(row["kind"], row["first"], row["last"], row["action"]) for row in found] == [
        ("venue", 106, 108, "untrusted"),
        ("venue", 116, 117, "untrusted"),
    ]
    assert {(row["venue"], row["symbol"], row["cause"]) for row in found} == {
        ("binance", "BTCUSDT", "venue gap")
    }
    replay.Snapshotter(day.paths["book"]).run(follow=False)
    assert GapLedger(day.paths["book"]).read()
    found_again = rows(tmp / "a")  # from the ledger now, with the final action
    assert [row.pop("action") for row in found_again] == ["resynced", "untrusted"]
    assert found_again == [{name: row[name] for name in row if name != "action"} for row in found]


def test_a_range_has_the_venue_gaps_that_its_records_show(tmp):
    lossy_day(tmp / "a")
    (first, second) = rows(tmp / "a")
    assert rows(tmp / "a", seq_from=first["seq"] + 1) == [second]
    assert [row["first"] for row in rows(tmp / "a", seq_to=first["seq"] + 1)] == [106]
    assert [row["first"] for row in rows(tmp / "a", time_from=second["timestamp_ns"])] == [116]
    assert rows(tmp / "a", seq_to=first["seq"]) == []


def test_a_path_names_an_instrument_that_is_in_no_file(tmp):
    lossy_day(tmp / "a")
    (tmp / "a" / "instruments.json").unlink()
    assert {(row["venue"], row["symbol"]) for row in rows(tmp / "a")} == {("binance", "BTCUSDT")}


def test_records_after_the_plan_are_not_replayed(tmp):
    day = Day(tmp / "a")
    day.snapshot()
    day.diffs(2)
    planned = reader(tmp / "a", view="gaps")
    parts = planned.partitions()
    day.lose(1)
    day.diffs(1)
    assert len(table_of(planned, parts)) == 0
    assert len(rows(tmp / "a")) == 1
    day.close()


def test_a_log_without_records_has_the_gaps_of_its_ledger(tmp):
    tw.open_publisher(tmp / "q", segment_bytes=1 << 20).close()
    GapLedger(tmp / "q").add(VENUE_GAP)
    assert [row["first"] for row in rows(tmp / "q")] == [11]
    assert rows(tmp / "q", seq_from=4) == []
