"""hftbacktest's market depths, hash map and vector, fed as its back-test feeds a strategy.

The package has no call that updates a depth by itself, so this is the least that reaches one: the
event array of its own layout, already in memory, events marked as local alone (so that the exchange's
side, its matching and a second depth, do nothing), no order ever sent, compiled by numba. Each event
has a time of its own: `wait_next_feed` returns after each. What it has no call for in the
order-by-order feed, a trade, comes as what it leaves: the order changed, or cancelled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.books import replay
from benchmarks.books.events import ADD, BUY, CANCEL, PRICE_SCALE, SIZE_SCALE
from benchmarks.books.replay import Ending, Job, Ladder, Replayed

TICK, LOT = 10.0**-PRICE_SCALE, 10.0**-SIZE_SCALE
Events = np.ndarray[Any, Any]


def feed(kind: str, events: Events) -> Events:
    """The events in the package's own layout."""
    import hftbacktest as hft
    from hftbacktest.types import event_dtype

    rows = np.zeros(len(events), event_dtype)
    rows["exch_ts"] = rows["local_ts"] = np.arange(len(events)) + 1_000_000
    rows["px"], size = events["price"] / 10**PRICE_SCALE, events["size"]
    if kind == "l2":
        what = np.full(len(events), hft.DEPTH_EVENT, np.uint64)
    else:
        size, gone = events["left"], events["left"] == 0
        what = np.where(events["type"] == ADD, hft.ADD_ORDER_EVENT, hft.MODIFY_ORDER_EVENT)
        what = np.where(gone | (events["type"] == CANCEL), hft.CANCEL_ORDER_EVENT, what)
        rows["order_id"] = events["order"]
    rows["qty"] = size / 10**SIZE_SCALE
    side = np.where(events["side"] == BUY, hft.BUY_EVENT, hft.SELL_EVENT)
    rows["ev"] = what.astype(np.uint64) | side.astype(np.uint64) | np.uint64(hft.LOCAL_EVENT)
    return rows


def _open(form: str, kind: str, rows: Events) -> Any:
    import hftbacktest as hft

    asset = hft.BacktestAsset().data(rows).linear_asset(1.0).constant_order_latency(0, 0)
    asset = asset.risk_adverse_queue_model() if kind == "l2" else asset.l3_fifo_queue_model()
    asset = asset.no_partial_fill_exchange().trading_value_fee_model(0.0, 0.0)
    asset = asset.tick_size(TICK).lot_size(LOT).last_trades_capacity(0)
    if form == "hash map":
        return hft.HashMapMarketDepthBacktest([asset])
    lowest, highest = rows["px"].min(), rows["px"].max()
    return hft.ROIVectorMarketDepthBacktest([asset.roi_lb(lowest - 1).roi_ub(highest + 1)])


def _loop() -> Any:
    from numba import njit

    @njit  # type: ignore[untyped-decorator]
    def loop(backtest: Any, events: int, both: int) -> tuple[int, int, int]:
        depth = backtest.depth(0)
        bids = asks = done = 0
        while done < events and backtest.wait_next_feed(False, 1_000_000_000) == 2:
            if done >= both:
                bids += depth.best_bid_tick
                asks += depth.best_ask_tick
            done += 1
        return bids, asks, done

    return loop


def _ladder(best: int, step: int, size_at: Any) -> Ladder:
    found: Ladder = []
    for tick in range(best, best + step * 100_000, step):
        if (size := size_at(tick)) > LOT / 2:
            found.append((tick, round(size / LOT)))
            if len(found) == replay.LEVELS:
                break
    return found


def run(job: Job, events: Events) -> Replayed:
    rows, both, loop = feed(job.kind, events), replay.first_with_both_sides(events), _loop()
    # The last event is the end of its data, at which it does not stop: one more, far away in time.
    rows = np.concatenate((rows, rows[-1:]))
    rows["exch_ts"][-1] = rows["local_ts"][-1] = 10**15

    def ending(backtest: Any, said: tuple[int, int, int]) -> Ending:
        bids, asks, done = said
        if done != len(events):
            raise RuntimeError(f"hftbacktest stopped after {done} of {len(events)} events")
        depth = backtest.depth(0)
        return Ending(
            _ladder(depth.best_bid_tick, -1, depth.bid_qty_at_tick),
            _ladder(depth.best_ask_tick, 1, depth.ask_qty_at_tick),
            bids,
            asks,
        )

    return replay.rounds(
        len(events),
        job.rounds,
        lambda: _open(job.form, job.kind, rows),
        lambda backtest: loop(backtest, len(events), both),
        ending,
    )


def memory(job: Job, events: Events) -> float:
    rows, loop = feed("l3", events), _loop()
    loop(_open(job.form, "l3", rows[:100].copy()), 100, 100)  # numba's own memory is not the book's
    backtest = _open(job.form, "l3", rows)
    before = replay.resident_bytes()
    loop(backtest, len(events), len(events))
    return replay.resident_bytes() - before


if __name__ == "__main__":
    replay.main(run, memory)
