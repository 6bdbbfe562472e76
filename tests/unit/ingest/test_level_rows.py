"""Files of levels whose rows contradict each other: what they show to be missing or altered."""

import json

import pytest

from tapewire import ingest, replay
from tests.support.captures import book_logs

T = 1_700_006_410_000_000
LEVELS = "exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount"
DEPTH_2 = "exchange,symbol,timestamp,local_timestamp," + ",".join(
    f"{side}[{i}].{what}"
    for i in (0, 1)
    for side in ("asks", "bids")
    for what in ("price", "amount")
)


@pytest.fixture
def states(tmp):
    """Import rows of Tardis; whether the book is trusted after each event."""

    def read(header, rows, stream="book"):
        path = tmp / "capture.csv"
        path.write_text("\n".join([header, *rows]))
        summary = ingest.run("tardis", [path], tmp / "archive")
        logs = [log.parent / stream for log in book_logs(tmp / "archive", "x", "A")]
        with replay.Replay(logs) as steps:
            found = [step.book.trusted for step in steps if step.record.decode().loss is None]
        return summary, found

    return read


def level(at, flag, side, price, size=1):
    return f"x,A,{T + at},{T + at},{flag},{side},{price},{size}"


SNAPSHOT = [level(0, "true", "bid", 10), level(0, "true", "ask", 12)]


def test_a_local_time_that_goes_back_distrusts_the_book_until_its_next_snapshot(states):
    rows = [*SNAPSHOT, level(2, "false", "bid", 11), level(1, "false", "bid", 9)]
    rows += [level(4, "true", "bid", 10), level(5, "false", "bid", 9)]
    summary, found = states(LEVELS, rows)
    assert found == [True, False, False, True, True]
    assert summary.gaps == 1


def test_a_snapshot_that_begins_within_a_moment_repairs_nothing(states):
    rows = [*SNAPSHOT, level(1, "true", "bid", 10)]
    rows.insert(1, level(0, "false", "bid", 9))
    summary, found = states(LEVELS, rows)
    assert found[2:] == [False, False]
    assert list(summary.untrusted) == ["x/A/book"]


def test_a_bad_row_in_the_last_event_distrusts_it(states):
    rows = [*SNAPSHOT, level(1, "false", "bid", 9), level(1, "false", "bid", "ten")]
    _, found = states(LEVELS, rows)
    assert found == [True, False]


def test_a_row_with_a_field_missing_may_be_of_any_symbol(states):
    removed = level(1, "false", "bid", 9).replace(",A,", ",")
    _, found = states(LEVELS, [*SNAPSHOT, removed, level(2, "false", "bid", 8)])
    assert found == [False, False]


def test_a_crossed_book_of_levels_is_untrusted_until_its_next_snapshot(states):
    rows = [*SNAPSHOT, level(1, "false", "bid", 12), level(2, "false", "bid", 12, 0)]
    rows += [level(3, "true", "bid", 10), level(3, "true", "ask", 12)]
    summary, found = states(LEVELS, rows)
    assert found == [True, False, False, True]
    assert summary.gaps == 1


def test_a_crossed_snapshot_is_untrusted(states):
    _, found = states(LEVELS, [level(0, "true", "bid", 12), level(0, "true", "ask", 12)])
    assert found == [False]


@pytest.mark.parametrize(
    "levels",
    [
        "12,1,11,1,12,1,10,1",  # the same price twice
        "12,1,10,1,13,1,11,1",  # bids rise
        "12,1,11,1,,1,10,1",  # a size without a price
        "12,1,11,1,13,1,10,0",  # no size
        ",,11,1,13,1,10,1",  # the best ask is missing, the next one is not
    ],
)
def test_a_row_whose_levels_are_no_book_is_a_bad_row(states, levels):
    rows = [f"x,A,{T + at},{T + at},{text}" for at, text in enumerate((levels, "12,1,11,1,,,,"))]
    summary, found = states(DEPTH_2, rows, "book_snapshot_2")
    assert summary.bad == {"levels out of order, or incomplete": 1}
    assert found == [True], "the next row is complete"


def test_a_bad_row_between_snapshots_is_in_the_ledger_of_their_stream(states):
    good, bad = "12,1,11,1,,,,", "12,1,11,1,,1,10,1"
    rows = [f"x,A,{T + at},{T + at},{text}" for at, text in enumerate((good, bad, good))]
    summary, found = states(DEPTH_2, rows, "book_snapshot_2")
    assert found == [True, True]
    assert summary.gaps == 1


def test_a_time_of_coinbase_that_goes_back_distrusts_the_book(import_lines, tmp):
    def line(second, time, changes=None):
        document = {"product_id": "A", "time": f"2023-11-15T00:00:0{time}Z"}
        if changes is None:
            document |= {"type": "snapshot", "bids": [["10", "1"]], "asks": [["12", "1"]]}
        else:
            document |= {"type": "l2update", "changes": changes}
        return f"1700006400.{second}: {json.dumps(document)}".encode()

    lines = [line(0, 0), line(1, 2, [["buy", "10", "2"]]), line(2, 1, [["buy", "10", "1"]])]
    summary, _ = import_lines("coinbase", [*lines, line(3, 3)])
    assert summary.gaps == 1
    with replay.Replay(book_logs(tmp / "archive", "coinbase", "A")) as steps:
        trusted = [step.book.trusted for step in steps if step.record.decode().loss is None]
    assert trusted == [True, True, False, True]
