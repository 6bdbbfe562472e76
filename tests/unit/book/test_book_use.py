"""Misuse of books: arguments that run code, and concurrent threads."""

import copy
import pickle
import struct
import threading

import numpy as np
import pytest

import tapewire as tw
from tapewire import book, replay
from tapewire.protocol import market
from tapewire.protocol.instruments import Instrument, Instruments

BTC = Instrument.of("binance", "BTCUSDT", price_scale=2, size_scale=3)
STOCK = Instrument.of("xnas", "ACME", price_scale=4, size_scale=0, book_mode="l3")


def snapshot(bids=((10000, 5),)):
    return market.l2_snapshot(BTC, 1, bids=bids, asks=[(10010, 7)], native_seq=4)


class _Compared(int):
    """A number that replaces the book when it is compared."""

    made: book.L2Book

    def __lt__(self, other):
        self.made.__init__(2, 3)
        return False


class _Indexed:
    """The same when it is converted to an int."""

    made: book.L2Book

    def __index__(self):
        self.made.__init__(2, 3)
        return 2


@pytest.mark.parametrize("n", [_Compared(2), _Indexed()])
def test_a_book_changed_by_an_argument_is_read_in_its_new_state(n):
    n.made = book.L2Book(2, 3)
    n.made.apply(snapshot([(price, 1) for price in range(5000)]))
    assert len(n.made.bids(n)) == min(2, n.made.level_count("bid"))
    assert n.made.depth("bid", n) == min(2, n.made.level_count("bid"))


@pytest.mark.parametrize("n", [1.5, "2", object()])
def test_a_number_of_levels_is_an_int(n):
    b = book.L2Book(2, 3)
    with pytest.raises(tw.errors.InvalidOption, match="n="):
        b.bids(n)
    with pytest.raises(tw.errors.InvalidOption, match="n="):
        b.depth("ask", n)


def test_more_levels_than_exist_are_all():
    b = book.L2Book(2, 3)
    b.apply(snapshot())
    assert len(b.bids(2**80)) == 1
    assert b.bids(np.int64(1)).tolist() == [(10000, 5)]


def test_levels_outlive_their_book():
    b = book.L2Book(2, 3)
    b.apply(snapshot())
    bids = b.bids()
    b.apply(snapshot([(9000, 1)]))
    del b
    assert bids.tolist() == [(10000, 5)]


def test_a_book_cannot_be_copied_silently():
    b = book.L2Book(2, 3)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copied(b)


def test_the_seq_of_a_record_is_its_own_whatever_the_event_says(tmp):
    payload = bytearray(snapshot())
    struct.pack_into("<Q", payload, market.HEADER_DTYPE.fields["seq"][1], 777)
    with tw.open_publisher(tmp / "q") as writer:
        writer.append(market.BOOK_EVENT, bytes(payload), timestamp_ns=1)
    with tw.open_log(tmp / "q") as log:
        batch = log.read_batch(10)
    one, many = book.L2Book(2, 3), book.L2Book(2, 3)
    one.apply(batch[0])
    many.apply_batch(batch)
    assert one.save() == many.save()
    assert market.headers_of(batch)["seq"].tolist() == batch.seq.tolist()
    assert batch[0].decode().seq == batch.seq[0]


def test_a_diff_split_as_the_error_says_is_applied_completely():
    levels = [(price, 1) for price in range(1, 65_537)]
    with pytest.raises(tw.errors.InvalidMessage, match="the second with prev=last"):
        market.l2_diff(BTC, 1, bids=levels, first=5, last=6, prev=4)
    b = book.L2Book(2, 3)
    b.apply(snapshot([]))
    b.apply(market.l2_diff(BTC, 1, bids=levels[:65_535], first=5, last=6, prev=4))
    b.apply(market.l2_diff(BTC, 1, bids=levels[65_535:], first=6, last=6, prev=6))
    assert b.level_count("bid") == 65_536


def big_log(tmp, count):
    rows = market.l3_rows(STOCK, count)
    rows["head"]["ingest_ts_ns"] = np.arange(count)
    rows["order"]["event_type"] = market.L3Type.ADD
    rows["order"]["side"] = market.Side.BUY
    rows["order"]["order_id"] = np.arange(count) + 1
    rows["order"]["price"] = np.arange(count) % 1000 + 1
    rows["order"]["qty"] = 1
    with tw.open_publisher(tmp / "orders") as writer:
        writer.append_batch(market.BOOK_EVENT, rows, timestamps_ns=np.arange(count))
    return tmp / "orders"


def refused(call):
    try:
        call()
    except tw.errors.ConcurrentUse:
        return True
    return False


def refused_meanwhile(b, work):
    """Return whether `b` refuses to be read while another thread repeats `work`."""
    over = threading.Event()

    def go_on():
        while not over.is_set():
            work()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        return any(refused(lambda: b.best_bid) for _ in range(2_000_000))
    finally:
        over.set()
        thread.join()


def test_a_book_is_not_read_while_another_thread_changes_it(tmp):
    with tw.open_log(big_log(tmp, 50_000)) as log:
        batch = log.read_batch(50_000)
    b = book.L3Book(price_scale=4, size_scale=0)
    b.apply_batch(batch)
    assert refused_meanwhile(b, lambda: b.apply_batch(batch))


def test_the_book_of_a_replay_is_not_read_while_another_thread_runs_the_replay(tmp):
    with replay.Replay(big_log(tmp, 50_000), instruments=Instruments([STOCK])) as tape:
        b = next(iter(tape)).book
        tape.run()
        assert b.order_count() == 50_000
        assert refused_meanwhile(b, tape.hash)


def test_a_replay_does_not_continue_while_another_thread_changes_its_book(tmp):
    path = big_log(tmp, 50_000)
    with tw.open_log(path) as log:
        batch = log.read_batch(50_000)
    with replay.Replay(path, instruments=Instruments([STOCK])) as tape:
        b = next(iter(tape)).book
        over = threading.Event()

        def change():
            while not over.is_set():
                refused(lambda: b.apply_batch(batch))

        thread = threading.Thread(target=change)
        thread.start()
        try:
            assert any(refused(tape.hash) for _ in range(5_000))
        finally:
            over.set()
            thread.join()
