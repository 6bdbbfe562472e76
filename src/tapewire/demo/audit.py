"""The audit: compares all logs with each other after the session.

The exchange's WAL is the reference. A new engine replays it from its first record, so that the
expected result depends on no checkpoint and no recovery. Each queue must then contain exactly what
follows from the WAL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tapewire import replay
from tapewire.demo import messages
from tapewire.demo.books import CatchUp, book_of, from_start, hashes_at, snapshots_of
from tapewire.demo.events import Cancel, New, Side
from tapewire.demo.matching import Engine
from tapewire.demo.messages import Accepted, Counted
from tapewire.demo.outputs import Output, Outputs
from tapewire.demo.paths import SYMBOL, VENUE, DemoPaths
from tapewire.demo.process_group import DemoFailed
from tapewire.demo.queue_records import records
from tapewire.errors import TapewireError
from tapewire.log import Record
from tapewire.protocol.orders import CancelOrder, Fill, NewOrder, OrderAck
from tapewire.replay import snapshots

__all__ = ["Audit", "AuditResult", "Disagreement", "StrategyTotals", "audit"]


class Disagreement(DemoFailed):
    """Two logs disagree: a record is missing, duplicated or unexplained."""


@dataclass(frozen=True)
class StrategyTotals:
    """A strategy's totals; its own queues and the exchange's fills agree on them."""

    orders: int
    cancels: int
    fills: int
    position: int
    cash: int


@dataclass(frozen=True)
class AuditResult:
    """What the audit found, if everything agrees."""

    inputs: int
    checkpoints: int
    fills: int
    trades: int
    book_hash: str
    snapshots: int
    from_start: CatchUp  # what the late joiner would have needed without a snapshot
    strategies: dict[str, StrategyTotals]
    checks: list[str]


@dataclass
class _Replayed:
    """The outputs that follow from the WAL."""

    engine: Engine = field(default_factory=Engine)
    fills: list[Output] = field(default_factory=list)
    raw: list[Output] = field(default_factory=list)
    router_seqs: list[int] = field(default_factory=list)
    inputs: int = 0
    checkpoints: int = 0


class Audit:
    """Compares logs; collects what agrees and raises `Disagreement` otherwise."""

    def __init__(self, paths: DemoPaths) -> None:
        self._paths = paths
        self._checks: list[str] = []

    @property
    def checks(self) -> list[str]:
        """What was compared so far, and is equal."""
        return self._checks

    def equal(self, what: str, got: Iterable[object], expected: Iterable[object]) -> None:
        """Compare two sequences, element by element."""
        got, expected = list(got), list(expected)
        if got != expected:
            raise Disagreement(f"{what}: {_difference(got, expected)}")
        self._checks.append(what)

    def run(self, reported: Mapping[str, str], joined: tuple[int, str]) -> AuditResult:
        """Compare everything; see `audit`."""
        replayed = self._replay()
        paths = self._paths
        self.equal(
            "the market data equal those that follow from the WAL, record by record",
            ((r.timestamp_ns, r.type_id, bytes(r.payload)) for r in records(paths.raw)),
            ((o.timestamp_ns, o.type_id, o.payload) for o in replayed.raw),
        )
        self.equal(
            "acknowledgements and fills equal those that follow from the WAL, record by record",
            (Output(r.seq, r.type_id, bytes(r.payload)) for r in records(paths.fills)),
            replayed.fills,
        )
        self.equal(
            "the exchange accepted every order that the router sent, once, in order",
            replayed.router_seqs,
            (record.seq for record in records(paths.orders)),
        )
        ledger = [Fill.decode(o.payload) for o in replayed.fills if o.type_id == Fill.type_id]
        self.equal("fill ids have no gap", (f.fill_id for f in ledger), range(1, len(ledger) + 1))
        books = {name: self._strategy(name, replayed, ledger) for name in paths.strategies()}
        return AuditResult(
            inputs=replayed.inputs,
            checkpoints=replayed.checkpoints,
            fills=len(ledger),
            trades=replayed.engine.next_trade_id - 1,
            book_hash=self._book(replayed.engine, reported),
            snapshots=self._snapshots(joined),
            from_start=from_start(paths.raw, joined[0]),
            strategies=books,
            checks=self._checks,
        )

    def _book(self, engine: Engine, reported: Mapping[str, str]) -> str:
        """Compare the engine's book, that of a replay of the market data, and the reported ones."""
        book: str = book_of(engine).hash()
        with replay.Replay(self._paths.raw, on_gap="raise", snapshots=False) as market_data:
            market_data.run()
            replayed = market_data.books[VENUE, SYMBOL]
        self.equal(
            "a replay of the market data from its first record gives the book of the WAL",
            [replayed.hash()],
            [book],
        )
        for whose, found in reported.items():
            self.equal(f"the book of the {whose} equals that of the WAL", [found], [book])
        return book

    def _snapshots(self, joined: tuple[int, str]) -> int:
        """Compare each snapshot, and the joiner's book when it began to follow, with a replay."""
        paths = self._paths
        try:
            saved = {s.seq: snapshots.load(s.path).book.hash() for s in snapshots_of(paths.raw)}
        except TapewireError as error:
            raise Disagreement(f"a snapshot cannot be read: {error}") from error
        seq, joined_hash = joined
        there = hashes_at(paths.raw, [*saved, seq])
        self.equal(
            "every snapshot equals the book of a replay at its record",
            saved.items(),
            ((at, there.get(at)) for at in saved),
        )
        self.equal(
            "the late joiner's book after catching up equals that of a replay at that record",
            [joined_hash],
            [there.get(seq)],
        )
        return len(saved)

    def _replay(self) -> _Replayed:
        found, outputs = _Replayed(), Outputs()
        for record in records(self._paths.wal):
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

    def _strategy(self, name: str, replayed: _Replayed, ledger: Sequence[Fill]) -> StrategyTotals:
        ends = self._paths.strategy(name)
        answers = [
            output
            for output in replayed.fills
            if output.type_id != messages.MARK and _owner(output) == name
        ]
        self.equal(
            f"{name} received each of its acknowledgements and fills, once, in order",
            (Output(r.seq, r.type_id, bytes(r.payload)) for r in records(ends.orders_in)),
            answers,
        )
        own = [fill for fill in ledger if fill.strategy == name]
        counted = [Counted.decode(r) for r in records(ends.orders_out, {Counted.type_id})]
        self.equal(
            f"{name} counted each of its fills, once, in order",
            (count.fill_id for count in counted),
            (fill.fill_id for fill in own),
        )
        routed = map(_decoded, records(self._paths.orders))
        sent = list(records(ends.orders_out, {NewOrder.type_id, CancelOrder.type_id}))
        self.equal(
            f"the router sent every order of {name}, once, in order",
            (order.source_seq for order in routed if order.strategy == name),
            (record.seq for record in sent),
        )
        signs = [1 if fill.side == Side.BUY else -1 for fill in own]
        position = sum(sign * fill.qty for sign, fill in zip(signs, own, strict=True))
        cash = -sum(sign * fill.qty * fill.price for sign, fill in zip(signs, own, strict=True))
        self.equal(
            f"{name}'s position and cash follow from its fills",
            [(counted[-1].position, counted[-1].cash)] if counted else [],
            [(position, cash)] if own else [],
        )
        orders = sum(record.type_id == NewOrder.type_id for record in sent)
        return StrategyTotals(orders, len(sent) - orders, len(own), position, cash)


def audit(paths: DemoPaths, *, reported: Mapping[str, str], joined: tuple[int, str]) -> AuditResult:
    """Compare all logs, and the books.

    Args:
        paths: The bus.
        reported: Hashes of the book at the close, by process.
        joined: The record up to which the late joiner had caught up, and its hash then.

    Raises:
        Disagreement: A record is missing, duplicated or unexplained.
    """
    return Audit(paths).run(reported, joined)


def _decoded(record: Record) -> NewOrder | CancelOrder:
    return (NewOrder if record.type_id == NewOrder.type_id else CancelOrder).decode(record)


def _owner(output: Output) -> str:
    message = Fill if output.type_id == Fill.type_id else OrderAck
    return message.decode(output.payload).strategy


def _difference(got: list[object], expected: list[object]) -> str:
    """Where two lists first differ, in words."""
    pairs = enumerate(zip(got, expected, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(got), len(expected)))
    shown = [repr(side[at]) if at < len(side) else "nothing" for side in (got, expected)]
    return (
        f"{len(got)} records, expected {len(expected)}; "
        f"first difference at {at}: {shown[0]}, expected {shown[1]}"
    )
