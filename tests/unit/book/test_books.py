"""The Python side of books: batches, views, options, and their text."""

import doctest
import html
import threading

import numpy as np
import pytest

import tapewire as tw
from tapewire import book
from tapewire.book import _native
from tapewire.protocol import market
from tapewire.protocol.instruments import Instrument

BTC = Instrument.of("binance", "BTCUSDT", price_scale=2, size_scale=3)
STOCK = Instrument.of("xshg", "600519", price_scale=3, size_scale=0, book_mode="l3")


def snapshot(native_seq=4):
    return market.l2_snapshot(BTC, 1, bids=[(10000, 5)], asks=[(10010, 7)], native_seq=native_seq)


def diff(prev, last, bids=(), asks=()):
    return market.l2_diff(BTC, 1, bids=bids, asks=asks, first=prev + 1, last=last, prev=prev)


def batch_of(tmp, payloads):
    with tw.open_publisher(tmp / "q") as writer:
        for payload in payloads:
            writer.append(0x1000, payload, timestamp_ns=1)
        writer.append(0x2001, b"of another type", timestamp_ns=1)
    with tw.open_log(tmp / "q") as reader:
        return reader.read_batch(1000)


def test_the_examples_of_the_native_module_run():
    for found in doctest.DocTestFinder().find(_native, "_native"):
        result = doctest.DocTestRunner().run(found)
        assert result.failed == 0
    assert _native.L2Book.__doc__
    assert ">>>" in _native.L2Book.__doc__


def test_a_batch_has_the_same_result_as_its_records(tmp):
    payloads = [snapshot(), diff(4, 5, [(10005, 3)]), diff(5, 6, [(10005, 0)], [(10009, 1)])]
    batch = batch_of(tmp, payloads)
    one, many = book.L2Book(2, 3), book.L2Book(2, 3)
    for payload in payloads:
        one.apply(payload)
    assert many.apply_batch(batch) == 3
    assert many.hash() == one.hash()
    assert (many.last_seq, one.last_seq) == (batch.seq[2], 0)


def test_tops_are_returned_after_each_event_or_level(tmp):
    batch = batch_of(tmp, [snapshot(), diff(4, 5, [(10005, 3), (10005, 0)], [(10009, 1)])])
    events = book.L2Book(2, 3).tops(batch)
    assert events.tolist() == [(1, 10000, 5, 10010, 7), (1, 10000, 5, 10009, 1)]
    levels = book.L2Book(2, 3).tops(batch, per="level")
    assert levels["bid_price"].tolist() == [10000, 10005, 10000, 10000]
    assert levels["ask_price"].tolist() == [10010, 10010, 10010, 10009]


def test_tops_of_an_untrusted_book_are_zeros(tmp):
    batch = batch_of(tmp, [diff(4, 5, [(10005, 3)]), snapshot()])
    assert book.L2Book(2, 3).tops(batch)["bid_price"].tolist() == [0, 10005]


def test_an_error_in_a_batch_reports_where_to_continue(tmp):
    batch = batch_of(tmp, [snapshot(), diff(6, 7), diff(7, 8, [(10001, 1)]), snapshot(7)])
    b = book.L2Book(2, 3)
    with pytest.raises(tw.GapDetected) as caught:
        b.apply_batch(batch)
    assert (caught.value.first, caught.value.last, caught.value.applied) == (5, 6, 2)
    assert b.distrust_reason == "update ids 5 to 6 are missing at record 1"
    b.apply_batch(batch[caught.value.applied :])
    assert b.trusted
    assert b.best_bid == (10001, 1)
    assert [gap.resynced for gap in b.gaps] == [True]


def test_quarantine_ends_by_release_and_a_snapshot():
    b = book.L2Book(2, 3, on_gap="quarantine")
    b.apply(snapshot())
    assert b.apply(diff(6, 7)) == "ignored"
    assert b.apply(snapshot(9)) == "ignored"
    assert b.quarantined
    assert not b.trusted
    b.release()
    assert b.apply(snapshot(9)) == "changed"
    assert b.trusted


def test_views_are_independent_arrays():
    b = book.L2Book(2, 3)
    b.apply(snapshot())
    rows = b.bids()
    b.apply(diff(4, 5, [(10000, 0)]))
    assert rows.tolist() == [(10000, 5)]
    assert rows.dtype == np.dtype([("price", "<i8"), ("size", "<i8")])
    assert len(b.bids()) == 0
    assert b.mid is None
    assert b.spread is None
    assert b.best_bid is None


def test_a_book_holds_65535_levels_a_side_and_prices_below_zero():
    bids = [(-price, 1) for price in range(1, 65_536)]
    asks = [(price, 2) for price in range(65_535)]
    b = book.L2Book(2, 3)
    b.apply(market.l2_snapshot(BTC, 1, bids=bids, asks=asks, native_seq=4))
    assert b.bids().tolist() == bids
    assert b.asks().tolist() == asks
    b.apply(market.l2_diff(BTC, 2, bids=[(-1, 0)], asks=[(0, 0)], first=5, last=5, prev=4))
    assert (b.best_bid, b.best_ask) == ((-2, 1), (1, 2))


def test_the_repr_of_a_book_has_decimals():
    b = book.L2Book(2, 3)
    assert repr(b) == (
        "<L2Book nothing | nothing, 0 bids, 0 asks, untrusted: no snapshot has been received yet>"
    )
    b.apply(snapshot())
    assert repr(b) == "<L2Book 100.00 × 0.005 | 100.10 × 0.007, 1 bid, 1 ask, update 4>"
    page = b._repr_html_()
    assert page.index("100.10") < page.index("0.007")
    assert "&lt;L2Book" in page


def test_a_notebook_shows_an_empty_book_as_one_line():
    b = book.L2Book(2, 3)
    assert b._repr_html_() == f"<div>{html.escape(repr(b))}</div>"


@pytest.mark.parametrize(
    "make",
    [
        lambda: book.L2Book(19),
        lambda: book.L2Book(on_gap="hope"),
        lambda: book.L3Book("nyse"),
        lambda: book.L3Book(unknown="guess"),
        lambda: book.L2Book().depth("middle"),
        lambda: book.L2Book().bids(-1),
        lambda: book.L2Book().save(),
    ],
)
def test_invalid_arguments_are_invalid_options(make):
    with pytest.raises(tw.InvalidOption):
        make()


def test_a_saved_book_of_the_other_kind_or_damaged_is_refused():
    b = book.L2Book(2, 3)
    b.apply(snapshot())
    payload = b.save()
    with pytest.raises(tw.InvalidOption):
        book.L3Book.load(payload)
    with pytest.raises(tw.CorruptMetadata):
        book.L2Book.load(payload[:-1])
    with pytest.raises(tw.CorruptMetadata):
        book.L2Book.load(b"")


def test_the_phase_is_what_the_last_event_was_flagged_with():
    b = book.L3Book("sse", price_scale=3, size_scale=0)
    add = {"type": market.L3Type.ADD, "side": 1, "price": 5, "qty": 1}
    b.apply(market.l3_event(STOCK, 1, order_id=1, flags=market.L3Flags.OPENING_AUCTION, **add))
    assert b.phase == "opening"
    b.apply(market.l3_event(STOCK, 2, order_id=2, **add))
    assert b.phase == "continuous"
    assert not b.cancel_restricted


def test_two_threads_cannot_use_one_book(tmp):
    batch = batch_of(tmp, [snapshot()] + [diff(4 + i, 5 + i, [(i, 1)]) for i in range(900)])
    b = book.L2Book(2, 3, on_gap="resync")
    errors = []

    def work():
        for _ in range(300):
            try:
                b.apply_batch(batch)
            except tw.errors.ConcurrentUse as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert b.trusted  # whether or not they ran concurrently, the book is complete
    assert b.level_count("bid") > 0


def test_an_order_takes_the_documented_memory():
    b = book.L3Book(price_scale=3, size_scale=0)
    count = 50_000
    for i in range(count):
        order = {"order_id": i + 1, "side": 1 + i % 2, "price": 1000 + i % 500, "qty": 1}
        b.apply(market.l3_event(STOCK, 1, type=market.L3Type.ADD, **order))
    assert 48 <= b.memory_bytes / count <= 96


@pytest.mark.parametrize("on_gap", ["quarantine", "resync"])
def test_an_order_without_a_side_makes_the_book_untrusted(on_gap):
    b = book.L3Book(price_scale=3, size_scale=0, on_gap=on_gap)
    order = market.l3_event(STOCK, 1, type=market.L3Type.ADD, side=0, order_id=1, price=1000, qty=1)
    assert b.apply(order) == "ignored"
    assert not b.trusted
    assert "without a side" in b.distrust_reason


def test_an_order_without_a_side_raises_if_gaps_do():
    b = book.L3Book(price_scale=3, size_scale=0)
    order = market.l3_event(STOCK, 1, type=market.L3Type.ADD, side=0, order_id=1, price=1000, qty=1)
    with pytest.raises(tw.CorruptRecord, match="without a side"):
        b.apply(order)
    assert not b.trusted
