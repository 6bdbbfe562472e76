"""One diff removed from each sequenced capture: the gap is named, then repaired by a snapshot."""

import pytest

import tapewire as tw
from tapewire import ingest
from tapewire.book import L2Book
from tapewire.book.gaps import GapLedger
from tests.support.binance_captures import (
    SPOT_BTC_DAY_1,
    USDM_BTC_2023,
    USDM_BTC_2024,
    USDM_ETH_2024,
    is_diff,
    is_snapshot,
    messages,
    previous_id,
)
from tests.support.captures import book_logs, snapshot_line, write_capture
from tests.support.decimal_book import DecimalBook

REPAIRED_AFTER = 300  # diffs after the missing one


def broken(files, path):
    """The capture's book without one diff, and with a snapshot, made independently, some later.

    Returns the range that is missing.
    """
    rows = list(messages(files, b'"depthUpdate"', b'"lastUpdateId"'))
    diffs = sum(is_diff(message) for _, message in rows)
    lines, early, book, last, seen, missing = [], [], None, 0, 0, None
    for line, message in rows:
        lines.append(line)
        if is_snapshot(message):
            book, last = DecimalBook(), message["lastUpdateId"]
            book.apply(message["bids"], message["asks"])
        elif is_diff(message):
            seen += 1
            early.append(message)
        if book is None:
            continue
        for diff in early:  # one; at the snapshot those that came before it
            if diff["u"] > last:
                assert previous_id(diff) <= last
                book.apply(diff["b"], diff["a"])
                before, last = last, diff["u"]
        if is_diff(message) and seen == diffs // 2:
            lines.pop()
            missing = (before + 1, last)
        if is_diff(message) and seen == diffs // 2 + REPAIRED_AFTER:
            lines.append(snapshot_line(int(line.partition(b" ")[0]), last, *book.levels()))
        early.clear()
    write_capture(path, lines)
    return missing


def last_hash(archive, venue, symbol):
    book = L2Book(8, 8)
    for directory in book_logs(archive, venue, symbol):
        with tw.open_log(directory) as log:
            book.apply_batch(log.read_batch(1 << 20))
    assert book.trusted
    return book.hash()


@pytest.mark.parametrize(
    ("venue", "symbol", "names"),
    [
        ("binance_usdm", "BTCUSDT", USDM_BTC_2023),
        ("binance_usdm", "BTCUSDT", USDM_BTC_2024),
        ("binance_usdm", "ETHUSDT", USDM_ETH_2024),
        ("binance_spot", "BTCUSDT", SPOT_BTC_DAY_1),
    ],
    ids=["usdm_btc_2023", "usdm_btc_2024", "usdm_eth_2024", "spot_btc_2024"],
)
def test_the_gap_is_named_and_a_snapshot_repairs_the_book(imported, tmp, venue, symbol, names):
    format = venue.replace("_", "-")
    whole = imported(format, *(f"binance/{name}" for name in names))
    missing = broken(whole.files, tmp / "capture.gz")
    summary = ingest.run(format, [tmp / "capture.gz"], tmp / "archive", symbols=[symbol])
    assert (summary.gaps, summary.untrusted) == (1, {})

    entries = []
    book = L2Book(8, 8, on_gap="resync")
    untrusted = 0
    for directory in book_logs(tmp / "archive", venue, symbol):
        entries += GapLedger(directory).read()
        with tw.open_log(directory) as log:
            for record in log:
                was = book.trusted
                book.apply(record)
                untrusted += not book.trusted
                if was and not book.trusted:
                    assert (entries[-1].seq, entries[-1].timestamp_ns) == (
                        record.seq,
                        record.timestamp_ns,
                    )
    (entry,) = entries
    (gap,) = book.gaps
    assert (entry.kind, entry.first, entry.last) == ("venue", *missing)
    assert (gap.cause, gap.first, gap.last, gap.resynced) == ("venue_gap", *missing, True)
    assert entry.action == "resynced"
    assert untrusted >= REPAIRED_AFTER
    assert book.trusted
    assert book.hash() == last_hash(whole.archive, venue, symbol)
