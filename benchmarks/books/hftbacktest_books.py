"""hftbacktest's market depths, hash map and vector, fed as its back-test feeds a strategy.

The package has no call that updates a depth by itself, so this is the smallest simulation that
reaches one: its own event array, already in memory, with events marked as local only (the
exchange's side, with its matching and a second depth, then does nothing), no order ever sent, in a
loop compiled by numba. The form "vector, whole" has events for both sides, as its own converters
write them: that is what a user's back-test does. Each event has its own time, so that
`wait_next_feed` returns after each. In its feed of single orders, a trade changes nothing; it is
replaced by its result, the order modified or cancelled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.books import replay
from benchmarks.books.events import ADD, BUY, CANCEL
from benchmarks.books.replay import Ending, Job, Ladder, Replayed

Events = np.ndarray[Any, Any]


def feed(job: Job, events: Events) -> Events:
    """The events in the package's own layout."""
    import hftbacktest as hft
    from hftbacktest.types import event_dtype

    rows = np.zeros(len(events), event_dtype)
    rows["exch_ts"] = rows["local_ts"] = np.arange(len(events)) + 1_000_000
    rows["px"], size = events["price"] / 10**job.price_scale, events["size"]
    if job.kind == "l2":
        what = np.full(len(events), hft.DEPTH_EVENT, np.uint64)
    else:
        size, gone = events["left"], events["left"] == 0
        what = np.where(events["type"] == ADD, hft.ADD_ORDER_EVENT, hft.MODIFY_ORDER_EVENT)
        what = np.where(gone | (events["type"] == CANCEL), hft.CANCEL_ORDER_EVENT, what)
        rows["order_id"] = events["order"]
    rows["qty"] = size / 10**job.size_scale
    side = np.where(events["side"] == BUY, hft.BUY_EVENT, hft.SELL_EVENT)
    for_whom = hft.LOCAL_EVENT | (hft.EXCH_EVENT if job.form == "vector, whole" else 0)
    rows["ev"] = what.astype(np.uint64) | side.astype(np.uint64) | np.uint64(for_whom)
    return rows


def _open(job: Job, rows: Events) -> Any:
    import hftbacktest as hft

    asset = hft.BacktestAsset().data(rows).linear_asset(1.0).constant_order_latency(0, 0)
    asset = asset.risk_adverse_queue_model() if job.kind == "l2" else asset.l3_fifo_queue_model()
    asset = asset.no_partial_fill_exchange().trading_value_fee_model(0.0, 0.0)
    asset = asset.tick_size(10.0**-job.price_scale).lot_size(10.0**-job.size_scale)
    asset = asset.last_trades_capacity(0)
    if job.form == "hash map":
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


def _ladder(best: int, step: int, size_at: Any, lots: int) -> Ladder:
    found: Ladder = []
    for tick in range(best, best + step * 100_000, step):
        if size := round(size_at(tick) * lots):
            found.append((tick, size))
            if len(found) == replay.LEVELS:
                break
    return found


def run(job: Job, events: Events) -> Replayed:
    rows, both, loop = feed(job, events), replay.first_read(job.kind, events), _loop()
    # It does not stop at the last event, which ends its data: add one more, far in the future.
    rows = np.concatenate((rows, rows[-1:]))
    rows["exch_ts"][-1] = rows["local_ts"][-1] = 10**15

    def ending(backtest: Any, said: tuple[int, int, int]) -> Ending:
        bids, asks, done = said
        if done != len(events):
            raise RuntimeError(f"hftbacktest stopped after {done} of {len(events)} events")
        depth, lots = backtest.depth(0), 10**job.size_scale
        return Ending(
            _ladder(depth.best_bid_tick, -1, depth.bid_qty_at_tick, lots),
            _ladder(depth.best_ask_tick, 1, depth.ask_qty_at_tick, lots),
            bids,
            asks,
        )

    return replay.rounds(
        len(events),
        job.rounds,
        lambda: _open(job, rows),
        lambda backtest: loop(backtest, len(events), both),
        ending,
    )


def memory(job: Job, events: Events) -> float:
    rows, loop = feed(job, events), _loop()
    loop(_open(job, rows[:100].copy()), 100, 100)  # allocate numba's own memory before measuring
    backtest = _open(job, rows)
    before = replay.private_bytes()
    loop(backtest, len(events), len(events))
    return replay.private_bytes() - before


if __name__ == "__main__":
    replay.main(run, memory)
