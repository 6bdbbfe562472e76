"""Captures that overlap, in one import or in a later one: only what is new is appended."""

import json
import random

import pytest

import tapewire as tw
from tapewire import ingest
from tapewire.book import L2Book
from tests.support.captures import (
    MIDNIGHT_NS,
    capture_line,
    content_of,
    futures_lines,
    is_loss,
    snapshot_line,
)
from tests.support.venue_files import MAKERS

FORMAT = "binance-usdm"
DAY = "v1/binance_usdm/AAA/2023-11-15"


def trade(time_ns, number, *, exchange_ms=None, price="1.5", symbol="AAA"):
    data = {"e": "trade", "s": symbol, "t": number, "p": price, "q": "2", "m": True}
    return capture_line(
        time_ns, {"data": data | {"T": number if exchange_ms is None else exchange_ms}}
    )


def rows_of(content, name):
    """Time, type and payload of the records of a log."""
    return [row[1:] for row in content.get(name, [])]


def run(tmp, archive, *parts, format=FORMAT, **options):
    """Import each part, a list of lines, as a file of its own job; the last summary."""
    for lines in parts:
        path = tmp / f"{archive}-{len(list(tmp.iterdir()))}"
        path.write_bytes(b"\n".join(lines) + b"\n")
        summary = ingest.run(format, [path], tmp / archive, **options)
    return summary


def logs(content):
    return {name: rows_of(content, name) for name in content if str(name).startswith("v1/")}


@pytest.mark.parametrize("seed", range(4))
def test_a_later_capture_that_overlaps_adds_only_what_is_new(tmp, seed):
    """Trades and books; the second one begins with a snapshot of its own."""
    rng = random.Random(seed)
    lines = [x for x in futures_lines(3_000, seed=seed, bad_every=0) if b"bookTicker" not in x]
    cut, again = 2_000, rng.randrange(200, 1_900)
    run(tmp, "archive", lines[:cut])
    before = content_of(tmp / "archive")
    summary = run(tmp, "archive", lines[again:])
    run(tmp, "complete", lines)
    assert logs(content_of(tmp / "archive")) == logs(content_of(tmp / "complete"))
    assert summary.clean, summary
    assert sum(summary.skipped.values()) == cut - again
    assert {
        name: content_of(tmp / "archive")[name][: len(rows)]
        for name, rows in before.items()
        if str(name).startswith("v1/")
    } == {name: rows for name, rows in before.items() if str(name).startswith("v1/")}


def diff(time_ns, previous, last, size, exchange_ms=None):
    data = {"e": "depthUpdate", "s": "AAA", "U": previous + 1, "u": last, "pu": previous}
    data |= {"b": [["1", str(size)]], "a": [], "T": last if exchange_ms is None else exchange_ms}
    return capture_line(time_ns, {"data": data})


def steps(first, last):
    return [diff(MIDNIGHT_NS + i, 100 + 10 * i, 110 + 10 * i, i + 1) for i in range(first, last)]


def snap(at, size=7):
    return snapshot_line(MIDNIGHT_NS + at, 100 + 10 * at, [["1", str(size)]], [["9", "1"]], "AAA")


def test_the_snapshot_of_an_overlapping_capture_is_not_appended(tmp):
    run(tmp, "archive", [snap(0), *steps(0, 50)], [snap(30), *steps(30, 80)])
    run(tmp, "complete", [snap(0), *steps(0, 80)])
    assert logs(content_of(tmp / "archive")) == logs(content_of(tmp / "complete"))


def test_overlapping_files_of_one_import_give_each_update_once(tmp):
    for name, part in (("a", [snap(0), *steps(0, 50)]), ("b", [snap(30), *steps(30, 80)])):
        (tmp / name).write_bytes(b"\n".join(part) + b"\n")
    summary = ingest.run(FORMAT, [tmp / "a", tmp / "b"], tmp / "archive")
    run(tmp, "complete", [snap(0), *steps(0, 80)])
    assert logs(content_of(tmp / "archive")) == logs(content_of(tmp / "complete"))
    assert summary.clean
    assert summary.skipped["a book update that is in the log already"] >= 20


def test_a_book_that_ended_untrusted_gets_the_snapshot_of_the_next_capture(tmp):
    broken = [snap(0), *steps(0, 20), *steps(25, 50)]
    summary = run(tmp, "archive", broken, [snap(30), *steps(30, 80)])
    assert summary.untrusted == {}
    book = L2Book(8, 8, on_gap="resync")
    with tw.open_log(tmp / "archive" / DAY / "book") as log:
        book.apply_batch(log.read_batch(1_000))
    assert (book.trusted, book.last_update, book.best_bid.size) == (True, 900, 80 * 10**8)


def test_a_book_that_continues_a_log_is_followed_from_its_start(tmp):
    """The second capture has no snapshot: its diffs continue the book of the first."""
    summary = run(tmp, "archive", [snap(0), *steps(0, 50)], steps(50, 80))
    assert summary.clean, summary


def test_a_missing_update_between_two_captures_is_a_gap(tmp):
    summary = run(tmp, "archive", [snap(0), *steps(0, 50)], steps(52, 80))
    assert summary.gaps == 1
    assert list(summary.untrusted) == ["binance_usdm/AAA/book"]


def test_ids_that_restarted_are_no_repetition(tmp):
    later = [
        snapshot_line(MIDNIGHT_NS + 100, 5, [["1", "1"]], [["9", "1"]], "AAA"),
        diff(MIDNIGHT_NS + 101, 5, 6, 77, exchange_ms=10_000),
    ]
    run(tmp, "archive", [snap(0), *steps(0, 50)], later)
    assert len(content_of(tmp / "archive")[f"{DAY}/book"]) == 53


def test_doubled_trades_are_dropped_and_counted(import_lines):
    lines = [trade(MIDNIGHT_NS + i, i) for i in range(1, 200)]
    doubled = [line for line in lines for _ in range(1 + (line is lines[17] or line is lines[90]))]
    doubled.append(lines[3])
    summary, content = import_lines(FORMAT, doubled)
    assert len(content[f"{DAY}/trades"]) == 199
    assert summary.skipped == {"a trade that is in the log already": 3}
    assert summary.clean


def test_doubled_trades_are_found_wherever_chunks_end(import_lines, monkeypatch):
    monkeypatch.setattr("tapewire.ingest.pending.FULL_RECORDS", 7)
    lines = [trade(MIDNIGHT_NS + i, i) for i in range(1, 100)]
    summary, content = import_lines(FORMAT, [*lines, *lines[40:], *lines[:60]])
    assert len(content[f"{DAY}/trades"]) == 99
    assert summary.skipped == {"a trade that is in the log already": 59 + 60}


def test_late_trades_and_other_trades_with_the_same_id_are_kept(import_lines):
    lines = [trade(MIDNIGHT_NS + i, i) for i in (1, 2, 4, 3)]
    lines += [trade(MIDNIGHT_NS + 9, 3, price="7"), trade(MIDNIGHT_NS + 9, 3, exchange_ms=99)]
    summary, content = import_lines(FORMAT, lines)
    assert len(content[f"{DAY}/trades"]) == 6
    assert summary.skipped == {}


def test_trades_without_ids_are_never_dropped(import_lines):
    arg = '{"arg":{"channel":"trade","instId":"A","instType":"mc"},"action":"update",'
    line = b"1700006400.5: " + arg.encode() + b'"data":[["5","1","2","buy"]]}'
    _summary, content = import_lines("bitget", [line, line])
    assert len(content["v1/bitget_mix/A/2023-11-15/trades"]) == 2


def quote(time_ns, update=3):
    data = {"e": "bookTicker", "u": update, "s": "AAA", "b": "1", "B": "2", "a": "3", "A": "4"}
    return capture_line(time_ns, {"data": data})


def test_records_without_an_identity_are_reported_if_they_may_be_there_twice(tmp):
    lines = [quote(MIDNIGHT_NS + i) for i in range(50)]
    summary = run(tmp, "archive", lines[:30], lines[10:])
    assert len(content_of(tmp / "archive")[f"{DAY}/quotes"]) == 30 + 40
    assert summary.overlapping == 19, "the last one of the first capture has its very time"
    assert not summary.clean
    assert summary.to_dict()["logs"][0]["overlapping"] == 19
    path = next(iter(tmp.glob("archive/imports/*.json")))
    assert json.loads(path.read_text())["summary"]["overlapping"] in (0, 19)
    again = ingest.run(FORMAT, [sorted(tmp.glob("archive-*"))[-1]], tmp / "archive")
    assert (again.already, again.overlapping) == (True, 19)


def test_what_is_left_out_does_not_depend_on_a_killed_run(tmp):
    """The run wrote everything but its end; resumed, it leaves out the same and appends nothing."""
    lines = list(futures_lines(2_000, bad_every=0))
    run(tmp, "archive", lines[:1_200])
    (tmp / "second").write_bytes(b"\n".join([*lines[500:], *lines[1_900:]]) + b"\n")
    first = ingest.run(FORMAT, [tmp / "second"], tmp / "archive")
    before = content_of(tmp / "archive")
    job = tmp / "archive" / "imports" / f"{first.job}.json"
    job.write_text(json.dumps(json.loads(job.read_text()) | {"state": "running", "summary": {}}))
    again = ingest.run(FORMAT, [tmp / "second"], tmp / "archive")
    assert again.resumed
    assert content_of(tmp / "archive") == before
    assert again.skipped == first.skipped
    assert [log.appended for log in again.logs.values()] == [0] * len(again.logs)


@pytest.mark.parametrize("format", ["szse", "sse", "itch", "dbn"])
def test_an_overlapping_file_of_orders_adds_only_what_is_new(tmp, format):
    files, options = MAKERS[format](tmp, 3_000)
    earlier = shortened(tmp, format, files)
    ingest.run(format, earlier, tmp / "archive", **options)
    before = content_of(tmp / "archive")
    summary = ingest.run(format, files, tmp / "archive", **options)
    ingest.run(format, files, tmp / "complete", **options)
    got, want = logs(content_of(tmp / "archive")), logs(content_of(tmp / "complete"))
    for name in want:
        if "snapshot" not in name:
            assert without_marks(got[name]) == without_marks(want[name]), name
    assert any(len(before[name]) < len(want[name]) for name in want if name in before)
    assert sum(count for kind, count in summary.skipped.items() if "already" in kind) > 1_000


def without_marks(rows):
    return [row for row in rows if row[1] != 0x1000 or not is_loss(row[2])]


def shortened(tmp, format, files):
    """The same files without their ends."""
    (tmp / "earlier").mkdir()
    made = []
    for file in files:
        data = file.read_bytes()
        if format == "szse":  # orders and trades have numbers in common
            rows = data.splitlines(keepends=True)
            kept = [row for row in rows[1:] if int(row.rpartition(b",")[2]) <= 2_000]
            data, cut = b"".join([rows[0], *kept]), None
        elif format == "dbn":
            cut = len(data) - 56 * 900
        else:
            cut = len(data) * 2 // 3
            cut = boundary(data, cut) if format == "itch" else data.index(b"\n", cut) + 1
        made.append(tmp / "earlier" / file.name)
        made[-1].write_bytes(data[:cut])
    return made


def boundary(data, cut):
    """The end of the last message before `cut`."""
    at = 0
    while at + 2 + int.from_bytes(data[at : at + 2], "big") <= cut:
        at += 2 + int.from_bytes(data[at : at + 2], "big")
    return at
