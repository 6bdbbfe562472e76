"""The exchange: accepts inputs into its WAL, matches them, and publishes the results.

Accepted inputs are in the WAL, one record each. Everything else follows from the WAL: books and
counters (`matching` is deterministic) and every record of the two output queues (`outputs`), which
is numbered by its input. A start after a kill loads the last checkpoint, replays the WAL after it,
and publishes what the output queues do not have yet. Nothing is published before its input is in
the WAL.

A native thread syncs the WAL every 50 ms. A kill of the process loses nothing. A power failure may
lose the last inputs; if their outputs survived, the exchange refuses to start.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from tapewire.bus import Connected, SubscriberDiscovery, mark_ready
from tapewire.config import FlushEvery
from tapewire.demo import messages
from tapewire.demo.books import book_of
from tapewire.demo.capture import recorded
from tapewire.demo.events import Cancel, Close, Input, New, Side
from tapewire.demo.matching import Engine
from tapewire.demo.messages import Accepted, SessionClosed, State
from tapewire.demo.outputs import Output, Outputs
from tapewire.demo.participants import Participants
from tapewire.demo.paths import INSTRUMENT, DemoPaths
from tapewire.demo.process import Process, main
from tapewire.demo.queue_records import last_record, records
from tapewire.errors import TapewireError
from tapewire.log import Record
from tapewire.protocol import Message, declare
from tapewire.protocol.instruments import Instruments
from tapewire.protocol.market import BOOK_EVENT, TradeTick
from tapewire.protocol.orders import CancelOrder, Fill, NewOrder, OrderAck, TimeInForce
from tapewire.queue import Reader, open_publisher

__all__ = ["Exchange", "Recovery", "order_of"]

CHECKPOINT_EVERY = 1_000  # inputs
_POLL_SECONDS = 0.05  # between polls of the discovery
_NO_MORE = (float("inf"), None)


@dataclass(frozen=True)
class Recovery:
    """What a start found and published."""

    checkpoint: int | None  # `seq` of the checkpoint it started from
    replayed: int  # inputs after it
    published: int  # outputs that were missing
    seconds: float


class _OutputQueue:
    """A queue that is a function of the WAL: appends outputs by number, in order, each once.

    In the fills, the sequence number of a record is its output number. The market data have no gaps
    in their sequence numbers, as readers of a feed expect; there a book event contains its output
    number, and a trade does not. Trades that a kill left after the last book event are the next
    outputs, so it is enough to count them.
    """

    def __init__(
        self, path: Path, segment_bytes: int, *, numbered: bool, declared: list[type[Message]]
    ) -> None:
        self._numbered = numbered
        self.last_number = -1
        self.unnumbered_trades = 0  # after the last book event
        self.appended = 0
        last = last_record(path)
        if numbered and last is not None:
            self.last_number = last.seq
        elif last is not None:
            event = last_record(path, {BOOK_EVENT, SessionClosed.type_id})
            self.last_number = -1 if event is None else _output_number(event)
            self.unnumbered_trades = last.seq - (-1 if event is None else event.seq)
        self._writer = open_publisher(path, sparse=numbered, segment_bytes=segment_bytes)
        declare(self._writer, *declared)

    def publish(self, outputs: list[Output]) -> None:
        """Append the outputs that the queue does not have yet."""
        for number, type_id, payload, timestamp_ns in outputs:
            if number <= self.last_number:
                continue
            self.last_number = number
            if self.unnumbered_trades:
                self.unnumbered_trades -= 1
                continue
            seq = number if self._numbered else None
            self._writer.append(type_id, payload, timestamp_ns, seq=seq)
            self.appended += 1

    def close(self) -> None:
        self._writer.close()


def _output_number(record: Record) -> int:
    if record.type_id == SessionClosed.type_id:
        return SessionClosed.decode(record).number
    return int(record.decode().native_seq)


class Exchange:
    """The matching engine with its three queues.

    Example:
        >>> paths = DemoPaths(tmp)
        >>> with Exchange(paths) as exchange:
        ...     exchange.accept(New("", 1, Side.SELL, 101, 5), input_seq=0)
        ...     exchange.accept(New("alpha", 1, Side.BUY, 101, 2), input_seq=0)
        >>> with Exchange(paths) as exchange:  # as after a kill
        ...     exchange.recovery.replayed, exchange.engine.levels()
        (2, [(2, 101, 3)])
    """

    def __init__(
        self,
        paths: DemoPaths,
        checkpoint_every: int = CHECKPOINT_EVERY,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        began = time.perf_counter()
        self._clock = clock  # called once for each record of the WAL
        self._checkpoint_every = checkpoint_every
        sync = FlushEvery(records=10_000, seconds=0.05)
        size = paths.segment_bytes
        self._wal = open_publisher(paths.wal, flush=sync, segment_bytes=size)
        Instruments([INSTRUMENT]).save(paths.root)
        self._fills = _OutputQueue(paths.fills, size, numbered=True, declared=[OrderAck, Fill])
        ticks = [TradeTick, SessionClosed]
        self._raw = _OutputQueue(paths.raw, size, numbered=False, declared=ticks)
        self._restore(State(Engine()))
        self._since_checkpoint = checkpoint_every  # the first record of the WAL is one
        self.recovery = self._recover(paths.wal, began)

    def _restore(self, state: State) -> None:
        self.engine, self.next_router_seq, self.next_market_seq, last_update = state
        self._outputs = Outputs(last_update)

    @property
    def epoch(self) -> int:
        """How many times the exchange has been started."""
        return self._wal.epoch

    # ---- inputs ---------------------------------------------------------------------------------

    def accept(self, what: Input, input_seq: int) -> None:
        """Log an input and apply it; first write a checkpoint if one is due."""
        if self._since_checkpoint >= self._checkpoint_every:
            counts = (self.next_router_seq, self.next_market_seq, self._outputs.last_update)
            state = messages.pack_checkpoint(State(self.engine, *counts))
            time_ns = self._clock()
            self._mark(self._wal.append(messages.CHECKPOINT, state, time_ns), time_ns)
        time_ns = self._clock()
        wal_seq = self._wal.append_message(Accepted.of(what, input_seq), timestamp_ns=time_ns)
        self._apply(wal_seq, time_ns, what, input_seq)

    def _apply(self, wal_seq: int, time_ns: int, what: Input, input_seq: int) -> None:
        if isinstance(what, New | Cancel) and what.owner:
            self.next_router_seq = input_seq + 1
        else:
            self.next_market_seq = input_seq + 1
        self._since_checkpoint += 1
        self._publish(*self._outputs.of_input(wal_seq, time_ns, what, self.engine.apply(what)))

    def _mark(self, wal_seq: int, time_ns: int) -> None:
        """Mark a checkpoint in the fills: both outputs have everything before it."""
        self._since_checkpoint = 0
        self._publish(*self._outputs.of_checkpoint(wal_seq, time_ns, self.engine))

    def _publish(self, fills: list[Output], raw: list[Output]) -> None:
        self._fills.publish(fills)
        self._raw.publish(raw)

    # ---- after a kill ---------------------------------------------------------------------------

    def _recover(self, wal: Path, began: float) -> Recovery:
        published = min(self._fills.last_number, self._raw.last_number)
        ahead = max(self._fills.last_number, self._raw.last_number)
        if ahead >= 0 and messages.wal_seq_of(ahead) >= self._wal.next_seq:
            raise _inputs_lost(wal, self._wal.next_seq)
        # Outputs can be missing only after a checkpoint that both queues have published.
        before = messages.wal_seq_of(published) + 1 if published >= 0 else 0
        checkpoint = last_record(wal, {messages.CHECKPOINT}, before=before)
        start = 0
        if checkpoint is not None:
            start = checkpoint.seq + 1
            self._restore(messages.unpack_checkpoint(checkpoint))
            self._since_checkpoint = 0
        replayed = 0
        for record in records(wal, start=start):
            if record.type_id == messages.CHECKPOINT:
                self._mark(record.seq, record.timestamp_ns)
            else:
                accepted = Accepted.decode(record)
                self._apply(record.seq, record.timestamp_ns, accepted.input(), accepted.input_seq)
                replayed += 1
        if self._raw.unnumbered_trades:
            raise _inputs_lost(wal, self._wal.next_seq)
        return Recovery(
            checkpoint=None if checkpoint is None else checkpoint.seq,
            replayed=replayed,
            published=self._fills.appended + self._raw.appended,
            seconds=time.perf_counter() - began,
        )

    def close(self) -> None:
        """Close the queues."""
        for queue in (self._wal, self._fills, self._raw):
            queue.close()

    def __repr__(self) -> str:
        return f"<Exchange {self._wal.path!r} inputs={self._wal.next_seq} {self.recovery}>"

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _inputs_lost(wal: Path, next_seq: int) -> TapewireError:
    return TapewireError(
        f"the WAL has lost inputs whose outputs were published: next_seq={next_seq}",
        path=os.fspath(wal),
        hint="after a power failure: settle these by hand, and start with empty queues",
    )


# ---- the process --------------------------------------------------------------------------------


class _Inputs:
    """The sources of inputs: the router's queue, and the participants or a capture."""

    def __init__(self, process: Process, exchange: Exchange) -> None:
        self._settings = process.settings
        self._exchange = exchange
        self._close_session = process.paths.close_session
        self._discovery = SubscriberDiscovery(process.paths.orders, "exchange")
        self._orders: Reader | None = None
        self._market_inputs = (
            self._simulated() if self._settings.capture is None else self._recorded()
        )
        self._next: Input | None
        self._next_due, self._next = next(self._market_inputs, _NO_MORE)

    def poll(self) -> None:
        """Open the router's queue after the WAL's last order; close the session on request."""
        event = self._discovery.poll()
        if isinstance(event, Connected) and self._orders is None:
            self._orders = event.reader
            self._orders.seek_seq(self._exchange.next_router_seq)
        if self._orders is not None:
            self._orders.commit()  # for monitors of our lag; the WAL has the position
        if not self._exchange.engine.closed and self._close_session.exists():
            self._exchange.accept(Close(), self._exchange.next_market_seq)

    def step(self, timeout: float) -> None:
        """Accept one input, or wait for one for at most `timeout` seconds."""
        exchange = self._exchange
        record = self._orders.next() if self._orders is not None else None
        if record is not None:
            exchange.accept(order_of(record), record.seq)
            return
        now = time.monotonic()
        if not exchange.engine.closed and now >= self._next_due and self._next is not None:
            exchange.accept(self._next, exchange.next_market_seq)
            self._next_due, self._next = next(self._market_inputs, _NO_MORE)
        else:
            wait = min(timeout, max(0.0, self._next_due - now))
            if self._orders is not None:
                self._orders.wait(timeout=wait)
            else:
                time.sleep(wait)

    def _simulated(self) -> Iterator[tuple[float, Input]]:
        """The participants' inputs and when each is due, with random intervals."""
        exchange, settings = self._exchange, self._settings
        participants = Participants(settings.seed + exchange.next_market_seq)
        participants.adopt(exchange.engine)
        choose = random.Random(settings.seed)
        due = time.monotonic()
        while True:
            # After a delay of more than 20 ms, the missed inputs are dropped.
            due = max(due + choose.expovariate(settings.rate), time.monotonic() - 0.02)
            yield due, participants.next(exchange.engine, exchange.next_market_seq)

    def _recorded(self) -> Iterator[tuple[float, Input]]:
        """The inputs of a capture at the recorded pace; those in the WAL are skipped."""
        done = self._exchange.next_market_seq
        began: float | None = None
        for number, (seconds, what) in enumerate(recorded(self._settings.capture or "")):
            if number < done:
                continue
            began = time.monotonic() - seconds if began is None else began
            yield began + seconds, what

    def close(self) -> None:
        """Close the discovery and its reader."""
        self._discovery.close()


def order_of(record: Record) -> Input:
    """Convert a record of the router into an input."""
    match record.decode():
        case (
            NewOrder(strategy=strategy, client_order_id=order_id, side=Side.BUY | Side.SELL) as new
        ):
            immediate = new.time_in_force == TimeInForce.IMMEDIATE_OR_CANCEL
            return New(strategy, order_id, Side(new.side), new.price, new.qty, immediate)
        case NewOrder(strategy=strategy, client_order_id=order_id):
            return New(strategy, order_id, Side.BUY, 0, 0)  # invalid side: will be rejected
        case CancelOrder(strategy=strategy, client_order_id=order_id):
            return Cancel(strategy, order_id)
    raise TapewireError(
        f"the record is neither an order nor a cancel: seq={record.seq}, "
        f"type_id=0x{record.type_id:04X}"
    )


def run(process: Process) -> None:
    """Match until SIGTERM."""
    paths = process.paths
    with Exchange(paths) as exchange, closing(_Inputs(process, exchange)) as inputs:
        mark_ready(paths.raw)
        event = "recovered" if exchange.epoch > 1 else "started"
        process.say(event, **asdict(exchange.recovery))
        next_poll = 0.0
        while not process.stopping:
            now = time.monotonic()
            if now >= next_poll:
                next_poll = now + _POLL_SECONDS
                process.renew_lease(paths.raw, exchange.epoch)
                inputs.poll()
            inputs.step(_POLL_SECONDS)
        process.clear_marks(paths.raw)
        process.say("stopped", hash=book_of(exchange.engine).hash())


if __name__ == "__main__":
    main(run)
