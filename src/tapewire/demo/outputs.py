"""What the exchange publishes of an input: pure functions, so that the audit can say it again."""

from __future__ import annotations

from typing import NamedTuple

from tapewire.demo import messages
from tapewire.demo.events import Ack, Close, Event, Fill, Input, Level, Trade
from tapewire.demo.matching import Engine
from tapewire.demo.messages import LevelChanged, SessionClosed, Traded, number_of
from tapewire.demo.places import SYMBOL
from tapewire.protocol import Message
from tapewire.protocol.orders import Fill as FillMessage
from tapewire.protocol.orders import Liquidity, OrderAck

__all__ = ["Output", "of_checkpoint", "of_input"]


class Output(NamedTuple):
    """One record for an output queue."""

    number: int
    type_id: int
    payload: bytes


def of_input(wal_seq: int, what: Input, events: list[Event]) -> tuple[list[Output], list[Output]]:
    """Records for the fills and for the market data."""
    fills: list[Output] = []
    raw: list[Output] = []
    for event in events:
        match event:
            case Ack():
                fills.append(_output(number_of(wal_seq, len(fills)), _ack(event)))
            case Fill():
                fills.append(_output(number_of(wal_seq, len(fills)), _fill(event)))
            case Trade():
                number = number_of(wal_seq, len(raw))
                raw.append(_output(number, Traded(number, *event)))
            case Level(side, price, qty):
                number = number_of(wal_seq, len(raw))
                raw.append(_output(number, LevelChanged(number, price, qty, side)))
    if isinstance(what, Close):
        number = number_of(wal_seq, len(raw))
        raw.append(_output(number, SessionClosed(number)))
    return fills, raw


def of_checkpoint(wal_seq: int, engine: Engine) -> tuple[list[Output], list[Output]]:
    """The same for a checkpoint: both outputs have everything before it."""
    number = number_of(wal_seq, 0)
    snapshot = messages.pack_snapshot(number, engine)
    return [Output(number, messages.MARK, b"")], [Output(number, messages.SNAPSHOT, snapshot)]


def _output(number: int, message: Message) -> Output:
    return Output(number, message.type_id, bytes(message))


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


def _fill(fill: Fill) -> FillMessage:
    return FillMessage(
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
