"""The audit: every tape against every other, after the session.

The exchange's WAL is the truth. A fresh engine replays all of it from nothing, so neither
checkpoints nor recoveries take part in what is expected; then each queue must hold exactly what
follows from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tapewire import replay
from tapewire.demo import messages
from tapewire.demo.books import Caught, book_of, from_start, hashes_at, snapshots_of
from tapewire.demo.events import Cancel, New, Side
from tapewire.demo.matching import Engine
from tapewire.demo.messages import Accepted, Counted
from tapewire.demo.outputs import Output, Outputs
from tapewire.demo.places import SYMBOL, VENUE, Places
from tapewire.demo.stage import DemoFailed
from tapewire.demo.tape import records
from tapewire.errors import TapewireError
from tapewire.log import Record
from tapewire.protocol.orders import CancelOrder, Fill, NewOrder, OrderAck
from tapewire.replay import snapshots

__all__ = ["Audit", "Books", "Disagreement", "StrategyBooks", "audit"]


class Disagreement(DemoFailed):
    """Two tapes disagree: something was lost, repeated or made up."""


@dataclass(frozen=True)
class StrategyBooks:
    """A strategy's account: by the exchange's ledger, by its queue and by its own counting."""

    orders: int
    cancels: int
    fills: int
    position: int
    cash: int


@dataclass(frozen=True)
class Books:
    """What was found, once everything agrees."""

    inputs: int
    checkpoints: int
    fills: int
    trades: int
    book_hash: str
    snapshots: int
    from_start: Caught  # what it would have cost the late joiner to do without a snapshot
    strategies: dict[str, StrategyBooks]
    checks: list[str]


@dataclass
class _Replayed:
    """What follows from the WAL."""

    engine: Engine = field(default_factory=Engine)
    fills: list[Output] = field(default_factory=list)
    raw: list[Output] = field(default_factory=list)
    router_seqs: list[int] = field(default_factory=list)
    inputs: int = 0
    checkpoints: int = 0


class Audit:
    """Collects what agrees; raises where something does not."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._checks: list[str] = []

    @property
    def checks(self) -> list[str]:
        """What was compared so far, and was equal."""
        return self._checks

    def equal(self, what: str, got: Iterable[object], expected: Iterable[object]) -> None:
        """Two sequences are the same, element by element."""
        got, expected = list(got), list(expected)
        if got != expected:
            raise Disagreement(f"{what}: {_difference(got, expected)}")
        self._checks.append(what)

    def run(self, told: Mapping[str, str], joined: tuple[int, str]) -> Books:
        """Check everything; see `audit`."""
        replayed = self._replay()
        places = self._places
        self.equal(
            "the market data is what follows from the WAL, record for record",
            ((r.timestamp_ns, r.type_id, bytes(r.payload)) for r in records(places.raw)),
            ((o.timestamp_ns, o.type_id, o.payload) for o in replayed.raw),
        )
        self.equal(
            "acknowledgements and fills are what follows from the WAL, record for record",
            (Output(r.seq, r.type_id, bytes(r.payload)) for r in records(places.fills)),
            replayed.fills,
        )
        self.equal(
            "the exchange accepted every order that the router sent, once, in order",
            replayed.router_seqs,
            (record.seq for record in records(places.orders)),
        )
        ledger = [Fill.decode(o.payload) for o in replayed.fills if o.type_id == Fill.type_id]
        self.equal(
            "fill ids count without a gap", (f.fill_id for f in ledger), range(1, len(ledger) + 1)
        )
        books = {name: self._strategy(name, replayed, ledger) for name in places.strategies()}
        return Books(
            inputs=replayed.inputs,
            checkpoints=replayed.checkpoints,
            fills=len(ledger),
            trades=replayed.engine.next_trade_id - 1,
            book_hash=self._book(replayed.engine, told),
            snapshots=self._snapshots(joined),
            from_start=from_start(places.raw, joined[0]),
            strategies=books,
            checks=self._checks,
        )

    def _book(self, engine: Engine, told: Mapping[str, str]) -> str:
        """Three ways to one book: the engine's own, a replay of the market data, and those told."""
        book: str = book_of(engine).hash()
        with replay.Replay(self._places.raw, on_gap="raise", snapshots=False) as tape:
            tape.run()
            replayed = tape.books[VENUE, SYMBOL]
        self.equal(
            "a replay of the market data from its first record gives the book of the WAL",
            [replayed.hash()],
            [book],
        )
        for whose, found in told.items():
            self.equal(f"the book of the {whose} is that of the WAL", [found], [book])
        return book

    def _snapshots(self, joined: tuple[int, str]) -> int:
        """Each snapshot, and the book with which the joiner began to follow, where they were."""
        places = self._places
        try:
            saved = {s.seq: snapshots.load(s.path).book.hash() for s in snapshots_of(places.raw)}
        except TapewireError as error:
            raise Disagreement(f"a snapshot cannot be read: {error}") from error
        seq, joined_hash = joined
        there = hashes_at(places.raw, [*saved, seq])
        self.equal(
            "every snapshot is the book of a replay at its record",
            saved.items(),
            ((at, there.get(at)) for at in saved),
        )
        self.equal("so is the late joiner's when it has caught up", [joined_hash], [there.get(seq)])
        return len(saved)

    def _replay(self) -> _Replayed:
        found, outputs = _Replayed(), Outputs()
        for record in records(self._places.wal):
            time_ns = record.timestamp_ns
            if record.type_id == messages.CHECKPOINT:
                found.checkpoints += 1
                fills, raw = outputs.of_checkpoint(record.seq, time_ns, found.engine)
            else:
                found.inputs += 1
                accepted = Accepted.decode(record)
                what = accepted.input()
                if isinstance(what, New | Cancel) and what.owner:
                    found.router_seqs.append(accepted.input_seq)
                events = found.engine.apply(what)
                fills, raw = outputs.of_input(record.seq, time_ns, what, events)
            found.fills += fills
            found.raw += raw
        return found

    def _strategy(self, name: str, replayed: _Replayed, ledger: Sequence[Fill]) -> StrategyBooks:
        ends = self._places.strategy(name)
        answers = [
            output
            for output in replayed.fills
            if output.type_id != messages.MARK and _owner(output) == name
        ]
        self.equal(
            f"{name} was given every acknowledgement and fill of its own, once, in order",
            (Output(r.seq, r.type_id, bytes(r.payload)) for r in records(ends.orders_in)),
            answers,
        )
        own = [fill for fill in ledger if fill.strategy == name]
        counted = [Counted.decode(r) for r in records(ends.orders_out, {Counted.type_id})]
        self.equal(
            f"{name} counted every fill of the exchange's ledger, once, in order",
            (count.fill_id for count in counted),
            (fill.fill_id for fill in own),
        )
        routed = map(_decoded, records(self._places.orders))
        sent = list(records(ends.orders_out, {NewOrder.type_id, CancelOrder.type_id}))
        self.equal(
            f"the router passed on every order of {name}, once, in order",
            (order.source_seq for order in routed if order.strategy == name),
            (record.seq for record in sent),
        )
        signs = [1 if fill.side == Side.BUY else -1 for fill in own]
        position = sum(sign * fill.qty for sign, fill in zip(signs, own, strict=True))
        cash = -sum(sign * fill.qty * fill.price for sign, fill in zip(signs, own, strict=True))
        self.equal(
            f"{name}'s position and cash are the ledger's",
            [(counted[-1].position, counted[-1].cash)] if counted else [],
            [(position, cash)] if own else [],
        )
        orders = sum(record.type_id == NewOrder.type_id for record in sent)
        return StrategyBooks(orders, len(sent) - orders, len(own), position, cash)


def audit(places: Places, *, told: Mapping[str, str], joined: tuple[int, str]) -> Books:
    """Compare all tapes, and the books.

    Args:
        places: The bus.
        told: Hashes of the book at the close, by whose it is.
        joined: The record up to which the late joiner had caught up, and its hash then.

    Raises:
        Disagreement: Something was lost, repeated or made up.
    """
    return Audit(places).run(told, joined)


def _decoded(record: Record) -> NewOrder | CancelOrder:
    return (NewOrder if record.type_id == NewOrder.type_id else CancelOrder).decode(record)


def _owner(output: Output) -> str:
    message = Fill if output.type_id == Fill.type_id else OrderAck
    return message.decode(output.payload).strategy


def _difference(got: list[object], expected: list[object]) -> str:
    """Where two lists part, in words."""
    pairs = enumerate(zip(got, expected, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(got), len(expected)))
    shown = [repr(side[at]) if at < len(side) else "nothing" for side in (got, expected)]
    return (
        f"{len(got)} records where {len(expected)} are expected; "
        f"at {at}: {shown[0]}, expected {shown[1]}"
    )
