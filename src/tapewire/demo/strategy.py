"""The strategies: a market maker and a momentum taker, each a process of its own.

Both find the market data by discovery, join them at the latest snapshot (`books`), and keep their
account in their own queues (`account`). If the feed disappears, they wait for it and send nothing
meanwhile.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from tapewire.bus import (
    Connected,
    Disconnected,
    FanInReader,
    SubscriberDiscovery,
    clear_ready,
    mark_ready,
)
from tapewire.demo.account import Account
from tapewire.demo.books import empty_book, join
from tapewire.demo.events import Side
from tapewire.demo.messages import SessionClosed
from tapewire.demo.process import Process, main
from tapewire.log import Record
from tapewire.protocol.market import BOOK_EVENT
from tapewire.queue import open_subscriber

__all__ = ["STRATEGIES", "MarketMaker", "Momentum", "Strategy"]

_POLL_SECONDS = 0.05  # between polls of the discovery
_STALE_NS = 50_000_000  # an older change is applied to the book, but triggers no order


class Strategy(ABC):
    """A strategy: a book, an account, and a rule that decides on orders."""

    pause_ns: int  # after a decision that sent an order

    def __init__(self, account: Account) -> None:
        self.account = account
        self.book = empty_book()
        self._quiet_until_ns = 0

    def tick(self, record: Record) -> None:
        """Apply a record of the market data; act on it unless it is old or an answer is pending."""
        if record.type_id != BOOK_EVENT:
            return
        self.book.apply(record)
        if self.account.waiting:
            return
        now_ns = time.time_ns()
        if now_ns - record.timestamp_ns > _STALE_NS or now_ns < self._quiet_until_ns:
            return
        bid, ask = self.book.best_bid, self.book.best_ask
        if bid is not None and ask is not None and self.decide(record, bid.price, ask.price):
            self._quiet_until_ns = now_ns + self.pause_ns

    @abstractmethod
    def decide(self, tick: Record, bid: int, ask: int) -> bool:
        """Send orders or cancels, and return whether any were sent."""


class MarketMaker(Strategy):
    """Quotes both sides of the middle, shifted against its position; cancels to move a quote."""

    pause_ns = 4_000_000
    size = 6
    half_spread = 2

    def decide(self, tick: Record, bid: int, ask: int) -> bool:  # noqa: D102 - see Strategy
        lean = self.account.position / 6
        middle = (bid + ask) / 2 - lean
        wanted = {
            Side.BUY: min(round(middle) - self.half_spread, ask - 1),
            Side.SELL: max(round(middle) + self.half_spread, bid + 1),
        }
        quoted = {order.side: (order_id, order) for order_id, order in self.account.open.items()}
        sent = False
        for side, price in wanted.items():
            if side not in quoted:
                self.account.send(tick, side, price, self.size, immediate=False)
                sent = True
            elif abs(quoted[side][1].price - price) > 1:
                self.account.cancel(quoted[side][0])
                sent = True
        return sent


class Momentum(Strategy):
    """Buys when the price rises and sells when it falls, with immediate-or-cancel orders."""

    pause_ns = 8_000_000
    size = 3
    limit = 60

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self._average: float | None = None

    def decide(self, tick: Record, bid: int, ask: int) -> bool:  # noqa: D102 - see Strategy
        middle = (bid + ask) / 2
        average = middle if self._average is None else self._average
        self._average = average + (middle - average) * 0.02
        if middle - average > 1.5 and self.account.position < self.limit:
            self.account.send(tick, Side.BUY, ask, self.size, immediate=True)
        elif middle - average < -1.5 and self.account.position > -self.limit:
            self.account.send(tick, Side.SELL, bid, self.size, immediate=True)
        else:
            return False
        return True


STRATEGIES: dict[str, type[Strategy]] = {"maker": MarketMaker, "momentum": Momentum}


def run(process: Process) -> None:
    """Trade until the session is closed and every order is answered."""
    began = time.perf_counter()
    name = process.settings.name
    ends = process.paths.strategy(name)
    clear_ready(ends.orders_out)  # a killed process may have left it
    with Account(ends) as account:
        mark_ready(ends.orders_out)
        _live(process, STRATEGIES[name](account), began)
        process.clear_marks(ends.orders_out)
        process.say("closed", position=account.position, cash=account.cash)


def _live(process: Process, strategy: Strategy, began: float) -> None:
    """Apply the answers to earlier runs of this strategy, then trade."""
    account = strategy.account
    path = process.paths.strategy(account.name).orders_in
    # The router creates it when it has found this strategy.
    with open_subscriber(path, account.name, start="earliest", create_timeout=30.0) as answers:
        for record in answers:
            account.take(record)
        process.say(
            "recovered" if account.epoch > 1 else "started",
            position=account.position,
            open_orders=len(account.open),
            seconds=time.perf_counter() - began,
        )
        with (
            SubscriberDiscovery(process.paths.raw, account.name) as feed,
            FanInReader({"in": answers}, max_skew=0) as fan,
        ):
            _trade(process, strategy, feed, fan)


def _trade(
    process: Process, strategy: Strategy, feed: SubscriberDiscovery, fan: FanInReader
) -> None:
    account = strategy.account
    orders_out = process.paths.strategy(account.name).orders_out
    next_poll = 0.0
    closed = False
    while not process.stopping and not (closed and not account.open):
        now = time.monotonic()
        if now >= next_poll:
            next_poll = now + _POLL_SECONDS
            process.renew_lease(orders_out, account.epoch)
            _poll(process, strategy, feed, fan)
        record = fan.next()
        if record is None:
            fan.commit()  # for monitors of our lag
            fan.wait(timeout=_POLL_SECONDS)
        elif record.source == "in":
            account.take(record)
        elif record.type_id == SessionClosed.type_id:
            closed = True
        else:
            strategy.tick(record)


def _poll(
    process: Process, strategy: Strategy, feed: SubscriberDiscovery, fan: FanInReader
) -> None:
    match feed.poll():
        case Connected(reader) if "feed" not in fan.readers:
            strategy.book = join(reader, feed.path).book
            fan.add("feed", reader)
        case Connected():
            process.say("feed back")
        case Disconnected(reason):
            process.say("feed lost", reason=reason.value)


if __name__ == "__main__":
    main(run)
