"""The book that an import builds: over midnight, with gaps, with late snapshots."""

import json

import pytest

import tapewire as tw
from tapewire import ingest, replay
from tapewire.book import L2Book
from tapewire.book.gaps import GapLedger
from tapewire.ingest import running_book
from tests.support.captures import (
    MIDNIGHT_NS,
    book_logs,
    capture_line,
    content_of,
    snapshot_line,
)

FORMAT = "binance-usdm"
DAY_1, DAY_2 = "v1/binance_usdm/AAA/2023-11-14", "v1/binance_usdm/AAA/2023-11-15"


def diff(time_ns, last, bids=(), previous=None):
    data = {"e": "depthUpdate", "s": "AAA", "U": last, "u": last, "T": 5}
    data |= {"pu": last - 1 if previous is None else previous, "b": list(bids), "a": []}
    return capture_line(time_ns, {"data": data})


@pytest.fixture
def read_records(monkeypatch):
    """How many records these books have read."""
    seen = []

    class Counting(L2Book):
        def apply_batch(self, batch):
            seen.append(len(batch))
            return super().apply_batch(batch)

    monkeypatch.setattr(running_book, "L2Book", Counting)
    return lambda: sum(seen)


def test_times_that_go_back_over_midnight_apply_each_record_once(
    import_lines, monkeypatch, read_records
):
    monkeypatch.setattr("tapewire.ingest.pending.FULL_RECORDS", 1)
    lines = [snapshot_line(MIDNIGHT_NS - 1, 100, [["1", "1"]], [["3", "1"]], "AAA")]
    lines += [
        diff(MIDNIGHT_NS + (1 if i % 2 else -1), 101 + i, [["1", str(i + 1)]]) for i in range(40)
    ]
    summary, content = import_lines(FORMAT, lines)
    assert summary.clean
    records = len(content[f"{DAY_1}/book"]) + len(content[f"{DAY_2}/book"])
    assert records == 42, "all lines, and the book as it stood at midnight"
    assert read_records() == records


def test_a_gap_is_counted_once_when_times_go_back_over_midnight(import_lines, monkeypatch, tmp):
    monkeypatch.setattr("tapewire.ingest.pending.FULL_RECORDS", 1)
    lines = [
        snapshot_line(MIDNIGHT_NS - 9, 100, [["1", "1"]], [["3", "1"]], "AAA"),
        diff(MIDNIGHT_NS - 8, 105),
        snapshot_line(MIDNIGHT_NS - 7, 110, [["1", "1"]], [["3", "1"]], "AAA"),
        diff(MIDNIGHT_NS, 111),
        diff(MIDNIGHT_NS - 1, 112),
        diff(MIDNIGHT_NS + 1, 113),
    ]
    summary, _ = import_lines(FORMAT, lines)
    assert summary.gaps == 1
    assert [log.gaps for log in summary.logs.values()] == [1, 0]


def test_a_row_of_another_day_is_not_missing_from_the_days_around_it(import_lines, tmp):
    """Without update ids, a reader of the earlier log cannot see that a row is in another one."""

    def line(time_s, changes):
        document = {"type": "l2update", "product_id": "A", "time": "2023-11-14T00:00:00Z"}
        return f"{time_s}.0: {json.dumps(document | {'changes': changes})}".encode()

    time_s = MIDNIGHT_NS // 10**9 - 10
    snapshot = {"type": "snapshot", "product_id": "A", "bids": [["10", "1"]], "asks": [["12", "1"]]}
    lines = [
        f"{time_s}.0: {json.dumps(snapshot)}".encode(),
        line(time_s + 40_000, [["buy", "11", "5"]]),
        line(time_s + 2, [["sell", "12", "3"]]),
    ]
    import_lines("coinbase", lines)
    first_day, _ = book_logs(tmp / "archive", "coinbase", "A")
    with replay.Replay(first_day) as steps:
        book = list(steps)[-1].book
    assert book.trusted
    assert book.best_bid.price == 11 * 10**8, "set by the row of the other day"
    assert book.best_ask.size == 3 * 10**8


def test_a_book_with_more_levels_than_an_event_holds_is_complete_after_midnight(
    import_lines, monkeypatch, tmp
):
    monkeypatch.setattr(running_book, "MAX_LEVELS", 3)
    bids = [[str(price), "1"] for price in range(1, 11)]
    lines = [
        snapshot_line(MIDNIGHT_NS - 9, 100, bids, [["20", "1"]], "AAA"),
        diff(MIDNIGHT_NS, 101, [["1", "7"]]),
    ]
    summary, _ = import_lines(FORMAT, lines)
    assert summary.clean
    book = L2Book(8, 8)
    with tw.open_log(tmp / "archive" / DAY_2 / "book") as log:
        for record in log:
            book.apply(record)
    assert [int(level["price"]) for level in book.bids()] == [p * 10**8 for p in range(10, 0, -1)]
    assert int(book.bids()[-1]["size"]) == 7 * 10**8
    assert (len(book.asks()), book.last_update) == (1, 101)


def test_many_gaps_are_added_to_the_ledger_at_once(import_lines, monkeypatch, tmp):
    """Reading and syncing the ledger for each gap would take minutes for a bad capture."""
    calls = []
    add = GapLedger.add

    def counted(ledger, *gaps):
        calls.append(len(gaps))
        return add(ledger, *gaps)

    monkeypatch.setattr(GapLedger, "add", counted)
    lines = []
    for i in range(50):
        lines.append(snapshot_line(MIDNIGHT_NS, 10 * i + 1, [["1", "1"]], [["3", "1"]], "AAA"))
        lines.append(diff(MIDNIGHT_NS, 10 * i + 5))
    summary, _ = import_lines(FORMAT, lines)
    assert summary.gaps == 50
    assert len(GapLedger(tmp / "archive" / DAY_2 / "book").read()) == 50
    assert calls == [50]


def test_a_log_that_lost_records_is_named(tmp, monkeypatch):
    """Instead of waiting for them indefinitely."""
    (tmp / "a").write_bytes(snapshot_line(MIDNIGHT_NS, 1, [["1", "1"]], [], "AAA"))
    real = tw.open_log

    class Blind:
        def __init__(self, directory):
            self.log = real(directory)

        def seek_seq(self, seq):
            self.log.seek_seq(seq + 1)

        def read_batch(self, most):
            return self.log.read_batch(most)

        def close(self):
            self.log.close()

    monkeypatch.setattr(running_book.tw, "open_log", Blind)
    with pytest.raises(tw.errors.CorruptMetadata, match="not in its log"):
        ingest.run(FORMAT, [tmp / "a"], tmp / "archive")
    monkeypatch.undo()
    assert len(content_of(tmp / "archive")[f"{DAY_2}/book"]) == 1


def snapshot(last_update):
    return snapshot_line(MIDNIGHT_NS, last_update, [["1", "1"]], [["3", "1"]], "AAA")


@pytest.mark.parametrize("late", [100, 105, 110, 119])
def test_a_snapshot_older_than_the_book_creates_no_gap(import_lines, late):
    """It was requested while diffs came."""
    lines = [snapshot(100), diff(MIDNIGHT_NS, 110, previous=100), diff(MIDNIGHT_NS, 120, [], 110)]
    lines += [snapshot(late), diff(MIDNIGHT_NS, 130, [["2", "1"]], 120)]
    summary, content = import_lines(FORMAT, lines)
    assert summary.clean
    assert summary.skipped == {"a snapshot older than the book": 1}
    assert len(content[f"{DAY_2}/book"]) == 4


def test_a_snapshot_that_the_diffs_follow_counts_however_low_its_ids(import_lines):
    """The venue's ids restarted."""
    lines = [snapshot(1000), diff(MIDNIGHT_NS, 1010, previous=1000), snapshot(5)]
    lines += [diff(MIDNIGHT_NS, 6, [["2", "1"]], 5), diff(MIDNIGHT_NS, 7, [["2", "2"]])]
    summary, content = import_lines(FORMAT, lines)
    assert (summary.clean, len(content[f"{DAY_2}/book"])) == (True, 5)


def test_a_snapshot_after_a_gap_repairs_the_book_with_the_diffs_before_it(import_lines):
    lines = [snapshot(100), diff(MIDNIGHT_NS, 110, previous=100)]
    lines += [diff(MIDNIGHT_NS, 210, previous=200), diff(MIDNIGHT_NS, 220, previous=210)]
    lines += [snapshot(205), diff(MIDNIGHT_NS, 230, previous=220)]
    lines += [snapshot(215), diff(MIDNIGHT_NS, 240, previous=230)]
    summary, _ = import_lines(FORMAT, lines)
    assert (summary.gaps, summary.untrusted) == (1, {})


def test_duplicate_lines_change_nothing(import_lines):
    lines = [snapshot(100), *[diff(MIDNIGHT_NS, 110, previous=100)] * 2, *[snapshot(110)] * 2]
    lines += [diff(MIDNIGHT_NS, 120, previous=110)] * 2
    lines += [snapshot(115), *lines[-2:], diff(MIDNIGHT_NS, 130, previous=120)]
    summary, _ = import_lines(FORMAT, lines)
    assert summary.clean


@pytest.mark.parametrize("altered", [107, 99_999])
def test_a_diff_within_the_one_before_it_is_no_duplicate(import_lines, tmp, altered):
    """Its ids are those of the venue, and the one before it has another last id than it had."""
    lines = [
        snapshot_line(MIDNIGHT_NS, 100, [["1", "1"]], [["3", "1"]], "AAA"),
        diff(MIDNIGHT_NS + 1, altered, previous=100),
        *(diff(MIDNIGHT_NS + id_, id_, [["1", str(id_)]]) for id_ in range(104, 112)),
    ]
    lines.insert(2, diff(MIDNIGHT_NS + 2, 103, previous=101))
    summary, _ = import_lines(FORMAT, lines)
    assert (summary.gaps, list(summary.untrusted)) == (1, ["binance_usdm/AAA/book"])
    with replay.Replay(book_logs(tmp / "archive", "binance_usdm", "AAA")) as steps:
        trusted = [step.book.trusted for step in steps]
    assert trusted[:2] == [True, True]
    assert not any(trusted[2:])
