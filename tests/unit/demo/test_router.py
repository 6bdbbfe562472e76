"""The router after a kill at any moment: every order and every fill goes on, none of them twice."""

import random

import pytest

from tapewire import bus
from tapewire.demo.messages import MARK, Counted
from tapewire.demo.places import SYMBOL, Places
from tapewire.demo.router import Router
from tapewire.demo.tape import records
from tapewire.protocol import replace
from tapewire.protocol.orders import CancelOrder, Fill, Liquidity, NewOrder, OrderAck, Side
from tests.unit.demo.tapes import SMALL, rows, write

NAMES = ("alpha", "beta")
KINDS = {kind.type_id: kind for kind in (Fill, OrderAck)}


def sent_by(name):
    """What is in a strategy's queue: orders and cancels, and records that are its own affair."""
    messages = []
    for number in range(1, 7):
        messages.append(NewOrder(name, SYMBOL, number, 100, 5, Side.BUY))
        messages.append(Counted(number, number, 0, 0, 0))
        messages.append(CancelOrder(name, SYMBOL, number))
    return [(seq, m.type_id, bytes(m)) for seq, m in enumerate(messages)]


def answered():
    """What is in the exchange's queue, under numbers that skip."""
    choose = random.Random(3)
    tape = []
    for number in range(0, 300, 10):
        name = choose.choice(NAMES)
        if number % 70 == 0:
            tape.append((number, MARK, b""))
        elif number % 20 == 0:
            tape.append((number, OrderAck.type_id, bytes(OrderAck(name, SYMBOL, number, 1, 1))))
        else:
            fill = Fill(number, 1, 1, name, SYMBOL, 1, 100, 5, Side.BUY, Liquidity.MAKER)
            tape.append((number, Fill.type_id, bytes(fill)))
    return tape


@pytest.fixture
def bus_of(tmp):
    """A bus with everything in it that the router reads."""

    def make(name):
        places = Places(tmp / name, SMALL)
        write(places.fills, answered(), sparse=True)
        for strategy in NAMES:
            ends = places.strategy(strategy)
            write(ends.orders_out, sent_by(strategy))
            bus.mark_ready(ends.orders_out)
        return places

    return make


def route_everything(places):
    with Router(places) as router:
        router.look()
        while router.step(timeout=0):
            pass


def routed(places, name):
    """(type_id, source_seq) of what the router passed on of a strategy's."""
    passed = [record.decode() for record in records(places.orders)]
    return [(m.type_id, m.source_seq) for m in passed if m.strategy == name]


def due(name):
    return [(t, seq) for seq, t, _ in sent_by(name) if t != Counted.type_id]


def answers(name):
    return [
        row
        for row in answered()
        if row[1] != MARK
        and (Fill if row[1] == Fill.type_id else OrderAck).decode(row[2]).strategy == name
    ]


def check(places):
    for name in NAMES:
        assert routed(places, name) == due(name)
        assert rows(places.strategy(name).orders_in) == answers(name)


def test_orders_and_fills_find_their_way(bus_of):
    places = bus_of("bus")
    route_everything(places)
    check(places)


def test_killed_after_any_append_it_goes_on_behind_its_own_output(bus_of):
    choose = random.Random(5)
    whole = bus_of("whole")
    route_everything(whole)
    orders = rows(whole.orders)
    for cut in range(len(orders) + 1):
        places = bus_of(str(cut))
        write(places.orders, orders[:cut])
        for name in NAMES:
            tape = answers(name)
            had = tape[: choose.randint(0, len(tape))]
            write(places.strategy(name).orders_in, had, sparse=True)
        route_everything(places)
        check(places)


def test_a_second_start_sends_nothing(bus_of):
    places = bus_of("bus")
    route_everything(places)
    route_everything(places)
    check(places)


def test_an_order_keeps_everything_but_who_routed_it_when(bus_of):
    places = bus_of("bus")
    route_everything(places)
    first = next(iter(records(places.orders))).decode()
    original = NewOrder.decode(sent_by(first.strategy)[first.source_seq][2])
    assert first.routed_ns > 0
    assert replace(first, source_seq=0, routed_ns=0) == original


def test_a_strategy_that_goes_is_let_go_when_its_orders_are_routed(bus_of):
    places = bus_of("bus")
    with Router(places) as router:
        router.look()
        bus.clear_ready(places.strategy("alpha").orders_out)
        router.look()
        while router.step(timeout=0):
            pass
    check(places)


def test_a_strategy_cannot_speak_for_another(tmp):
    places = Places(tmp, SMALL)
    liar = NewOrder("beta", SYMBOL, 1, 100, 5, Side.BUY)
    write(places.strategy("alpha").orders_out, [(0, NewOrder.type_id, bytes(liar))])
    bus.mark_ready(places.strategy("alpha").orders_out)
    route_everything(places)
    assert [order.decode().strategy for order in records(places.orders)] == ["alpha"]
