"""The exchange after a kill at any moment: the same tapes as if nothing had happened."""

import pytest

import tapewire as tw
from tapewire.demo import messages
from tapewire.demo.events import AckStatus, Cancel, New, Side
from tapewire.demo.exchange import Exchange, order_of
from tapewire.demo.messages import output_number, wal_seq_of
from tapewire.demo.places import SYMBOL, Places
from tapewire.demo.tape import records
from tapewire.protocol.orders import Fill, NewOrder, OrderAck
from tests.unit.demo.tapes import SMALL, rows, session, write

EVERY = 7  # inputs between checkpoints: several in a short session


def run(places, inputs):
    with Exchange(places, checkpoint_every=EVERY) as exchange:
        for what, input_seq in inputs:
            exchange.accept(what, input_seq)
        return exchange.recovery


def tapes(places):
    return {"wal": rows(places.wal), "fills": rows(places.fills), "raw": rows(places.raw)}


def in_order_of_appending(places):
    """Every append of a run: an input, then its fills, then its market data."""
    outputs = {}
    for queue in ("fills", "raw"):
        for record in records(getattr(places, queue)):
            row = (record.seq, record.type_id, bytes(record.payload))
            outputs.setdefault(wal_seq_of(output_number(record)), []).append((queue, row))
    return [
        append for row in rows(places.wal) for append in [("wal", row), *outputs.get(row[0], [])]
    ]


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


def test_a_checkpoint_of_the_wrong_size_is_refused(tmp):
    places = Places(tmp, SMALL)
    write(places.wal, [(0, messages.CHECKPOINT, b"\0" * 50)])
    number = messages.number_of(0, 0)
    write(places.fills, [(number, messages.MARK, b"")], sparse=True)
    write(places.raw, [(0, messages.SNAPSHOT, number.to_bytes(8, "little"))])
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
