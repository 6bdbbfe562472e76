"""The exchange after a kill at any moment: the same tapes as if nothing had happened."""

import itertools

import pytest

import tapewire as tw
from tapewire.demo import messages
from tapewire.demo.books import book_of, empty_book
from tapewire.demo.events import AckStatus, Cancel, New, Side
from tapewire.demo.exchange import Exchange, order_of
from tapewire.demo.messages import SessionClosed, wal_seq_of
from tapewire.demo.places import INSTRUMENT, SYMBOL, Places
from tapewire.demo.tape import records
from tapewire.protocol.instruments import Instruments
from tapewire.protocol.market import BOOK_EVENT, TradeTick
from tapewire.protocol.orders import Fill, NewOrder, OrderAck
from tests.unit.demo.tapes import SMALL, rows, session, timed_rows, write

EVERY = 7  # inputs between checkpoints: several in a short session


def run(places, inputs):
    # The time of a WAL record is its number: a run that was cut in two has the same times.
    clock = itertools.count(10**18 + len(rows(places.wal))).__next__
    with Exchange(places, checkpoint_every=EVERY, clock=clock) as exchange:
        for what, input_seq in inputs:
            exchange.accept(what, input_seq)
        return exchange.recovery


def tapes(places):
    return {
        "wal": timed_rows(places.wal),
        "fills": rows(places.fills),  # timed by their append
        "raw": timed_rows(places.raw),
    }


def in_order_of_appending(places):
    """Every append of a run: an input, then its fills, then its market data."""
    outputs = {}
    for row in rows(places.fills):
        outputs.setdefault(wal_seq_of(row[0]), []).append(("fills", row))
    for row in timed_rows(places.raw):
        outputs.setdefault(row[3] - 10**18, []).append(("raw", row))
    wal = timed_rows(places.wal)
    return [append for row in wal for append in [("wal", row), *outputs.get(row[0], [])]]


def left_by_a_kill(places, appends):
    for queue in ("wal", "fills", "raw"):
        tape = [row for name, row in appends if name == queue]
        write(getattr(places, queue), tape, sparse=queue == "fills")


def inputs_in(places):
    return sum(record.type_id != messages.CHECKPOINT for record in records(places.wal))


@pytest.fixture(scope="module")
def undisturbed(module_tmp):
    inputs = list(session(seed=11, length=45))
    places = Places(module_tmp / "undisturbed", SMALL)
    run(places, inputs)
    return places, inputs


def test_the_session_is_worth_killing(undisturbed):
    places, _ = undisturbed
    fills = [Fill.decode(r) for r in records(places.fills, {Fill.type_id})]
    assert len(fills) > 10
    assert {fill.strategy for fill in fills} == {"alpha", "beta"}
    assert sum(1 for _ in records(places.wal, {messages.CHECKPOINT})) > 5


def test_killed_after_any_append_it_publishes_the_rest_and_nothing_twice(undisturbed, tmp):
    reference, inputs = undisturbed
    appends = in_order_of_appending(reference)
    expected = tapes(reference)
    made_up_for = 0
    for cut in range(len(appends) + 1):
        places = Places(tmp / str(cut), SMALL)
        left_by_a_kill(places, appends[:cut])
        done = inputs_in(places)
        made_up_for += run(places, inputs[done:]).published
        assert tapes(places)["fills"] == expected["fills"], cut
        assert tapes(places)["raw"] == expected["raw"], cut
    assert made_up_for > 0


def test_a_second_start_changes_nothing(undisturbed, tmp):
    reference, _ = undisturbed
    appends = in_order_of_appending(reference)
    places = Places(tmp, SMALL)
    left_by_a_kill(places, appends[: len(appends) // 2])
    run(places, [])
    before = tapes(places)
    assert run(places, []).published == 0
    assert tapes(places) == before


def test_it_replays_from_the_last_checkpoint_and_not_from_the_first_input(undisturbed, tmp):
    reference, inputs = undisturbed
    recovery = run(reference, [])
    assert recovery.checkpoint is not None
    assert recovery.replayed < EVERY + 1 < len(inputs)


def test_a_checkpoint_that_an_output_did_not_mark_is_not_trusted(undisturbed, tmp):
    """The fills have lost their tail, as a power cut may do: an earlier checkpoint must do."""
    reference, _ = undisturbed
    places = Places(tmp, SMALL)
    expected = tapes(reference)
    write(places.wal, expected["wal"])
    write(places.fills, expected["fills"][: len(expected["fills"]) // 3], sparse=True)
    write(places.raw, expected["raw"])
    run(places, [])
    assert tapes(places) == expected


def test_outputs_whose_inputs_are_lost_are_refused(undisturbed, tmp):
    reference, _ = undisturbed
    places = Places(tmp, SMALL)
    expected = tapes(reference)
    write(places.wal, expected["wal"][:20])
    write(places.fills, expected["fills"], sparse=True)
    write(places.raw, expected["raw"])
    with pytest.raises(tw.TapewireError, match="whose inputs the WAL has lost"):
        Exchange(places)


def test_a_trade_whose_input_is_lost_is_refused(undisturbed, tmp):
    """It is the last of the market data and tells no number; no input makes it any more."""
    reference, _ = undisturbed
    places = Places(tmp, SMALL)
    appends = in_order_of_appending(reference)
    traded = [i for i, (_, row) in enumerate(appends) if row[1] == TradeTick.type_id][-1]
    wal_seq = appends[traded][1][3] - 10**18
    kept = [
        (queue, row)
        for queue, row in appends[: traded + 1]
        if (queue, wal_seq) != ("wal", row[0]) and (queue, wal_seq) != ("fills", wal_seq_of(row[0]))
    ]
    left_by_a_kill(places, kept)
    with pytest.raises(tw.TapewireError, match="whose inputs the WAL has lost"):
        Exchange(places)


# ---- its market data ----------------------------------------------------------------------------


def test_the_market_data_say_once_what_is_in_the_book_and_then_what_changes(undisturbed):
    reference, _ = undisturbed
    events = [record.decode() for record in records(reference.raw, {BOOK_EVENT})]
    assert [event.event_type for event in events] == [1] + [2] * (len(events) - 1)
    assert [event.ingest_ts_ns for event in events] == [
        record.timestamp_ns for record in records(reference.raw, {BOOK_EVENT})
    ]


def test_all_levels_that_an_input_changed_are_one_event_behind_its_trades(tmp):
    places = Places(tmp, SMALL)
    with Exchange(places) as exchange:
        exchange.accept(New("", 1, Side.SELL, 101, 2), 0)
        exchange.accept(New("", 2, Side.SELL, 102, 2), 1)
        exchange.accept(New("", 3, Side.BUY, 103, 5), 2)  # takes both, and rests
    *_, first, second, diff = records(places.raw)
    assert [TradeTick.decode(r).price for r in (first, second)] == [101, 102]
    assert TradeTick.decode(first).buyer_order_id == 3
    assert TradeTick.decode(first).seller_order_id == 1
    assert not TradeTick.decode(first).is_buyer_maker
    event = diff.decode()
    assert event.bids.tolist() == [(103, 1)]
    assert event.asks.tolist() == [(101, 0), (102, 0)]


def test_a_reader_that_missed_an_event_knows(undisturbed):
    reference, _ = undisturbed
    events = list(records(reference.raw, {BOOK_EVENT}))
    book = empty_book()
    for event in events[:10]:
        book.apply(event)
    with pytest.raises(tw.GapDetected):
        book.apply(events[11])


def test_a_book_of_the_market_data_is_the_engine_s(undisturbed, tmp):
    _, inputs = undisturbed
    places = Places(tmp, SMALL)
    book = empty_book()
    taken = 0
    with Exchange(places) as exchange:
        for what, input_seq in inputs:
            exchange.accept(what, input_seq)
            for record in records(places.raw, start=taken):
                taken = record.seq + 1
                if record.type_id == BOOK_EVENT:
                    book.apply(record)
            assert book.hash() == book_of(exchange.engine).hash()


def test_the_instrument_is_told_at_the_root_of_the_bus(undisturbed):
    reference, _ = undisturbed
    assert Instruments.load(reference.raw).find(SYMBOL) == INSTRUMENT


# ---- odd inputs ---------------------------------------------------------------------------------


def test_a_checkpoint_of_the_wrong_size_is_refused(tmp):
    places = Places(tmp, SMALL)
    write(places.wal, [(0, messages.CHECKPOINT, b"\0" * 50)])
    number = messages.number_of(0, 0)
    write(places.fills, [(number, messages.MARK, b"")], sparse=True)
    write(places.raw, [(0, SessionClosed.type_id, bytes(SessionClosed(number)))])
    with pytest.raises(tw.TapewireError, match="rows of"):
        Exchange(places)


def test_an_order_on_no_side_is_refused_and_harms_nobody(tmp):
    places = Places(tmp, SMALL)
    bad = NewOrder("alpha", SYMBOL, 2**64 - 1, 100, 5, side=7)
    write(places.orders, [(0, NewOrder.type_id, bytes(bad))])
    with Exchange(places, checkpoint_every=1) as exchange:
        [record] = records(places.orders)
        exchange.accept(order_of(record), record.seq)
    [told] = records(places.fills, {OrderAck.type_id})
    assert told.decode().status == AckStatus.REJECTED


def test_any_order_id_survives_a_checkpoint(tmp):
    places = Places(tmp, SMALL)
    big = New("alpha", 2**64 - 1, Side.BUY, 100, 5)
    with Exchange(places, checkpoint_every=1) as exchange:
        exchange.accept(big, 0)
        exchange.accept(Cancel("alpha", 1), 1)
        levels = exchange.engine.levels()
    with Exchange(places, checkpoint_every=1) as exchange:
        assert exchange.recovery.checkpoint is not None
        assert exchange.engine.levels() == levels == [(1, 100, 5)]
        assert ("alpha", 2**64 - 1) in exchange.engine
