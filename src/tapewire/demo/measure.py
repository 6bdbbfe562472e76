"""Rates and latencies, computed from the logs after the session.

Every record contains the time of its append and identifies the record that caused it, so the path
of an order can be followed hop by hop, and the processes measure nothing. A hop is the time from
append to append: waking the reader, and what it does before it writes.

The market data are an exception: their time is that of the input that caused them (`outputs`). A
hop that starts with a tick therefore starts with the record in the WAL, and includes matching and
publishing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tapewire.demo.messages import Accepted, Counted, wal_seq_of
from tapewire.demo.paths import DemoPaths
from tapewire.demo.run import SessionHistory
from tapewire.log import open_log
from tapewire.protocol import Message
from tapewire.protocol.market import TradeTick
from tapewire.protocol.orders import Fill, Liquidity, NewOrder

__all__ = ["PERCENTILES", "Hop", "Measures", "Rate", "StrategyTrack", "measure"]

Array = np.ndarray[Any, Any]
PERCENTILES = (50.0, 99.0, 99.9)
_CATCHING_UP_NS = 250_000_000  # after a recovery, while the backlog is processed
_RATE_BIN_S = 0.25
_MIN_RATE_BINS = 8


@dataclass(frozen=True)
class Hop:
    """One part of the path. `interrupted`: samples that a kill delayed, which are left out."""

    name: str
    ns: Array
    interrupted: Array

    def percentiles(self, which: Sequence[float] = PERCENTILES) -> list[float]:
        """The sample at or above each percentile, nanoseconds; nan without samples."""
        if not len(self.ns):
            return [float("nan")] * len(which)
        return [float(np.percentile(self.ns, p, method="higher")) for p in which]

    @property
    def max_ns(self) -> float:
        """The longest sample, nanoseconds."""
        return float(self.ns.max()) if len(self.ns) else float("nan")


@dataclass(frozen=True)
class Rate:
    """The volume and rate of a queue."""

    name: str
    records: int
    bytes: int  # of payload
    per_second: float
    times: Array  # of the appends, seconds into the session


@dataclass(frozen=True)
class StrategyTrack:
    """A strategy over time; times are seconds into the session."""

    fill_times: Array
    fill_prices: Array
    fill_buys: Array
    position_times: Array
    positions: Array
    profit: float  # valued at the last trade, in ticks times lots


@dataclass(frozen=True)
class Measures:
    """All measurements of a session."""

    seconds: float
    hops: list[Hop]
    rates: list[Rate]
    trade_times: Array
    trade_prices: Array
    strategies: dict[str, StrategyTrack] = field(default_factory=dict)

    def per_second(self, rate: Rate) -> tuple[Array, Array]:
        """(time, records per second) over the session."""
        bins = max(_MIN_RATE_BINS, int(self.seconds / _RATE_BIN_S))
        counts, edges = np.histogram(rate.times, bins, (0, self.seconds))
        width = self.seconds / bins
        return edges[:-1] + width / 2, counts / width


class _Columns(NamedTuple):
    seq: Array
    time_ns: Array
    rows: Array


def _columns(path: Path, kind: type[Message]) -> _Columns:
    """All messages of one type in a queue, as arrays."""
    seqs, times, rows = [], [], [np.empty(0, kind.dtype)]
    with open_log(path, types={kind.type_id}) as log:
        while len(batch := log.read_batch()):
            seqs.append(batch.seq.astype("i8"))
            times.append(batch.timestamp_ns)
            rows.append(kind.decode(batch))
    empty = np.empty(0, "i8")
    return _Columns(
        np.concatenate([empty, *seqs]), np.concatenate([empty, *times]), np.concatenate(rows)
    )


class _Clock:
    """Converts to session time, and separates spans that a kill delayed."""

    def __init__(self, history: SessionHistory) -> None:
        self.began_ns = history.began_ns
        self._outages = [
            (restart.killed_ns, restart.recovered_ns + _CATCHING_UP_NS)
            for restart in history.restarts
            if restart.delays_orders
        ]

    def seconds(self, time_ns: Array) -> Array:
        return (time_ns - self.began_ns) / 1e9

    def hop(self, name: str, spans_of: list[tuple[Array, Array]]) -> Hop:
        """The hop of these (start, end), with those that overlap an outage as interrupted."""
        start_ns = np.concatenate([start for start, _ in spans_of])
        end_ns = np.concatenate([end for _, end in spans_of])
        delayed = np.zeros(len(start_ns), bool)
        for begin, end in self._outages:
            delayed |= (start_ns < end) & (end_ns > begin)
        spans = end_ns - start_ns
        return Hop(name, spans[~delayed], spans[delayed])


def measure(paths: DemoPaths, history: SessionHistory) -> Measures:
    """Read all logs of a session."""
    clock = _Clock(history)
    seconds = (history.closed_ns - history.began_ns) / 1e9
    trades = _columns(paths.raw, TradeTick)
    prices = trades.rows["price"]
    last_price = int(prices[-1]) if len(prices) else 0
    return Measures(
        seconds=seconds,
        hops=_hops(paths, clock),
        rates=[_rate(name, path, clock, seconds) for name, path in paths.all().items()],
        trade_times=clock.seconds(trades.time_ns),
        trade_prices=prices,
        strategies={name: _track(paths, name, clock, last_price) for name in paths.strategies()},
    )


def _rate(name: str, path: Path, clock: _Clock, seconds: float) -> Rate:
    times, size = [np.empty(0, "i8")], 0
    with open_log(path) as log:
        while len(batch := log.read_batch()):
            times.append(batch.timestamp_ns)
            size += sum(len(batch.payload(i)) for i in range(len(batch)))
    all_times = np.concatenate(times)
    return Rate(name, len(all_times), size, len(all_times) / seconds, clock.seconds(all_times))


def _track(paths: DemoPaths, name: str, clock: _Clock, last_price: int) -> StrategyTrack:
    ends = paths.strategy(name)
    fills, counted = _columns(ends.orders_in, Fill), _columns(ends.orders_out, Counted)
    profit = 0.0
    if len(counted.rows):
        last = counted.rows[-1]
        profit = float(last["cash"] + last["position"] * last_price)
    return StrategyTrack(
        fill_times=clock.seconds(fills.time_ns),
        fill_prices=fills.rows["price"],
        fill_buys=fills.rows["side"] == 1,
        position_times=clock.seconds(counted.time_ns),
        positions=counted.rows["position"],
        profit=profit,
    )


def _hops(paths: DemoPaths, clock: _Clock) -> list[Hop]:
    """The path of the orders, and of the fills back.

    Each record identifies the one before it on the path: an order its tick, the router's record the
    strategy's, the WAL's the router's, a fill the WAL's, a strategy's count the fill.
    """
    routed, fills = _columns(paths.orders, NewOrder), _columns(paths.fills, Fill)
    wal = _columns(paths.wal, Accepted)
    from_router = wal.rows["owner"] != b""
    accepted_ns = _look_up(wal.rows["input_seq"][from_router], wal.time_ns[from_router], routed.seq)
    inputs = np.array([wal_seq_of(number) for number in fills.seq.tolist()], "i8")
    matched = [(_look_up(wal.seq, wal.time_ns, inputs), fills.time_ns)]
    decided, sent, counted, total = [], [], [], []
    for name in paths.strategies():
        ends = paths.strategy(name)
        own, counts = _columns(ends.orders_out, NewOrder), _columns(ends.orders_out, Counted)
        decided.append((own.rows["trigger_ns"], own.time_ns))
        here = routed.rows["strategy"] == name.encode()
        sources = routed.rows["source_seq"][here]
        sent.append((_look_up(own.seq, own.time_ns, sources), routed.time_ns[here]))
        at = np.searchsorted(fills.seq, counts.rows["fill_seq"].astype("i8"))
        received_ns = counts.rows["received_ns"]
        counted.append((fills.time_ns[at], received_ns))
        # For orders that traded at once: from the input of the triggering tick to the fill.
        at_once = fills.rows["liquidity"][at] == Liquidity.TAKER
        ids = fills.rows["client_order_id"][at][at_once]
        triggers = _look_up(own.rows["client_order_id"], own.rows["trigger_ns"], ids)
        total.append((triggers, received_ns[at_once]))
    return [
        clock.hop("WAL → market data → strategy", decided),
        clock.hop("strategy → router", sent),
        clock.hop("router → exchange", [(routed.time_ns, accepted_ns)]),
        clock.hop("exchange, WAL → fill", matched),
        clock.hop("exchange → router → strategy", counted),
        clock.hop("tick to fill, in total", total),
    ]


def _look_up(keys: Array, values: Array, wanted: Array) -> Array:
    """The value of each wanted key; `keys` is sorted."""
    return values[np.searchsorted(keys.astype("i8"), wanted.astype("i8"))]
