"""The records that the exchange publishes for an input; deterministic, so the audit repeats them.

The market data are Tapewire's own messages: a trade is a `TradeTick`, and all levels that one input
changed are one L2 diff, after the input's trades. The time of a record of the market data is that
of its input, so that its bytes do not depend on when it is published.
"""

from __future__ import annotations

from typing import NamedTuple

from tapewire.demo import messages
from tapewire.demo.events import Ack, Close, Event, FillEvent, Input, Level, Side, TradeEvent
from tapewire.demo.matching import Engine
from tapewire.demo.messages import SessionClosed, number_of
from tapewire.demo.paths import INSTRUMENT, SYMBOL
from tapewire.protocol import Message
from tapewire.protocol.market import BOOK_EVENT, TradeTick, l2_diff, l2_snapshot
from tapewire.protocol.orders import Fill, Liquidity, OrderAck

__all__ = ["Output", "Outputs", "snapshot_of"]


class Output(NamedTuple):
    """One record for an output queue."""

    number: int
    type_id: int
    payload: bytes
    timestamp_ns: int | None = None  # None: the time of its append


class Outputs:
    """Makes the records of successive inputs.

    Each diff has its own number and names that of the diff before it (`update_id_prev`), so that a
    reader that misses one detects a gap. `last_update` is the number of the last diff, and part of
    a checkpoint.
    """

    def __init__(self, last_update: int = 0) -> None:
        self.last_update = last_update

    def of_input(
        self, wal_seq: int, time_ns: int, what: Input, events: list[Event]
    ) -> tuple[list[Output], list[Output]]:
        """The records for the fills and for the market data of an input logged at `time_ns`."""
        fills: list[Output] = []
        raw: list[Output] = []
        changed: dict[Side, dict[int, int]] = {Side.BUY: {}, Side.SELL: {}}
        for event in events:
            match event:
                case Ack():
                    fills.append(_output(number_of(wal_seq, len(fills)), _ack(event)))
                case FillEvent():
                    fills.append(_output(number_of(wal_seq, len(fills)), _fill(event)))
                case TradeEvent():
                    number = number_of(wal_seq, len(raw))
                    raw.append(_output(number, _trade(event, time_ns), time_ns))
                case Level(side, price, qty):
                    changed[side][price] = qty
        if changed[Side.BUY] or changed[Side.SELL]:
            raw.append(self._diff(number_of(wal_seq, len(raw)), time_ns, changed))
        if isinstance(what, Close):
            number = number_of(wal_seq, len(raw))
            raw.append(_output(number, SessionClosed(number), time_ns))
        return fills, raw

    def of_checkpoint(
        self, wal_seq: int, time_ns: int, engine: Engine
    ) -> tuple[list[Output], list[Output]]:
        """The records for a checkpoint; the first record of the WAL is one, and opens the market.

        The market data contain one snapshot of the book, and then its changes: the exchange writes
        no snapshots for readers that join later.
        """
        number = number_of(wal_seq, 0)
        opening = []
        if wal_seq == 0:
            book = snapshot_of(engine, time_ns)
            opening.append(Output(number, BOOK_EVENT, book, time_ns))
        return [Output(number, messages.MARK, b"")], opening

    def _diff(self, number: int, time_ns: int, changed: dict[Side, dict[int, int]]) -> Output:
        diff = l2_diff(
            INSTRUMENT,
            time_ns,
            bids=list(changed[Side.BUY].items()),
            asks=list(changed[Side.SELL].items()),
            first=self.last_update + 1,
            last=number,
            prev=self.last_update,
        )
        self.last_update = number
        return Output(number, BOOK_EVENT, diff, time_ns)


def snapshot_of(engine: Engine, time_ns: int = 0) -> bytes:
    """The engine's complete book as an L2 snapshot event."""
    levels = engine.levels()
    return l2_snapshot(
        INSTRUMENT,
        time_ns,
        bids=[(price, qty) for side, price, qty in levels if side == Side.BUY],
        asks=[(price, qty) for side, price, qty in levels if side == Side.SELL],
    )


def _output(number: int, message: Message, timestamp_ns: int | None = None) -> Output:
    return Output(number, message.type_id, bytes(message), timestamp_ns)


def _trade(trade: TradeEvent, time_ns: int) -> TradeTick:
    return TradeTick(
        timestamp_ns=time_ns,
        price=trade.price,
        size=trade.qty,
        trade_id=trade.trade_id,
        buyer_order_id=trade.buyer_id,
        seller_order_id=trade.seller_id,
        symbol_hash=INSTRUMENT.symbol_hash,
        market_id=INSTRUMENT.market_id,
        price_scale=INSTRUMENT.price_scale,
        size_scale=INSTRUMENT.size_scale,
        is_buyer_maker=trade.aggressor is Side.SELL,
    )


def _ack(ack: Ack) -> OrderAck:
    return OrderAck(
        ack.owner,
        SYMBOL,
        ack.order_id,
        ack.exchange_id,
        ack.status,
        ack.reason,
        leaves_qty=ack.leaves,
    )


def _fill(fill: FillEvent) -> Fill:
    return Fill(
        fill.fill_id,
        fill.trade_id,
        fill.exchange_id,
        fill.owner,
        SYMBOL,
        fill.order_id,
        fill.price,
        fill.qty,
        fill.side,
        Liquidity.MAKER if fill.maker else Liquidity.TAKER,
        leaves_qty=fill.leaves,
    )
