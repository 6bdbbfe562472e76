"""Diffs out of order, and the diff that ends with a snapshot's id."""

import itertools
import json
import zlib

import pytest

import tapewire as tw
from tapewire.book import L2Book
from tapewire.ingest.diff_order import WINDOW
from tests.support.captures import MIDNIGHT_NS, capture_line, snapshot_line

BOOKS = {"binance-spot": "v1/binance_spot", "binance-usdm": "v1/binance_usdm", "okx": "v1/okx"}
STEPS = 60


def binance(format, count=STEPS, start=100):
    """A snapshot and diffs of ten ids each, and what the book holds after each of them."""
    lines = [snapshot_line(MIDNIGHT_NS, start, [["1", "1"]], [["9", "1"]], "AAA")]
    for i in range(1, count):
        last = start + 10 * i
        data = {"e": "depthUpdate", "E": i, "s": "AAA", "U": last - 9, "u": last}
        data |= {"b": [["1", str(i + 1)]], "a": [], "T": i}
        if format == "binance-usdm":
            data["pu"] = last - 10
        lines.append(capture_line(MIDNIGHT_NS + i, {"data": data}))
    return lines


def okx(_, count=STEPS):
    lines = []
    for i in range(count):
        crc = zlib.crc32(f"1:{i + 1}:9:1".encode())
        book = {
            "bids": [["1", str(i + 1), "0", "1"]],
            "asks": [["9", "1", "0", "1"]] if not i else [],
        }
        book |= {"ts": "5", "checksum": crc, "seqId": 10 * i + 7, "prevSeqId": 10 * i - 3}
        document = {"arg": {"channel": "books", "instId": "AAA"}, "data": [book]}
        document["action"] = "update" if i else "snapshot"
        if not i:
            book["prevSeqId"] = -1
        second, ns = divmod(MIDNIGHT_NS + i, 10**9)
        lines.append(f"{second}.{ns:09}: {json.dumps(document)}".encode())
    return lines


MAKERS = {"binance-spot": binance, "binance-usdm": binance, "okx": okx}


def book_log(tmp, format):
    (directory,) = tmp.glob(f"archive/{BOOKS[format]}/AAA/2023-11-15/book")
    return directory


def states(tmp, format):
    """``(time, size of the best bid)`` after each record; None for an untrusted book."""
    book = L2Book(8, 8, on_gap="resync")
    found = []
    with tw.open_log(book_log(tmp, format)) as log:
        for record in log:
            book.apply(record)
            size = book.best_bid.size // 10**8 if book.trusted else None
            found.append((record.timestamp_ns - MIDNIGHT_NS, size))
    return found


def in_order(seen):
    return all(a[0] <= b[0] for a, b in itertools.pairwise(seen))


@pytest.mark.parametrize("format", MAKERS)
@pytest.mark.parametrize("distance", [1, WINDOW - 1])
@pytest.mark.parametrize("at", [1, 2, 40])
def test_a_diff_that_comes_late_costs_nothing(import_lines, tmp, format, distance, at):
    lines = MAKERS[format](format)
    lines.insert(at + distance, lines.pop(at))
    summary, _ = import_lines(format, lines)
    assert summary.clean, summary
    seen = states(tmp, format)
    assert [size for _, size in seen] == list(range(1, STEPS + 1))
    assert in_order(seen)


@pytest.mark.parametrize("format", ["binance-spot", "binance-usdm"])
def test_diffs_before_the_snapshot_are_put_into_order_too(import_lines, tmp, format):
    lines = binance(format)
    lines.insert(12, lines.pop(0))
    lines[3], lines[4] = lines[4], lines[3]
    lines[0], lines[1] = lines[1], lines[0]
    summary, _ = import_lines(format, lines)
    assert summary.clean, summary
    assert states(tmp, format)[-1][1] == STEPS


@pytest.mark.parametrize("format", MAKERS)
def test_a_diff_that_never_comes_is_one_gap_and_the_others_keep_their_times(
    import_lines, tmp, format
):
    lines = MAKERS[format](format)
    del lines[20]
    summary, content = import_lines(format, lines)
    assert summary.gaps == 1
    seen = states(tmp, format)
    assert [time for time, _ in seen] == [i for i in range(STEPS) if i != 20]
    assert [size for _, size in seen] == [*range(1, 21), *[None] * (STEPS - 21)]
    (directory,) = [key[0] for key in content if key[1:] == ("gaps",) and key[0].endswith("book")]
    (gap,) = content[directory, "gaps"]
    assert gap.kind == "venue"
    assert gap.seq == 20


def test_a_swapped_pair_across_two_files_costs_nothing(tmp):
    lines = binance("binance-usdm")
    lines[30], lines[31] = lines[31], lines[30]
    paths = [tmp / "a", tmp / "b"]
    for path, part in zip(paths, (lines[:31], lines[31:]), strict=True):
        path.write_bytes(b"\n".join(part) + b"\n")
    summary = tw.ingest.run("binance-usdm", paths, tmp / "archive")
    assert summary.clean
    assert [size for _, size in states(tmp, "binance-usdm")] == list(range(1, STEPS + 1))


def test_the_wire_copy_stays_in_the_order_of_arrival(import_lines):
    lines = binance("binance-usdm")
    lines[30], lines[31] = lines[31], lines[30]
    _, content = import_lines("binance-usdm", lines, keep_wire=True)
    raw = content["v1/binance_usdm/AAA/2023-11-15/raw"]
    assert [row[3] for row in raw] == [line.partition(b" ")[2] for line in lines]


def test_a_swapped_pair_with_an_old_snapshot_between_costs_nothing(import_lines, tmp):
    lines = binance("binance-usdm")
    late = snapshot_line(MIDNIGHT_NS + 30, 100 + 10 * 29 + 5, [["1", "77"]], [["9", "1"]], "AAA")
    lines[30:32] = [lines[31], late, lines[30]]
    summary, _ = import_lines("binance-usdm", lines)
    assert summary.clean
    assert states(tmp, "binance-usdm")[-1][1] == STEPS


def test_a_rejected_row_among_waiting_diffs_is_marked_where_it_was(import_lines, tmp):
    lines = binance("binance-usdm")
    lines[20] = lines[20].replace(b'"b": [["1"', b'"b": [["x"')
    summary, _ = import_lines("binance-usdm", lines)
    assert summary.bad == {"a value does not fit": 1}
    sizes = [size for _, size in states(tmp, "binance-usdm")]
    assert sizes == [*range(1, 21), *[None] * (STEPS - 20)], "a loss, and no diff, is the 21st"


# The diff with the id of the snapshot has a level that the snapshot lacks.


def with_last_diff(place):
    """A snapshot with id 120 at this place among diffs; after it the ask at 8 is missing."""
    lines = binance("binance-usdm", count=8)[1:]
    data = json.loads(lines[1].partition(b" ")[2])
    assert data["data"]["u"] == 120
    data["data"]["a"] = [["8", "3"]]
    lines[1] = lines[1].partition(b" ")[0] + b" " + json.dumps(data).encode()
    time_ns = MIDNIGHT_NS + min(place, len(lines) - 1)
    lines.insert(place, snapshot_line(time_ns, 120, [["1", "3"]], [["9", "1"]], "AAA"))
    return lines


@pytest.mark.parametrize("place", [0, 1, 2, 3, 5, 7])
def test_the_diff_with_the_id_of_a_snapshot_belongs_to_the_book_of_futures(
    import_lines, tmp, place
):
    summary, _ = import_lines("binance-usdm", with_last_diff(place))
    assert summary.clean, summary
    book = L2Book(8, 8)
    with tw.open_log(book_log(tmp, "binance-usdm")) as log:
        book.apply_batch(log.read_batch(100))
    assert (book.best_ask.price, book.best_ask.size) == (8 * 10**8, 3 * 10**8)
    assert (book.best_bid.size, book.last_update) == (8 * 10**8, 170)


def test_the_diff_with_the_id_of_a_snapshot_is_in_the_snapshot_of_spot(import_lines, tmp):
    lines = [line.replace(b'"pu"', b'"x"') for line in with_last_diff(2)]
    import_lines("binance-spot", lines)
    book = L2Book(8, 8)
    with tw.open_log(book_log(tmp, "binance-spot")) as log:
        book.apply_batch(log.read_batch(100))
    assert book.best_ask.price == 9 * 10**8


def test_a_loss_before_the_last_diff_of_a_snapshot_does_not_lose_it(import_lines, tmp):
    lines = with_last_diff(1)
    lines.insert(2, b"not a message")
    import_lines("binance-usdm", lines)
    book = L2Book(8, 8, on_gap="resync")
    with tw.open_log(book_log(tmp, "binance-usdm")) as log:
        book.apply_batch(log.read_batch(100))
    assert book.trusted
    assert book.best_ask.price == 8 * 10**8
