"""The hash of a book is stable: bytes built by hand, hashed by an independent XXH3."""

import struct

import xxhash

from tapewire import book
from tapewire.protocol import market
from tapewire.protocol.instruments import Instrument

LEVELS = Instrument.of("venue", "LEVELS", price_scale=2, size_scale=3)
ORDERS = Instrument.of("venue", "ORDERS", price_scale=2, size_scale=0, book_mode="l3")


def test_an_l2_hash_is_over_side_price_and_size_bids_first_best_first():
    b = book.L2Book(2, 3)
    b.apply(
        market.l2_snapshot(
            LEVELS, 1, bids=[(9990, 7), (10000, 5)], asks=[(10020, 1), (10010, 2)], native_seq=1
        )
    )
    content = (
        struct.pack("<Bqq", 1, 10000, 5)
        + struct.pack("<Bqq", 1, 9990, 7)
        + struct.pack("<Bqq", 2, 10010, 2)
        + struct.pack("<Bqq", 2, 10020, 1)
    )
    assert b.hash() == xxhash.xxh3_128_hexdigest(content)
    assert b.hash() == "8f5cc15875fdf6d32f0aef35790c9f74"


def test_an_l3_hash_is_over_the_orders_of_each_level_first_come_first():
    b = book.L3Book(price_scale=2, size_scale=0)
    add = market.L3Type.ADD
    for number, side, price, qty in (8, 1, 10000, 5), (7, 1, 10000, 3), (9, 2, -10, 4):
        order = {"order_id": number, "side": side, "price": price, "qty": qty}
        b.apply(market.l3_event(ORDERS, 1, type=add, **order))
    content = (
        struct.pack("<Bq", 1, 10000)
        + struct.pack("<QqQq", 8, 5, 7, 3)
        + struct.pack("<Bq", 2, -10)
        + struct.pack("<Qq", 9, 4)
    )
    assert b.hash() == xxhash.xxh3_128_hexdigest(content)
    assert b.hash() == "71c11e3f5d73cf9b5992a3d5bb9933ed"


def test_an_empty_book_has_the_hash_of_no_bytes():
    assert book.L3Book().hash() == xxhash.xxh3_128_hexdigest(b"")
