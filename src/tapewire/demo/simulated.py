"""A simulated capture: the demo's participants in the format of Binance's spot streams.

It is for users who want to try an importer, a book or a feature and have no capture. The same seed
gives the same bytes.
"""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tapewire.demo.events import Level, Side, TradeEvent
from tapewire.demo.matching import Engine
from tapewire.demo.participants import Participants
from tapewire.demo.paths import INSTRUMENT

__all__ = ["SYMBOL", "lines", "write_capture"]

SYMBOL = "TAPEUSDT"
_STREAM = SYMBOL.lower()
_BEGAN_NS = 1_709_294_400_000_000_000  # 2024-03-01T12:00Z
_WARM_UP = 2_000  # inputs before the capture, so that it starts with a book, as a real one does
_FLUSH_NS = 100_000_000  # between two depth updates
_SNAPSHOT_AFTER = 3  # updates: as if the snapshot was requested when the stream was running


def write_capture(
    path: str | os.PathLike[str], *, seconds: float = 60.0, seed: int = 7, rate: float = 200.0
) -> Path:
    """Write a capture, gzipped if the name ends with `.gz`, and return its path.

    Args:
        path: The file to write.
        seconds: Duration of the capture, seconds of market time.
        seed: Random seed.
        rate: Orders and cancels per second.

    Example:
        >>> path = write_capture(tmp / "capture.gz", seconds=1)
        >>> first, *_ = gzip.decompress(path.read_bytes()).splitlines()
        >>> first[:65]
        b'1709294400100000000 {"stream":"tapeusdt@depth@100ms","data":{"e":'
    """
    text = "".join(lines(seconds, seed, rate)).encode()
    path = Path(path)
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    return path


def lines(seconds: float, seed: int, rate: float) -> Iterator[str]:
    """The lines of a capture: receive time, then the message."""
    market = _Market(seed)
    choose = random.Random(seed)
    end_ns = int(seconds * 1e9)
    flush_ns, flushes = _FLUSH_NS, 0
    at_ns = int(choose.expovariate(rate) * 1e9)
    while at_ns < end_ns:
        while flush_ns <= at_ns:
            flushes += 1
            for message in market.depth(flush_ns, with_snapshot=flushes == _SNAPSHOT_AFTER):
                yield _line(flush_ns, message)
            flush_ns += _FLUSH_NS
        for message in market.step(at_ns):
            yield _line(at_ns, message)
        at_ns += int(choose.expovariate(rate) * 1e9)


def _line(at_ns: int, message: dict[str, Any]) -> str:
    return f"{_BEGAN_NS + at_ns} {json.dumps(message, separators=(',', ':'))}\n"


class _Market:
    """The participants' market, and its changes since the last depth update."""

    def __init__(self, seed: int) -> None:
        self._engine = Engine()
        self._participants = Participants(seed)
        self._inputs = 0
        self._update = 1_000_000  # the venue's update id of the last change of a level
        self._published_update = self._update
        self._changed: dict[tuple[Side, int], int] = {}
        self._best: list[list[str]] = []
        for _ in range(_WARM_UP):
            self.step(0)
        self._published_update = self._update
        self._changed.clear()

    def step(self, at_ns: int) -> list[dict[str, Any]]:
        """Apply one input; return its trades, and the best prices if they have changed."""
        what = self._participants.next(self._engine, self._inputs)
        self._inputs += 1
        messages = []
        for event in self._engine.apply(what):
            if isinstance(event, TradeEvent):
                messages.append(_message("trade", _trade(event, at_ns)))
            elif isinstance(event, Level):
                self._update += 1
                self._changed[event.side, event.price] = event.qty
        best = [row for side in Side for row in self._levels(side, 1)]
        if len(best) == 2 and best != self._best:
            self._best = best
            (bid, bid_qty), (ask, ask_qty) = best
            ticker = {"u": self._update, "s": SYMBOL, "b": bid, "B": bid_qty, "a": ask}
            messages.append(_message("bookTicker", ticker | {"A": ask_qty}))
        return messages

    def depth(self, at_ns: int, *, with_snapshot: bool) -> Iterator[dict[str, Any]]:
        """The changes since the last depth update; before them, on request, the complete book."""
        if with_snapshot:
            bids, asks = (self._levels(side) for side in Side)
            yield {"lastUpdateId": self._update, "bids": bids, "asks": asks}
        if self._changed:
            levels = {"b": self._changes(Side.BUY), "a": self._changes(Side.SELL)}
            update = {"U": self._published_update + 1, "u": self._update}
            head = {"e": "depthUpdate", "E": _milliseconds(at_ns), "s": SYMBOL}
            yield _message("depth@100ms", head | update | levels)
            self._published_update = self._update
            self._changed.clear()

    def _changes(self, side: Side) -> list[list[str]]:
        changed = self._changed.items()
        return [_level(price, qty) for (where, price), qty in changed if where is side]

    def _levels(self, side: Side, depth: int | None = None) -> list[list[str]]:
        return [_level(price, qty) for at, price, qty in self._engine.levels(depth) if at == side]


def _message(stream: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"stream": f"{_STREAM}@{stream}", "data": data}


def _trade(trade: TradeEvent, at_ns: int) -> dict[str, Any]:
    price, qty = _level(trade.price, trade.qty)
    time_ms = _milliseconds(at_ns)
    head = {"e": "trade", "E": time_ms, "s": SYMBOL, "t": trade.trade_id, "p": price, "q": qty}
    return head | {"T": time_ms, "m": trade.aggressor is Side.SELL, "M": True}


def _level(price: int, qty: int) -> list[str]:
    return [_decimal(price, INSTRUMENT.price_scale), _decimal(qty, INSTRUMENT.size_scale)]


def _decimal(value: int, scale: int) -> str:
    return f"{value // 10**scale}.{value % 10**scale:0{scale}d}"


def _milliseconds(at_ns: int) -> int:
    return (_BEGAN_NS + at_ns) // 1_000_000
