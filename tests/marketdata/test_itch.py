"""NASDAQ ITCH 5.0: every message of the simulated file, against a reading of it in plain Python."""

import collections
import struct

import numpy as np
import pytest

from tapewire import ingest
from tapewire.book import L3Book
from tapewire.errors import CorruptSource
from tapewire.protocol.market import TradeTick
from tests.support.archives import batches_of, l3_book_of, logs_of
from tests.support.marketdata import capture, report_count

MENDED, BROKEN = "itch/ex20101224.relen.itch50", "itch/ex20101224.TEST_ITCH_50"
DATE = "2010-12-24"
STOCKS = ("ALC", "BOB", "CHAR")


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    archive = tmp_path_factory.mktemp("itch")
    return archive, ingest.run("itch", [capture(MENDED)], archive, date=DATE)


def messages():
    data, at = capture(MENDED).read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack_from(">H", data, at)
        yield data[at + 2 : at + 2 + length]
        at += 2 + length


def number(message, at, size):
    return int.from_bytes(message[at : at + size], "big")


class PlainBook:
    """Orders by id as dictionaries, and the printed trades."""

    def __init__(self):
        self.orders = {}
        self.trades = collections.Counter()
        self.names = {}

    def take(self, message):
        kind, locate = chr(message[0]), number(message, 1, 2)
        if kind == "R":
            self.names[locate] = message[11:19].decode().rstrip()
            return
        order_id = number(message, 11, 8)
        if kind in "AF":
            side, size, price = chr(message[19]), number(message, 20, 4), number(message, 32, 4)
            self.orders[order_id] = [self.names[locate], side, price, size]
        elif kind == "P":
            size, price = number(message, 20, 4), number(message, 32, 4)
            self.trades[(self.names[locate], price)] += size
        elif kind in "EXD" and order_id in self.orders:
            order = self.orders[order_id]
            size = order[3] if kind == "D" else number(message, 19, 4)
            if kind == "E":
                self.trades[(order[0], order[2])] += size
            order[3] -= size
            if order[3] <= 0:
                del self.orders[order_id]
        elif kind == "U" and order_id in self.orders:
            name, side, _, _ = self.orders.pop(order_id)
            replaced = [name, side, number(message, 31, 4), number(message, 27, 4)]
            self.orders[number(message, 19, 8)] = replaced

    def levels(self, stock, side):
        sizes = collections.Counter()
        for name, order_side, price, size in self.orders.values():
            if (name, order_side) == (stock, side):
                sizes[price] += size
        return sorted(sizes.items(), reverse=side == "B")


@pytest.fixture(scope="module")
def plain():
    book = PlainBook()
    for message in messages():
        book.take(message)
    return book


def test_every_message_is_parsed(imported):
    _, summary = imported
    report_count("itch messages", summary.rows, 12_012)
    report_count("itch bad messages", sum(summary.bad.values()), 0)


def test_the_simulated_books_are_untrusted(imported):
    """They are crossed, and have events of 117 orders that were never added."""
    archive, summary = imported
    assert summary.skipped["of an order that was never added"] == 117
    assert {name.split("/")[1] for name in summary.untrusted} == set(STOCKS)
    assert all("crossed outside an auction" in why for why in summary.untrusted.values())
    replayed = l3_book_of(archive, "nasdaq", "CHAR", on_gap="resync")
    for batch in batches_of(archive, "nasdaq", "CHAR", "book"):
        replayed.apply_batch(batch)
    assert not replayed.trusted


@pytest.mark.parametrize("stock", STOCKS)
def test_the_book_at_the_end_is_that_of_a_plain_reading(imported, plain, stock):
    archive, _ = imported
    # Without the venue's rules, by which the simulated book is crossed.
    replayed = L3Book(price_scale=4, size_scale=0, unknown="ignore")
    for batch in batches_of(archive, "nasdaq", stock, "book"):
        replayed.apply_batch(batch)
    for side, levels in (("B", replayed.bids()), ("S", replayed.asks())):
        got = list(zip(levels["price"].tolist(), levels["size"].tolist(), strict=True))
        want = plain.levels(stock, side)
        assert want
        right = sum(a == b for a, b in zip(got, want, strict=True))
        report_count(f"itch {stock} levels of side {side}", right, len(want))


@pytest.mark.parametrize("stock", STOCKS)
def test_trades_are_those_of_a_plain_reading(imported, plain, stock):
    archive, _ = imported
    ticks = np.concatenate(
        [TradeTick.decode(batch) for batch in batches_of(archive, "nasdaq", stock, "trades")]
    )
    got = collections.Counter()
    for price, size in zip(ticks["price"].tolist(), ticks["size"].tolist(), strict=True):
        got[price] += size
    want = {price: size for (name, price), size in plain.trades.items() if name == stock}
    assert got == want
    report_count(f"itch {stock} shares traded", sum(got.values()), sum(want.values()))


def test_times_start_at_midnight_in_new_york(imported):
    archive, _ = imported
    first = next(messages())
    (log,) = logs_of(archive, "nasdaq", "ALC", "book")
    assert log.parent.name == DATE
    midnight_ns = 1_293_166_800 * 10**9  # 2010-12-24T00:00:00-05:00
    batch = next(batches_of(archive, "nasdaq", "ALC", "book"))
    assert number(first, 5, 6) < int(batch.timestamp_ns[0]) - midnight_ns < 86_400 * 10**9


def test_a_file_with_wrong_lengths_is_refused_with_the_remedy(tmp):
    with pytest.raises(CorruptSource, match='lengths="type"'):
        ingest.run("itch", [capture(BROKEN)], tmp / "archive", date=DATE)


def test_a_file_with_wrong_lengths_is_read_by_types_if_asked_for(tmp, imported):
    archive, _ = imported
    summary = ingest.run("itch", [capture(BROKEN)], tmp / "a", date=DATE, lengths="type")
    report_count("itch messages without lengths", summary.rows, 12_012)
    got = {name: log.records for name, log in summary.logs.items()}
    assert got == {name: log.records for name, log in imported[1].logs.items()}
    for stock in STOCKS:
        for stream in ("book", "trades"):
            same = zip(
                batches_of(tmp / "a", "nasdaq", stock, stream),
                batches_of(archive, "nasdaq", stock, stream),
                strict=True,
            )
            for mine, other in same:
                assert [mine.payload(i) for i in range(len(mine))] == [
                    other.payload(i) for i in range(len(other))
                ]
