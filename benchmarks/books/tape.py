"""The events as a queue: a record for the snapshot and for each diff, or for each order event."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

import tapewire as tw
from benchmarks.books.events import BUY, TRADE, Events
from tapewire.protocol import market
from tapewire.protocol.instruments import Instrument

FIRST_NS = 1_700_000_000_000_000_000
LEVELS_BYTES, EVENT_BYTES = (
    16,
    192,
)  # of a level, and of a record with one L3 event, header included


def write_l2(path: Path, events: Events, price_scale: int, size_scale: int) -> None:
    """The snapshot, then the diffs with the venue's chain of update ids, bids before asks."""
    instrument = Instrument.of("bench", "L2", price_scale, size_scale)
    levels = np.column_stack((events["price"], events["size"]))
    cuts = np.flatnonzero(np.diff(events["diff"], prepend=events["diff"][:1])).tolist()
    edges = [0, *cuts, len(events)]
    middle = [
        first + int(np.count_nonzero(events["side"][first:last] == BUY))
        for first, last in pairwise(edges)
    ]
    segment_bytes = _segment(len(edges) * 256 + len(events) * LEVELS_BYTES)
    with tw.open_publisher(path, segment_bytes=segment_bytes) as writer:
        for i, (first, split, last) in enumerate(zip(edges, middle, edges[1:], strict=False)):
            now = FIRST_NS + i * 100_000_000
            sides = {"bids": levels[first:split], "asks": levels[split:last]}
            if i == 0:
                payload = market.l2_snapshot(instrument, now, native_seq=1, **sides)
            else:
                payload = market.l2_diff(instrument, now, first=i + 1, last=i + 1, prev=i, **sides)
            writer.append(market.BOOK_EVENT, payload, timestamp_ns=now)


def l3_rows(events: Events, price_scale: int, size_scale: int) -> Events:
    """One row per event; a trade names the resting order by its side."""
    instrument = Instrument.of("bench", "L3", price_scale, size_scale, book_mode="l3")
    rows = market.l3_rows(instrument, len(events))
    rows["head"]["ingest_ts_ns"] = FIRST_NS + np.arange(len(events), dtype=np.int64) * 1_000
    rows["head"]["native_seq"] = np.arange(1, len(events) + 1)
    order, trade, bid = rows["order"], events["type"] == TRADE, events["side"] == BUY
    order["event_type"], order["price"] = events["type"], events["price"]
    order["qty"] = events["size"]
    # The side of a trade is the aggressor's.
    order["side"] = np.where(trade, 3 - events["side"], events["side"])
    order["order_id"] = np.where(trade, 0, events["order"])
    order["bid_order_id"] = np.where(trade & bid, events["order"], 0)
    order["ask_order_id"] = np.where(trade & ~bid, events["order"], 0)
    order["flags"] |= np.where(trade & bid, np.uint32(market.L3Flags.HAS_BID), np.uint32(0))
    order["flags"] |= np.where(trade & ~bid, np.uint32(market.L3Flags.HAS_ASK), np.uint32(0))
    return rows


def write_l3(path: Path, events: Events, price_scale: int, size_scale: int) -> None:
    """One record per event."""
    rows = l3_rows(events, price_scale, size_scale)
    times = rows["head"]["ingest_ts_ns"].astype(np.int64)
    with tw.open_publisher(path, segment_bytes=_segment(len(rows) * EVENT_BYTES)) as writer:
        writer.append_batch(market.BOOK_EVENT, rows, timestamps_ns=times)


def _segment(size: int) -> int:
    """A segment that holds everything: rolls are measured elsewhere."""
    return (size // 4096 + 16) * 4096
