"""Market data messages encoded from docs/formats/messages.md only, without Tapewire's code."""

import struct

HEADER = struct.Struct("<H2xIBxHII4xQQQQBBH4x")
HEADER_FIELDS = [
    "schema_version",
    "record_len",
    "endianness",
    "venue_id",
    "market_id",
    "stream_id",
    "ingest_ts_ns",
    "exchange_ts_ns",
    "seq",
    "native_seq",
    "event_type",
    "book_mode",
    "flags",
]
L2_DIFF = struct.Struct("<QQQBBHHH")
L2_SNAPSHOT = struct.Struct("<BB2xII")
LEVEL = struct.Struct("<qq")
L3_EVENT = struct.Struct("<BBBBBB2xI4xQQQqqq")
L3_FIELDS = [
    "event_type",
    "side",
    "ord_type",
    "exec_type",
    "price_scale",
    "size_scale",
    "flags",
    "order_id",
    "bid_order_id",
    "ask_order_id",
    "price",
    "qty",
    "amt",
]

# Each struct of the page: its size, and the offsets of its fields.
STRUCTS = {
    "BookEventHeader": (HEADER, HEADER_FIELDS),
    "L2Diff": (
        L2_DIFF,
        [
            "update_id_first",
            "update_id_last",
            "update_id_prev",
            "price_scale",
            "size_scale",
            "flags",
            "bid_count",
            "ask_count",
        ],
    ),
    "L2Snapshot": (L2_SNAPSHOT, ["price_scale", "size_scale", "bid_count", "ask_count"]),
    "Level": (LEVEL, ["price", "size"]),
    "L3Event": (L3_EVENT, L3_FIELDS),
    "Loss": (struct.Struct("<QQH46x"), ["first", "last", "cause"]),
    "BookTicker": (
        struct.Struct("<QddddQ"),
        ["timestamp_ns", "bid_price", "bid_qty", "ask_price", "ask_qty", "symbol_hash"],
    ),
    "Trade": (
        struct.Struct("<QddQQQB7xQ"),
        [
            "timestamp_ns",
            "price",
            "qty",
            "trade_id",
            "buyer_order_id",
            "seller_order_id",
            "is_buyer_maker",
            "symbol_hash",
        ],
    ),
    "Quote": (
        struct.Struct("<QqqqqQIBB2x"),
        [
            "timestamp_ns",
            "bid_price",
            "bid_size",
            "ask_price",
            "ask_size",
            "symbol_hash",
            "market_id",
            "price_scale",
            "size_scale",
        ],
    ),
    "TradeTick": (
        struct.Struct("<QqqQQQQIBBBx"),
        [
            "timestamp_ns",
            "price",
            "size",
            "trade_id",
            "buyer_order_id",
            "seller_order_id",
            "symbol_hash",
            "market_id",
            "price_scale",
            "size_scale",
            "is_buyer_maker",
        ],
    ),
}


def header(body, *, record_len=None, **changes):
    """The header in front of a body, and the body."""
    values = {
        "schema_version": 3,
        "record_len": 64 + len(body) if record_len is None else record_len,
        "endianness": 0,
        "venue_id": 3,
        "market_id": 70_000,
        "stream_id": 4,
        "ingest_ts_ns": 1_000,
        "exchange_ts_ns": 900,
        "seq": 0,
        "native_seq": 9,
        "event_type": 2,
        "book_mode": 0,
        "flags": 5,
    } | changes
    return HEADER.pack(*(values[name] for name in HEADER_FIELDS)) + body


def levels(*sides):
    return b"".join(LEVEL.pack(*level) for side in sides for level in side)


def diff(bids, asks, *, ids=(7, 9, 6), scales=(2, 3), flags=0, counts=None, **changes):
    """An L2 diff."""
    counts = counts or (len(bids), len(asks))
    return header(L2_DIFF.pack(*ids, *scales, flags, *counts) + levels(bids, asks), **changes)


def snapshot(bids, asks, *, scales=(2, 3), counts=None, **changes):
    """An L2 snapshot."""
    counts = counts or (len(bids), len(asks))
    body = L2_SNAPSHOT.pack(*scales, *counts) + levels(bids, asks)
    return header(body, **{"event_type": 1} | changes)


def order(*, head=None, **changes):
    """An L3 event."""
    values = dict.fromkeys(L3_FIELDS, 0) | {"event_type": 1, "price_scale": 2, "size_scale": 3}
    body = L3_EVENT.pack(*((values | changes)[name] for name in L3_FIELDS))
    return header(body, **{"book_mode": 1} | (head or {}))
