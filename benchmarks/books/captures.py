"""Real markets as events of the benchmark, from the captures in `directory()`, if any."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tapewire as tw
from benchmarks.books.events import ADD, BUY, CANCEL, L2_DTYPE, L3_DTYPE, SELL, TRADE, Events
from benchmarks.machine import ROOT
from tapewire.protocol import market

FUTURE = tuple(f"binance/usdm_btcusdt_202407{day}.gz" for day in (18, 19))
STOCK = "sse/600519_20230207.zip"


def directory() -> Path:
    """The directory of the captures; it may not exist."""
    given = os.environ.get("TAPEWIRE_MARKETDATA")
    return Path(given) if given else ROOT.parent / "shared" / "marketdata"


def missing(*names: str) -> str | None:
    """None if all of these captures exist, else which one does not."""
    absent = [name for name in names if not (directory() / name).is_file()]
    return f"no {absent[0]} in {directory()}" if absent else None


def _imported(format: str, names: tuple[str, ...], archive: Path) -> Iterator[Any]:
    """The book events of these captures, in order of days."""
    from tapewire import ingest

    summary = ingest.run(format, [directory() / name for name in names], archive)
    for log in sorted(name for name in summary.logs if name.endswith("/book")):
        with tw.open_log(archive / log) as reader:
            while (record := reader.next()) is not None:
                yield record.decode()


def _least_scale(values: np.ndarray[Any, Any], scale: int) -> tuple[np.ndarray[Any, Any], int]:
    """Remove the trailing decimal places that no value uses."""
    while scale and not np.any(values % 10):
        values, scale = values // 10, scale - 1
    return values, scale


def future(archive: Path) -> tuple[Events, int, int]:
    """A day of a perpetual future from its first snapshot, with the scales of price and size.

    Diffs that were received before the snapshot but end after it are applied to it, as the
    venue prescribes.
    """
    snapshot, diffs = None, []
    for event in _imported("binance-usdm", FUTURE, archive):
        if event.event_type == market.EventType.DIFF:
            diffs.append((event.update_last, event.bids.copy(), event.asks.copy()))
        elif event.event_type == market.EventType.SNAPSHOT and snapshot is None:
            snapshot = event.native_seq, event.bids.copy(), event.asks.copy()
            scales = event.price_scale, event.size_scale
    if snapshot is None:
        raise RuntimeError(f"no snapshot in {FUTURE}")
    parts = []
    following = [diff for diff in diffs if diff[0] > snapshot[0]]
    for number, (_, bids, asks) in enumerate([snapshot, *following]):
        for side, levels in ((BUY, bids), (SELL, asks)):
            part = np.zeros(len(levels), L2_DTYPE)
            part["diff"], part["side"] = number, side
            part["price"], part["size"] = levels["price"], levels["size"]
            parts.append(part)
    events = np.concatenate(parts)
    events["price"], price_scale = _least_scale(events["price"], scales[0])
    events["size"], size_scale = _least_scale(events["size"], scales[1])
    return events, price_scale, size_scale


def stock(archive: Path) -> tuple[Events, int, int]:
    """A day of a stock in Shanghai, order by order, with the scales of price and size.

    Ends before the closing auction: its orders cross, and hftbacktest loses its best price.
    In continuous trading the aggressor's order was never in the book: a trade is one event, of the
    resting order. In an auction both rested: two events.
    """
    resting: dict[int, tuple[int, int, int]] = {}  # side, price, left
    rows = []
    scales = 0, 0

    def reduce(kind: int, order: int, by: int | None) -> None:
        side, price, left = resting.pop(order)
        left -= left if by is None else by
        rows.append((kind, side, order, price, by or 0, left))
        if left:
            resting[order] = side, price, left

    for event in _imported("sse", (STOCK,), archive):
        if event.book_mode != market.BookMode.L3:
            continue
        order = event.order
        if order.flags & market.L3Flags.CLOSING_AUCTION:
            break
        scales = event.price_scale, event.size_scale
        if order.event_type == ADD:
            resting[order.order_id] = order.side, order.price, order.qty
            rows.append((ADD, order.side, order.order_id, order.price, order.qty, order.qty))
        elif order.event_type == CANCEL:
            reduce(CANCEL, order.order_id, None)
        elif order.event_type == TRADE:
            if order.side != BUY:
                reduce(TRADE, order.bid_order_id, order.qty)
            if order.side != SELL:
                reduce(TRADE, order.ask_order_id, order.qty)
    events = np.array(rows, L3_DTYPE)
    events["price"], price_scale = _least_scale(events["price"], scales[0])
    sizes, size_scale = _least_scale(np.append(events["size"], events["left"]), scales[1])
    events["size"], events["left"] = np.split(sizes, 2)
    return events, price_scale, size_scale
