"""The features from their definitions: plain Python, complete histories, Fractions.

Nothing here is incremental and no code is shared with the engine: each value is computed from every
record before the row, so that it cannot have the same bugs.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

SECOND = 10**9
HOUR = 3600 * SECOND
MINUTE = 60 * SECOND
UNITS = {"us": 10**3, "ms": 10**6, "s": SECOND, "m": MINUTE, "h": HOUR, "d": 24 * HOUR}


@dataclass(frozen=True)
class Event:
    """One record: kind is snapshot, diff, lost (a diff after a gap), reset or trade."""

    time: int
    kind: str
    bids: tuple[tuple[int, int], ...] = ()
    asks: tuple[tuple[int, int], ...] = ()
    price: int = 0
    size: int = 0
    maker: int = 0


@dataclass
class State:
    """A book after a record."""

    trusted: bool = False
    bids: dict[int, int] = field(default_factory=dict)
    asks: dict[int, int] = field(default_factory=dict)

    def after(self, event: Event) -> State:
        if event.kind == "snapshot":
            return State(True, dict(event.bids), dict(event.asks))
        if event.kind in ("reset", "lost") or not self.trusted:
            return State()
        bids, asks = dict(self.bids), dict(self.asks)
        for side, levels in ((bids, event.bids), (asks, event.asks)):
            for price, size in levels:
                side[price] = size
                if size == 0:
                    del side[price]
        return State(True, bids, asks)

    def best(self) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        bid = max(self.bids.items()) if self.bids else None
        ask = min(self.asks.items()) if self.asks else None
        return bid, ask

    def doubled_mid(self) -> int | None:
        bid, ask = self.best()
        return bid[0] + ask[0] if self.trusted and bid and ask and bid[0] + ask[0] > 0 else None


def span_ns(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(us|ms|s|m|h|d)", text).groups()
    return int(number) * UNITS[unit]


def order_flow(before: State, now: State) -> int:
    (b0, a0), (b1, a1) = before.best(), now.best()
    beyond = (float("-inf"), 0), (float("inf"), 0)
    (pb0, qb0), (pb1, qb1) = b0 or beyond[0], b1 or beyond[0]
    (pa0, qa0), (pa1, qa1) = a0 or beyond[1], a1 or beyond[1]
    return (pb1 >= pb0) * qb1 - (pb1 <= pb0) * qb0 - (pa1 <= pa0) * qa1 + (pa1 >= pa0) * qa0


class PlainFeatures:
    """All rows of one instrument's log."""

    def __init__(self, tape: list[Event], price_scale: int, size_scale: int) -> None:
        self.tape = tape
        self.price, self.size = 10**price_scale, 10**size_scale
        self.states = [State()]
        self.clock: list[int] = []
        for event in tape:
            last = self.states[-1]
            self.states.append(last if event.kind == "trade" else last.after(event))
            self.clock.append(max([event.time, *self.clock[-1:]]))

    def rows(self, names: list[str], sample: str) -> list[tuple[object, ...]]:
        """``(time, value, …)``, None for null."""
        made = []
        for time, upto, own, since in self._samples(sample):
            made.append((time, *(self._value(n, time, upto, own, since) for n in names)))
        return made

    def _samples(self, sample: str):
        """Time, how many records count, the row's own trade, where its flow begins."""
        clock = self.clock
        if sample == "event":
            return [(t, i + 1, None, i) for i, t in enumerate(clock)]
        if sample == "trade":
            found = []
            previous = 0
            for i, event in enumerate(self.tape):
                if event.kind == "trade":
                    minute = sum(t < clock[i] // MINUTE * MINUTE for t in clock[:i])
                    found.append((clock[i], i, event, max(previous, minute)))
                    previous = i + 1
            return found
        step = span_ns(sample)
        points = range((clock[0] // step + 1) * step, clock[-1] + 1, step)
        before = [sum(t < g for t in clock) for g in (points.start - step, *points)]
        return [(g, before[i + 1], None, before[i]) for i, g in enumerate(points)]

    def _value(self, name, time, upto, own, since):
        state = self.states[upto]
        bid, ask = state.best()
        text = re.fullmatch(r"(imbalance|bid_depth|ask_depth)(\d+)|(.*?)(?:_(\d+[a-z]+))?", name)
        levels, kind = int(text[2] or 0), text[1] or text[3]
        span = span_ns(text[4]) if text[4] else 0
        trades = [(self.clock[i], e) for i, e in enumerate(self.tape[:upto]) if e.kind == "trade"]
        if kind == "ofi":
            states = self.states[since : upto + 1]
            if not all(s.trusted for s in states):
                return None
            pairs = pairwise(states)
            return float(Fraction(sum(order_flow(a, b) for a, b in pairs), self.size))
        if kind in ("trade_sign", "trade_price", "trade_size"):
            last = own or next((e for t, e in trades[::-1] if time - t <= HOUR), None)
            if last is None:
                return None
            sign = {0: 1, 1: -1}.get(last.maker, 0)
            return float(
                {
                    "trade_sign": sign,
                    "trade_price": Fraction(last.price, self.price),
                    "trade_size": Fraction(last.size, self.size),
                }[kind]
            )
        if kind == "time_since_trade":
            ages = [time - t for t, _ in trades if time - t <= HOUR]
            return float(Fraction(min(ages), SECOND)) if ages else None
        window = [e for t, e in trades if t >= time - span]
        volume = sum(e.size for e in window)
        if kind == "volume":
            return float(Fraction(volume, self.size))
        if kind == "trade_flow":
            flow = sum({0: 1, 1: -1}.get(e.maker, 0) * e.size for e in window)
            return float(Fraction(flow, self.size))
        if kind == "vwap":
            notional = sum(e.price * e.size for e in window)
            return float(Fraction(notional, volume * self.price)) if volume else None
        if kind == "volatility":
            return self._volatility(time, span)
        if not state.trusted:
            return None
        return self._of_book(kind, levels, state, bid, ask)

    def _of_book(self, kind, levels, state, bid, ask):
        if kind in ("imbalance", "bid_depth", "ask_depth"):
            bids = sum(size for _, size in sorted(state.bids.items())[::-1][:levels])
            asks = sum(size for _, size in sorted(state.asks.items())[:levels])
            if kind != "imbalance":
                return float(Fraction(bids if kind == "bid_depth" else asks, self.size))
            return float(Fraction(bids - asks, bids + asks)) if bids + asks else None
        if kind in ("bid", "bid_size", "ask", "ask_size"):
            best = bid if kind.startswith("bid") else ask
            if best is None:
                return None
            return float(
                Fraction(best[1], self.size)
                if kind.endswith("size")
                else Fraction(best[0], self.price)
            )
        if bid is None or ask is None:
            return None
        total, distance = bid[0] + ask[0], ask[0] - bid[0]
        if kind == "spread_bps":
            return float(Fraction(20_000 * distance, total)) if total > 0 else None
        weighted = Fraction(bid[0] * ask[1] + ask[0] * bid[1], bid[1] + ask[1])
        exact = {"mid": Fraction(total, 2), "spread": distance, "microprice": weighted}[kind]
        return float(Fraction(exact) / self.price)

    def _volatility(self, time, span):
        total = 0
        last = time // SECOND
        for second in range(last - span // SECOND + 1, last + 1):
            before, now = self._mid_at(second - 1), self._mid_at(second)
            if before is None or now is None:
                return None
            r = round(math.ldexp(math.log1p(float(Fraction(now - before, before))), 48))
            total += r * r
        return math.ldexp(math.sqrt(float(total)), -48)

    def _mid_at(self, second):
        """Just before a full second; None before the start of the log."""
        upto = sum(t < second * SECOND for t in self.clock)
        if self.clock[0] >= second * SECOND:
            return None
        return self.states[upto].doubled_mid()
