"""A rejected row that may have changed a book distrusts it until its next snapshot."""

import pytest

from tapewire import ingest, replay
from tapewire.book.gaps import GapLedger
from tests.support.archives import logs_of
from tests.support.captures import MIDNIGHT_NS, capture_line, snapshot_line

T = 1_700_000_000_000_000
TARDIS = "exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount"


def trust(tmp, venue, symbol):
    """Whether the book is trusted after each event that is no loss, and its best prices."""
    with replay.Replay(logs_of(tmp / "archive", venue, symbol, "book")) as running:
        return [step.book.trusted for step in running if step.record.decode().loss is None]


def tardis(tmp, rows, **options):
    (tmp / "l2.csv").write_text("\n".join([TARDIS, *(f"x,{row}" for row in rows)]))
    return ingest.run("tardis", [tmp / "l2.csv"], tmp / "archive", **options)


def level(time, side="bid", price="1.00", snapshot="false", symbol="A"):
    return f"{symbol},{T + time},{T + time},{snapshot},{side},{price},1"


def test_tardis_with_a_scale_too_small_shows_no_wrong_book(tmp):
    rows = [level(0, "bid", "1.0", "true"), level(0, "ask", "2.0", "true")]
    rows += [level(1, "bid", "0.9"), *(level(i, "ask", f"1.9{i}") for i in range(2, 10))]
    rows += [level(10, "bid", "1.1")]
    summary = tardis(tmp, rows, price_scale=1)
    assert summary.bad == {"more decimals than the scale has": 8}
    assert (summary.gaps, list(summary.untrusted)) == (1, ["x/A/book"])
    # The first bad row may belong to the event before it.
    assert trust(tmp, "x", "A") == [True, False, False]
    (log,) = logs_of(tmp / "archive", "x", "A", "book")
    (gap,) = GapLedger(log).read()
    assert (gap.kind, gap.action) == ("parse", "untrusted")


def test_the_next_snapshot_ends_the_doubt(tmp):
    snapshot = [level(0, "bid", "1.0", "true"), level(0, "ask", "2.0", "true")]
    again = [level(9, "bid", "1.0", "true"), level(9, "ask", "2.0", "true")]
    between = [level(i, "bid", "x" if i == 4 else f"1.{i}") for i in range(2, 6)]
    summary = tardis(tmp, [*snapshot, *between, *again])
    assert trust(tmp, "x", "A") == [True, True, False, False, True]
    assert not summary.untrusted


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_snapshot_without_one_of_its_rows_does_not_end_the_doubt(tmp, at):
    rows = [level(0, "ask", "2.0", "true"), level(0, "bid", "1.0", "true")]
    again = [level(9, "bid", price, "true") for price in ("1.0", "0.9", "0.8")]
    again[at] = level(9, "bid", "x", "true")
    last = [level(20, "bid", "1.0", "true"), level(20, "ask", "2.0", "true")]
    tardis(tmp, [*rows, level(5), *again, level(10), *last])
    found = trust(tmp, "x", "A")
    assert found[0]
    assert found[-3:] == [False, False, True], "the incomplete one, the diff, the complete one"


def test_rows_of_another_symbol_in_between_do_not_hide_the_first_row_of_a_snapshot(tmp):
    rows = [level(0, "ask", "2.0", "true"), level(5)]
    rows += [level(9, "bid", "x", "true"), level(9, "bid", "7", "true", "B")]
    rows += [level(9, "bid", "0.9", "true"), level(10)]
    tardis(tmp, rows)
    assert trust(tmp, "x", "A") == [True, False, False, False]
    assert trust(tmp, "x", "B") == [True]


def test_rows_of_snapshot_files_are_complete_or_missing(tmp):
    header = "exchange,symbol,timestamp,local_timestamp,asks[0].price,asks[0].amount,"
    header += "bids[0].price,bids[0].amount"
    rows = [f"x,A,{T + i},{T + i},2,1,{'x' if i == 1 else 1},1" for i in range(4)]
    (tmp / "snapshots.csv").write_text("\n".join([header, *rows]))
    ingest.run("tardis", [tmp / "snapshots.csv"], tmp / "archive")
    logs = logs_of(tmp / "archive", "x", "A", "book_snapshot_1")
    with replay.Replay(logs) as running:
        found = [(step.record.decode().loss is None, step.book.trusted) for step in running]
    assert found == [(True, True), (False, False), (True, True), (True, True)]


def test_more_losses_than_are_kept_apart_are_joined(tmp, monkeypatch):
    monkeypatch.setattr("tapewire.ingest.losses.MAX_EXACT", 4)
    rows = [level(0, "bid", "1.0", "true"), level(0, "ask", "2.0", "true"), level(1)]
    for i in range(1, 20):
        rows += [level(10 * i, "bid", "x"), level(10 * i + 1, "bid", "1.0", "true")]
    tardis(tmp, rows)
    found = trust(tmp, "x", "A")
    assert found[0]
    assert not any(found[5:-1]), "joined: no snapshot between them counts"


def test_a_trade_that_is_rejected_changes_no_book(tmp):
    capture = tmp / "capture"
    trade = {
        "e": "trade",
        "s": "AAA",
        "t": 1,
        "p": True,
        "q": "1",
        "T": 5,
        "m": True,
        "X": "MARKET",
    }
    lines = [
        snapshot_line(MIDNIGHT_NS, 100, [["1", "1"]], [["3", "1"]], "AAA"),
        capture_line(MIDNIGHT_NS + 1, {"data": trade}),
    ]
    capture.write_bytes(b"\n".join(lines))
    summary = ingest.run("binance-usdm", [capture], tmp / "archive", check_market=False)
    assert sum(summary.bad.values()) == 1, "JSON true is no price"
    assert (summary.gaps, summary.untrusted) == (0, {})


def coinbase(kind, **fields):
    import json

    return b"1618677817.1: " + json.dumps({"type": kind, "product_id": "A-B", **fields}).encode()


def test_a_file_of_bad_rows_only_counts_for_the_books_that_continue_after_it(tmp):
    """The files are parts of one capture: the bad rows may have been of any book."""
    start = coinbase("snapshot", bids=[["1", "1"]], asks=[["2", "1"]])
    change = coinbase("l2update", changes=[["buy", "1", "2"]], time="2021-04-17T16:43:37.089723Z")
    for name, line in (("1", start), ("2", b"\xff\xfe nothing"), ("3", change)):
        (tmp / name).write_bytes(line + b"\n")
    files = [tmp / name for name in "123"]
    summary = ingest.run("coinbase", files, tmp / "archive", check_market=False)
    assert trust(tmp, "coinbase", "A-B") == [True, False]
    assert list(summary.untrusted) == ["coinbase/A-B/book"]
