"""The exchange after a kill at any point: the same logs as without the kill."""

import itertools

import pytest

import tapewire as tw
from tapewire.demo import messages
from tapewire.demo.books import book_of, empty_book
from tapewire.demo.events import AckStatus, Cancel, New, Side
from tapewire.demo.exchange import Exchange, order_of
from tapewire.demo.messages import SessionClosed, wal_seq_of
from tapewire.demo.paths import INSTRUMENT, SYMBOL, DemoPaths
from tapewire.demo.queue_records import records
from tapewire.protocol.instruments import Instruments
from tapewire.protocol.market import BOOK_EVENT, TradeTick
from tapewire.protocol.orders import Fill, NewOrder, OrderAck
from tests.unit.demo.queue_rows import SMALL, rows, session, timed_rows, write

EVERY = 7  # inputs between checkpoints: several in a short session


def run(paths, inputs):
    # The time of a WAL record is its sequence number, so a run with a restart has the same times.
    clock = itertools.count(10**18 + len(rows(paths.wal))).__next__
    with Exchange(paths, checkpoint_every=EVERY, clock=clock) as exchange:
        for what, input_seq in inputs:
            exchange.accept(what, input_seq)
        return exchange.recovery


def tapes(paths):
    return {
        "wal": timed_rows(paths.wal),
        "fills": rows(paths.fills),  # timed by their append
        "raw": timed_rows(paths.raw),
    }


def in_order_of_appending(paths):
    """Every append of a run: an input, then its fills, then its market data."""
    outputs = {}
    for row in rows(paths.fills):
        outputs.setdefault(wal_seq_of(row[0]), []).append(("fills", row))
    for row in timed_rows(paths.raw):
        outputs.setdefault(row[3] - 10**18, []).append(("raw", row))
    wal = timed_rows(paths.wal)
    return [append for row in wal for append in [("wal", row), *outputs.get(row[0], [])]]


def left_by_a_kill(paths, appends):
    for queue in ("wal", "fills", "raw"):
        tape = [row for name, row in appends if name == queue]
        write(getattr(paths, queue), tape, sparse=queue == "fills")


def inputs_in(paths):
    return sum(record.type_id != messages.CHECKPOINT for record in records(paths.wal))


@pytest.fixture(scope="module")
def undisturbed(module_tmp):
    inputs = list(session(seed=11, length=45))
    paths = DemoPaths(module_tmp / "undisturbed", SMALL)
    run(paths, inputs)
    return paths, inputs


def test_the_session_covers_every_kind_of_output(undisturbed):
    paths, _ = undisturbed
    fills = [Fill.decode(r) for r in records(paths.fills, {Fill.type_id})]
    assert len(fills) > 10
    assert {fill.strategy for fill in fills} == {"alpha", "beta"}
    assert sum(1 for _ in records(paths.wal, {messages.CHECKPOINT})) > 5


def test_killed_after_any_append_it_publishes_the_rest_without_duplicates(undisturbed, tmp):
    reference, inputs = undisturbed
    appends = in_order_of_appending(reference)
    expected = tapes(reference)
    made_up_for = 0
    for cut in range(len(appends) + 1):
        paths = DemoPaths(tmp / str(cut), SMALL)
        left_by_a_kill(paths, appends[:cut])
        done = inputs_in(paths)
        made_up_for += run(paths, inputs[done:]).published
        assert tapes(paths)["fills"] == expected["fills"], cut
        assert tapes(paths)["raw"] == expected["raw"], cut
    assert made_up_for > 0


def test_a_second_start_changes_nothing(undisturbed, tmp):
    reference, _ = undisturbed
    appends = in_order_of_appending(reference)
    paths = DemoPaths(tmp, SMALL)
    left_by_a_kill(paths, appends[: len(appends) // 2])
    run(paths, [])
    before = tapes(paths)
    assert run(paths, []).published == 0
    assert tapes(paths) == before


def test_it_replays_from_the_last_checkpoint_and_not_from_the_first_input(undisturbed, tmp):
    reference, inputs = undisturbed
    recovery = run(reference, [])
    assert recovery.checkpoint is not None
    assert recovery.replayed < EVERY + 1 < len(inputs)


def test_a_checkpoint_that_an_output_did_not_mark_is_not_trusted(undisturbed, tmp):
    """The fills have lost their end, as in a power failure: an earlier checkpoint is used."""
    reference, _ = undisturbed
    paths = DemoPaths(tmp, SMALL)
    expected = tapes(reference)
    write(paths.wal, expected["wal"])
    write(paths.fills, expected["fills"][: len(expected["fills"]) // 3], sparse=True)
    write(paths.raw, expected["raw"])
    run(paths, [])
    assert tapes(paths) == expected


def test_outputs_whose_inputs_are_lost_are_refused(undisturbed, tmp):
    reference, _ = undisturbed
    paths = DemoPaths(tmp, SMALL)
    expected = tapes(reference)
    write(paths.wal, expected["wal"][:20])
    write(paths.fills, expected["fills"], sparse=True)
    write(paths.raw, expected["raw"])
    with pytest.raises(tw.TapewireError, match="the WAL has lost inputs"):
        Exchange(paths)


def test_a_trade_whose_input_is_lost_is_refused(undisturbed, tmp):
    """It is the last record of the market data, has no number, and follows from no input."""
    reference, _ = undisturbed
    paths = DemoPaths(tmp, SMALL)
    appends = in_order_of_appending(reference)
    traded = [i for i, (_, row) in enumerate(appends) if row[1] == TradeTick.type_id][-1]
    wal_seq = appends[traded][1][3] - 10**18
    kept = [
        (queue, row)
        for queue, row in appends[: traded + 1]
        if (queue, wal_seq) != ("wal", row[0]) and (queue, wal_seq) != ("fills", wal_seq_of(row[0]))
    ]
    left_by_a_kill(paths, kept)
    with pytest.raises(tw.TapewireError, match="the WAL has lost inputs"):
        Exchange(paths)


# ---- its market data ----------------------------------------------------------------------------


def test_the_market_data_are_one_snapshot_and_then_changes(undisturbed):
    reference, _ = undisturbed
    events = [record.decode() for record in records(reference.raw, {BOOK_EVENT})]
    assert [event.event_type for event in events] == [1] + [2] * (len(events) - 1)
    assert [event.ingest_ts_ns for event in events] == [
        record.timestamp_ns for record in records(reference.raw, {BOOK_EVENT})
    ]


def test_all_levels_that_an_input_changed_are_one_event_after_its_trades(tmp):
    paths = DemoPaths(tmp, SMALL)
    with Exchange(paths) as exchange:
        exchange.accept(New("", 1, Side.SELL, 101, 2), 0)
        exchange.accept(New("", 2, Side.SELL, 102, 2), 1)
        exchange.accept(New("", 3, Side.BUY, 103, 5), 2)  # takes both, and rests
    *_, first, second, diff = records(paths.raw)
    assert [TradeTick.decode(r).price for r in (first, second)] == [101, 102]
    assert TradeTick.decode(first).buyer_order_id == 3
    assert TradeTick.decode(first).seller_order_id == 1
    assert not TradeTick.decode(first).is_buyer_maker
    event = diff.decode()
    assert event.bids.tolist() == [(103, 1)]
    assert event.asks.tolist() == [(101, 0), (102, 0)]


def test_a_reader_that_missed_an_event_detects_a_gap(undisturbed):
    reference, _ = undisturbed
    events = list(records(reference.raw, {BOOK_EVENT}))
    book = empty_book()
    for event in events[:10]:
        book.apply(event)
    with pytest.raises(tw.GapDetected):
        book.apply(events[11])


def test_a_book_of_the_market_data_equals_that_of_the_engine(undisturbed, tmp):
    _, inputs = undisturbed
    paths = DemoPaths(tmp, SMALL)
    book = empty_book()
    taken = 0
    with Exchange(paths) as exchange:
        for what, input_seq in inputs:
            exchange.accept(what, input_seq)
            for record in records(paths.raw, start=taken):
                taken = record.seq + 1
                if record.type_id == BOOK_EVENT:
                    book.apply(record)
            assert book.hash() == book_of(exchange.engine).hash()


def test_the_instrument_is_stored_at_the_root_of_the_bus(undisturbed):
    reference, _ = undisturbed
    assert Instruments.load(reference.raw).find(SYMBOL) == INSTRUMENT


# ---- odd inputs ---------------------------------------------------------------------------------


def test_a_checkpoint_of_an_invalid_size_is_refused(tmp):
    paths = DemoPaths(tmp, SMALL)
    write(paths.wal, [(0, messages.CHECKPOINT, b"\0" * 50)])
    number = messages.number_of(0, 0)
    write(paths.fills, [(number, messages.MARK, b"")], sparse=True)
    write(paths.raw, [(0, SessionClosed.type_id, bytes(SessionClosed(number)))])
    with pytest.raises(tw.TapewireError, match="invalid size of a checkpoint: size=50"):
        Exchange(paths)


def test_an_order_with_an_invalid_side_is_rejected(tmp):
    paths = DemoPaths(tmp, SMALL)
    bad = NewOrder("alpha", SYMBOL, 2**64 - 1, 100, 5, side=7)
    write(paths.orders, [(0, NewOrder.type_id, bytes(bad))])
    with Exchange(paths, checkpoint_every=1) as exchange:
        [record] = records(paths.orders)
        exchange.accept(order_of(record), record.seq)
    [answer] = records(paths.fills, {OrderAck.type_id})
    assert answer.decode().status == AckStatus.REJECTED


def test_any_order_id_survives_a_checkpoint(tmp):
    paths = DemoPaths(tmp, SMALL)
    big = New("alpha", 2**64 - 1, Side.BUY, 100, 5)
    with Exchange(paths, checkpoint_every=1) as exchange:
        exchange.accept(big, 0)
        exchange.accept(Cancel("alpha", 1), 1)
        levels = exchange.engine.levels()
    with Exchange(paths, checkpoint_every=1) as exchange:
        assert exchange.recovery.checkpoint is not None
        assert exchange.engine.levels() == levels == [(1, 100, 5)]
        assert ("alpha", 2**64 - 1) in exchange.engine
