"""The demo's own messages, besides the orders, fills and market data of `tapewire.protocol`.

The number of an output identifies the input that caused it, so that no other record is needed of
what was already published: see `number_of`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, NamedTuple

import numpy as np

from tapewire.demo.events import Cancel, Close, Input, New, SetLevel, Side
from tapewire.demo.matching import ORDER_DTYPE, Engine
from tapewire.errors import TapewireError
from tapewire.log import Record
from tapewire.protocol import Message, bool8, char, i64, message, u8, u64

__all__ = [
    "CHECKPOINT",
    "MARK",
    "Accepted",
    "Counted",
    "InputKind",
    "SessionClosed",
    "State",
    "number_of",
    "pack_checkpoint",
    "unpack_checkpoint",
    "wal_seq_of",
]

CHECKPOINT = 0x7D02  # in the WAL: the complete state before this record
MARK = 0x7D21  # in the fills: everything up to a checkpoint is published; empty

# ---- outputs are numbered by the input that caused them -----------------------------------------

_OUTPUTS_MAX = 4096  # of one input into one queue


def number_of(wal_seq: int, index: int) -> int:
    """The number of an input's `index`-th record in an output queue.

    Numbers rise: from the last one in a queue, the exchange knows what is missing there, and
    publishes nothing again.

    Example:
        >>> number_of(7, 2) < number_of(7, 3) < number_of(8, 0)
        True
        >>> wal_seq_of(number_of(7, 3))
        7
    """
    if index >= _OUTPUTS_MAX:
        raise TapewireError(
            f"too many outputs of one input: {index=}, {wal_seq=}, must be below {_OUTPUTS_MAX}"
        )
    return wal_seq * _OUTPUTS_MAX + index


def wal_seq_of(number: int) -> int:
    """The `seq` in the WAL of the input that caused an output."""
    return number // _OUTPUTS_MAX


# ---- the exchange's WAL -------------------------------------------------------------------------


class InputKind(IntEnum):
    """The kind of an accepted input."""

    NEW = 1
    CANCEL = 2
    SET_LEVEL = 3
    CLOSE = 4


@message(0x7D01, version=1)
class Accepted(Message):
    """An input that the exchange accepted. It is one record, so it is accepted completely or not.

    `input_seq` counts within its source: the router's records, or the participants' inputs, which
    have no owner.
    """

    input_seq: u64
    order_id: u64
    price: i64
    qty: i64
    owner: Annotated[str, char[16]]
    kind: u8
    side: u8
    immediate: bool8

    @classmethod
    def of(cls, what: Input, input_seq: int) -> Accepted:
        """The record of an input."""
        match what:
            case New(owner, order_id, side, price, qty, immediate):
                kind = InputKind.NEW
                return cls(input_seq, order_id, price, qty, owner, kind, side, immediate)
            case Cancel(owner, order_id):
                return cls(input_seq, order_id, 0, 0, owner, InputKind.CANCEL, 0, False)
            case SetLevel(side, price, qty):
                return cls(input_seq, 0, price, qty, "", InputKind.SET_LEVEL, side, False)
            case Close():
                return cls(input_seq, 0, 0, 0, "", InputKind.CLOSE, 0, False)

    def input(self) -> Input:
        """The input of a record."""
        match self.kind:
            case InputKind.NEW:
                side = Side(self.side)
                return New(self.owner, self.order_id, side, self.price, self.qty, self.immediate)
            case InputKind.CANCEL:
                return Cancel(self.owner, self.order_id)
            case InputKind.SET_LEVEL:
                return SetLevel(Side(self.side), self.price, self.qty)
            case InputKind.CLOSE:
                return Close()
        raise TapewireError(f"unknown kind of input: kind={self.kind}")


_CHECKPOINT_DTYPE = np.dtype(
    [
        ("next_fill_id", "<i8"),
        ("next_trade_id", "<i8"),
        ("next_exchange_id", "<i8"),
        ("closed", "<i8"),
        ("next_router_seq", "<i8"),
        ("next_market_seq", "<i8"),
        ("last_update", "<i8"),
    ]
)


class State(NamedTuple):
    """The complete state of an exchange."""

    engine: Engine
    next_router_seq: int = 0
    next_market_seq: int = 0
    last_update: int = 0  # of the market data: see `outputs.Outputs`


def pack_checkpoint(state: State) -> bytes:
    """Encode a state: counters, then every order by priority."""
    engine, *counts = state
    head = np.array([(*engine.counters(), *counts)], _CHECKPOINT_DTYPE)
    return head.tobytes() + engine.state().tobytes()


def unpack_checkpoint(record: Record) -> State:
    """Decode the state of a checkpoint."""
    head_bytes, row_bytes = _CHECKPOINT_DTYPE.itemsize, ORDER_DTYPE.itemsize
    payload = record.payload
    rest = len(payload) - head_bytes
    if rest < 0 or rest % row_bytes:
        raise TapewireError(
            f"invalid size of a checkpoint: size={len(payload)}, must be {head_bytes} plus a "
            f"multiple of {row_bytes}, seq={record.seq}, type_id=0x{record.type_id:04X}"
        )
    fill, trade, order, closed, *counts = np.frombuffer(payload, _CHECKPOINT_DTYPE, 1)[0].tolist()
    rows = np.frombuffer(payload, ORDER_DTYPE, offset=head_bytes)
    return State(Engine.from_state(rows, (fill, trade, order, bool(closed))), *counts)


# ---- the market data, besides book events and trades --------------------------------------------


@message(0x7D14, version=1)
class SessionClosed(Message):
    """The last record of a session's market data."""

    number: u64


# ---- a strategy's own record --------------------------------------------------------------------


@message(0x7D31, version=1)
class Counted(Message):
    """A strategy has counted a fill; after a kill it continues after its last one."""

    fill_seq: u64  # `seq` of the fill's record
    fill_id: u64
    position: i64
    cash: i64
    received_ns: i64
