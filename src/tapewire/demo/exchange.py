"""The exchange: accepts inputs into its WAL, matches them, publishes what comes of it.

What it has accepted is in the WAL, one record an input. Everything else follows from that: books and
counters (`matching` is deterministic) and every record of its two output queues, numbered by the input
it came from. So a start after a kill is: load the last checkpoint, replay the WAL behind it, publish
what the output queues do not have yet. Nothing is published before it is in the WAL.

The WAL is synced every 50 ms by a native thread: a kill of the process loses nothing at all; a loss of
power may lose the last inputs, and where their outputs survived them the exchange refuses to start.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from tapewire.bus import Connected, SubscriberDiscovery, mark_ready
from tapewire.config import FlushEvery
from tapewire.demo import messages
from tapewire.demo.capture import recorded_levels
from tapewire.demo.crowd import Crowd
from tapewire.demo.events import Ack, Cancel, Close, Event, Fill, Input, Level, New, Side, Trade
from tapewire.demo.matching import Engine
from tapewire.demo.messages import Accepted, LevelChanged, SessionClosed, Traded, number_of
from tapewire.demo.places import SEGMENT_BYTES, SYMBOL, Places
from tapewire.demo.process import Process, main
from tapewire.demo.tape import last_record, records
from tapewire.errors import TapewireError
from tapewire.log import Record
from tapewire.protocol.orders import CancelOrder, Liquidity, NewOrder, OrderAck, TimeInForce
from tapewire.protocol.orders import Fill as FillMessage
from tapewire.queue import Reader, Writer, open_publisher

__all__ = ["Exchange", "Recovery"]

CHECKPOINT_EVERY = 1_000  # inputs
_LOOK_EVERY = 0.05  # seconds between looks at the discovery


@dataclass(frozen=True)
class Recovery:
    """What a start found, and made up for."""

    checkpoint: int | None  # number of the WAL record it began from
    replayed: int  # inputs behind it
    published: int  # outputs that were missing
    seconds: float


class _Output:
    """A queue that is a function of the WAL: takes records by number, in order, each once."""

    def __init__(self, writer: Writer, last_number: int) -> None:
        self.writer = writer
        self.last_number = last_number
        self.appended = 0

    def wants(self, number: int) -> bool:
        """Whether the queue does not have this record yet."""
        if number <= self.last_number:
            return False
        self.last_number = number
        self.appended += 1
        return True


class Exchange:
    """The matching engine with its three queues.

    Example:
        >>> places = Places(tmp)
        >>> with Exchange(places) as exchange:
        ...     exchange.accept(New("", 1, Side.SELL, 101, 5), input_seq=0)
        ...     exchange.accept(New("alpha", 1, Side.BUY, 101, 2), input_seq=0)
        >>> with Exchange(places) as exchange:  # as after a kill
        ...     exchange.recovery.replayed, exchange.engine.levels()
        (2, [(2, 101, 3)])
    """

    def __init__(self, places: Places, checkpoint_every: int = CHECKPOINT_EVERY) -> None:
        began = time.perf_counter()
        self._checkpoint_every = checkpoint_every
        options = {"segment_bytes": SEGMENT_BYTES}
        sync = FlushEvery(records=10_000, seconds=0.05)
        self._wal = open_publisher(places.wal, flush=sync, **options)
        self._fills = _Output(
            open_publisher(places.fills, sparse=True, **options), _last_number(places.fills)
        )
        self._raw = _Output(open_publisher(places.raw, **options), _last_number(places.raw))
        self.engine = Engine()
        self.next_router_seq = 0
        self.next_crowd_seq = 0
        self._since_checkpoint = 0
        self.recovery = self._recover(places.wal, began)

    @property
    def epoch(self) -> int:
        """Which life of the exchange it is."""
        return self._wal.epoch

    # ---- inputs -------------------------------------------------------------------------------------

    def accept(self, what: Input, input_seq: int) -> None:
        """Log an input, then do it."""
        wal_seq = self._wal.append_message(Accepted.of(what, input_seq))
        self._do(wal_seq, what, input_seq)
        if self._since_checkpoint >= self._checkpoint_every:
            state = messages.pack_checkpoint(
                self.engine, self.next_router_seq, self.next_crowd_seq
            )
            self._mark(self._wal.append(messages.CHECKPOINT, state))

    def _do(self, wal_seq: int, what: Input, input_seq: int) -> None:
        if isinstance(what, New | Cancel) and what.owner:
            self.next_router_seq = input_seq + 1
        else:
            self.next_crowd_seq = input_seq + 1
        self._since_checkpoint += 1
        self._publish(wal_seq, self.engine.apply(what), closing=isinstance(what, Close))

    # ---- outputs: functions of the WAL ---------------------------------------------------------------

    def _publish(self, wal_seq: int, events: list[Event], *, closing: bool) -> None:
        fills = raw = 0
        for event in events:
            if isinstance(event, Ack | Fill):
                number = number_of(wal_seq, fills)
                fills += 1
                if self._fills.wants(number):
                    self._to_router(number, event)
            else:
                number = number_of(wal_seq, raw)
                raw += 1
                if self._raw.wants(number):
                    self._to_everybody(number, event)
        if closing and self._raw.wants(number := number_of(wal_seq, raw)):
            self._raw.writer.append_message(SessionClosed(number))

    def _mark(self, wal_seq: int) -> None:
        """Both outputs have everything before a checkpoint: the next start need not look further."""
        self._since_checkpoint = 0
        number = number_of(wal_seq, 0)
        if self._raw.wants(number):
            snapshot = messages.pack_snapshot(number, self.engine)
            self._raw.writer.append(messages.SNAPSHOT, snapshot)
        if self._fills.wants(number):
            self._fills.writer.append(messages.MARK, b"", seq=number)

    def _to_router(self, number: int, event: Ack | Fill) -> None:
        if isinstance(event, Ack):
            message: OrderAck | FillMessage = OrderAck(
                event.owner,
                SYMBOL,
                event.order_id,
                event.exchange_id,
                event.status,
                event.reason,
                leaves_qty=event.leaves,
            )
        else:
            message = FillMessage(
                event.fill_id,
                event.trade_id,
                event.exchange_id,
                event.owner,
                SYMBOL,
                event.order_id,
                event.price,
                event.qty,
                event.side,
                Liquidity.MAKER if event.maker else Liquidity.TAKER,
                leaves_qty=event.leaves,
            )
        self._fills.writer.append_message(message, seq=number)

    def _to_everybody(self, number: int, event: Trade | Level) -> None:
        if isinstance(event, Trade):
            self._raw.writer.append_message(Traded(number, *event))
        else:
            self._raw.writer.append_message(
                LevelChanged(number, event.price, event.qty, event.side)
            )

    # ---- after a kill --------------------------------------------------------------------------------

    def _recover(self, wal: Path, began: float) -> Recovery:
        published = min(self._fills.last_number, self._raw.last_number)
        self._refuse_outputs_without_inputs(wal)
        # Behind a checkpoint that both outputs have marked, and no earlier, something may be missing.
        before = messages.wal_seq_of(published) + 1 if published >= 0 else 0
        checkpoint = last_record(wal, {messages.CHECKPOINT}, before=before)
        start = 0
        if checkpoint is not None:
            start = checkpoint.seq + 1
            state = messages.unpack_checkpoint(checkpoint)
            self.engine, self.next_router_seq, self.next_crowd_seq = state
        replayed = 0
        for record in records(wal, start=start):
            if record.type_id == messages.CHECKPOINT:
                self._mark(record.seq)
            else:
                accepted = Accepted.decode(record)
                self._do(record.seq, accepted.input(), accepted.input_seq)
                replayed += 1
        return Recovery(
            checkpoint=None if checkpoint is None else checkpoint.seq,
            replayed=replayed,
            published=self._fills.appended + self._raw.appended,
            seconds=time.perf_counter() - began,
        )

    def _refuse_outputs_without_inputs(self, wal: Path) -> None:
        ahead = max(self._fills.last_number, self._raw.last_number)
        if ahead >= 0 and messages.wal_seq_of(ahead) >= self._wal.next_seq:
            raise TapewireError(
                f"fills or market data were published whose inputs the WAL has lost: "
                f"published={messages.wal_seq_of(ahead)}, next_seq={self._wal.next_seq}",
                path=os.fspath(wal),
                hint="the host lost power within 50 ms of them: settle these by hand, then begin anew",
            )

    def close(self) -> None:
        """Close the queues."""
        for writer in (self._wal, self._fills.writer, self._raw.writer):
            writer.close()

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _last_number(queue: Path) -> int:
    """How far an output queue is: its record's number in the fills, a field in the market data."""
    record = last_record(queue)
    if record is None:
        return -1
    if record.type_id == messages.SNAPSHOT:
        return messages.unpack_snapshot(record)[0]
    for message in (LevelChanged, Traded, SessionClosed):
        if record.type_id == message.type_id:
            return message.decode(record).number
    return record.seq


# ---- the process ---------------------------------------------------------------------------------------


class _Inputs:
    """Where the exchange's inputs come from: the router's queue, the crowd or a capture, the clock."""

    def __init__(self, process: Process, exchange: Exchange) -> None:
        self._settings = process.settings
        self._exchange = exchange
        self._discovery = SubscriberDiscovery(process.places.orders, "exchange")
        self._orders: Reader | None = None
        self._uncommitted = 0
        self._crowd = self._people() if self._settings.capture is None else self._recorded()
        self._next_due, self._next = next(self._crowd, (float("inf"), None))

    def look(self) -> None:
        """Join the router's queue when it is there, behind what the WAL has."""
        event = self._discovery.poll()
        if isinstance(event, Connected) and self._orders is None:
            self._orders = event.reader
            self._orders.seek_seq(self._exchange.next_router_seq)

    def step(self, timeout: float) -> None:
        """Accept one input; wait for one at most `timeout` seconds."""
        exchange = self._exchange
        record = self._orders.next() if self._orders is not None else None
        if record is not None:
            exchange.accept(_order(record), record.seq)
            self._uncommitted += 1
            return
        if self._orders is not None and self._uncommitted:
            self._orders.commit()
            self._uncommitted = 0
        now = time.monotonic()
        if not exchange.engine.closed and time.time_ns() >= self._settings.closes_ns:
            exchange.accept(Close(), exchange.next_crowd_seq)
        elif not exchange.engine.closed and now >= self._next_due and self._next is not None:
            exchange.accept(self._next, exchange.next_crowd_seq)
            self._next_due, self._next = next(self._crowd, (float("inf"), None))
        else:
            wait = min(timeout, max(0.0, self._next_due - now))
            if self._orders is not None:
                self._orders.wait(timeout=wait)
            else:
                time.sleep(wait)

    def _people(self) -> Iterator[tuple[float, Input]]:
        """The crowd's inputs and when each is due, in bursts as real ones come."""
        exchange, settings = self._exchange, self._settings
        crowd = Crowd(settings.seed + exchange.next_crowd_seq)
        crowd.adopt(exchange.engine)
        choose = random.Random(settings.seed)
        due = time.monotonic()
        while True:
            # Behind by more than that: what was missed is not made up for.
            due = max(due + choose.expovariate(settings.rate), time.monotonic() - 0.02)
            yield due, crowd.next(exchange.engine, exchange.next_crowd_seq)

    def _recorded(self) -> Iterator[tuple[float, Input]]:
        """A capture's levels at the pace they were recorded; those in the WAL are passed over."""
        done = self._exchange.next_crowd_seq
        began: float | None = None
        for number, (seconds, level) in enumerate(recorded_levels(self._settings.capture or "")):
            if number < done:
                continue
            began = time.monotonic() - seconds if began is None else began
            yield began + seconds, level

    def close(self) -> None:
        """Give up the reader."""
        self._discovery.close()


def _order(record: Record) -> Input:
    match record.decode():
        case NewOrder() as new:
            immediate = new.time_in_force == TimeInForce.IMMEDIATE_OR_CANCEL
            order_id = new.client_order_id
            return New(new.strategy, order_id, Side(new.side), new.price, new.qty, immediate)
        case CancelOrder(strategy=strategy, client_order_id=order_id):
            return Cancel(strategy, order_id)
    raise TapewireError(f"the router sends orders and cancels: type_id=0x{record.type_id:04X}")


def run(process: Process) -> None:
    """Trade until told to stop; the session is closed before, by the clock."""
    places = process.places
    with Exchange(places) as exchange, closing(_Inputs(process, exchange)) as inputs:
        mark_ready(places.raw)
        event = "recovered" if exchange.epoch > 1 else "started"
        process.say(event, **asdict(exchange.recovery))
        look_at = 0.0
        while not process.stopping:
            now = time.monotonic()
            if now >= look_at:
                look_at = now + _LOOK_EVERY
                process.renew_lease(places.raw, exchange.epoch)
                inputs.look()
            inputs.step(_LOOK_EVERY)
        process.say("stopped", hash=exchange.engine.hash())


if __name__ == "__main__":
    main(run)
