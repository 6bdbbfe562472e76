"""A strategy's account: orders and position, rebuilt after a kill from its own two queues."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self

from tapewire.bus import StrategyEndpoints
from tapewire.demo.events import AckStatus, Side
from tapewire.demo.messages import Counted
from tapewire.demo.paths import SEGMENT_BYTES, SYMBOL
from tapewire.demo.queue_records import records
from tapewire.log import Record
from tapewire.protocol.orders import CancelOrder, Fill, NewOrder, OrderAck, TimeInForce
from tapewire.queue import open_publisher

__all__ = ["Account", "OpenOrder"]


@dataclass(slots=True)
class OpenOrder:
    """An order that the strategy does not know to be filled, cancelled or rejected."""

    side: Side
    price: int
    qty: int
    accepted: bool = False
    cancelling: bool = False


class Account:
    """Sends orders and counts fills, each once.

    For each fill that it counts, it appends a record to the strategy's own `orders_out`, with the
    sequence number of the fill in `orders_in`. A start reads both and continues after the last one.
    """

    def __init__(self, ends: StrategyEndpoints, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.name = ends.strategy
        self.position = 0
        self.cash = 0
        self.open: dict[int, OpenOrder] = {}
        self.counted_seq = -1  # of the last fill that was counted
        self._next_order_id = 1
        self._read_own_orders(ends)
        self._orders_out = open_publisher(ends.orders_out, segment_bytes=segment_bytes)

    def _read_own_orders(self, ends: StrategyEndpoints) -> None:
        for record in records(ends.orders_out):
            match record.decode():
                case NewOrder(client_order_id=order_id, side=side, price=price, qty=qty):
                    self.open[order_id] = OpenOrder(Side(side), price, qty)
                    self._next_order_id = order_id + 1
                case CancelOrder(client_order_id=order_id) if order_id in self.open:
                    self.open[order_id].cancelling = True
                case Counted(fill_seq=seq, position=position, cash=cash):
                    self.counted_seq, self.position, self.cash = seq, position, cash

    @property
    def epoch(self) -> int:
        """How many times this strategy has been started."""
        return self._orders_out.epoch

    @property
    def waiting(self) -> bool:
        """Whether an order or cancel has not been answered by the exchange yet."""
        return any(not order.accepted or order.cancelling for order in self.open.values())

    # ---- out ------------------------------------------------------------------------------------

    def send(self, tick: Record, side: Side, price: int, qty: int, *, immediate: bool) -> None:
        """Send an order, triggered by a record of the market data."""
        order_id = self._next_order_id
        in_force = TimeInForce.IMMEDIATE_OR_CANCEL if immediate else TimeInForce.GOOD_TILL_CANCEL
        self._orders_out.append_message(
            NewOrder(
                self.name,
                SYMBOL,
                order_id,
                price,
                qty,
                side,
                time_in_force=in_force,
                trigger_seq=tick.seq,
                trigger_ns=tick.timestamp_ns,
                sent_ns=time.time_ns(),
            )
        )
        self._next_order_id += 1
        self.open[order_id] = OpenOrder(side, price, qty)

    def cancel(self, order_id: int) -> None:
        """Send a cancel of an order."""
        order = CancelOrder(self.name, SYMBOL, order_id, sent_ns=time.time_ns())
        self._orders_out.append_message(order)
        self.open[order_id].cancelling = True

    # ---- in -------------------------------------------------------------------------------------

    def take(self, record: Record) -> None:
        """Apply a record of `orders_in`; after every start, from the first one on."""
        match record.decode():
            case OrderAck(client_order_id=order_id, status=AckStatus.ACCEPTED):
                if order_id in self.open:
                    self.open[order_id].accepted = True
            case OrderAck(
                client_order_id=order_id, status=AckStatus.CANCELLED | AckStatus.REJECTED
            ):
                self.open.pop(order_id, None)
            case Fill() as fill:
                self._take_fill(record.seq, fill)

    def _take_fill(self, seq: int, fill: Fill) -> None:
        order = self.open.get(fill.client_order_id)
        if order is not None:
            order.qty = fill.leaves_qty
            if fill.leaves_qty == 0:
                del self.open[fill.client_order_id]
        if seq <= self.counted_seq:
            return
        sign = 1 if fill.side == Side.BUY else -1
        self.position += sign * fill.qty
        self.cash -= sign * fill.qty * fill.price
        self.counted_seq = seq
        self._orders_out.append_message(
            Counted(seq, fill.fill_id, self.position, self.cash, time.time_ns())
        )

    def close(self) -> None:
        """Close the queue."""
        self._orders_out.close()

    def __repr__(self) -> str:
        return f"<Account {self.name!r} position={self.position} open={len(self.open)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
