"""The router after a kill at any point: every order and every fill is forwarded once."""

import random

import pytest

from tapewire import bus
from tapewire.demo.messages import MARK, Counted
from tapewire.demo.paths import SYMBOL, DemoPaths
from tapewire.demo.queue_records import records
from tapewire.demo.router import Router
from tapewire.protocol import replace
from tapewire.protocol.orders import CancelOrder, Fill, Liquidity, NewOrder, OrderAck, Side
from tests.unit.demo.queue_rows import SMALL, rows, write

NAMES = ("alpha", "beta")
KINDS = {kind.type_id: kind for kind in (Fill, OrderAck)}


def sent_by(name):
    """A strategy's queue: orders and cancels, and records that the router ignores."""
    messages = []
    for number in range(1, 7):
        messages.append(NewOrder(name, SYMBOL, number, 100, 5, Side.BUY))
        messages.append(Counted(number, number, 0, 0, 0))
        messages.append(CancelOrder(name, SYMBOL, number))
    return [(seq, m.type_id, bytes(m)) for seq, m in enumerate(messages)]


def answered():
    """The exchange's queue, with sequence numbers that skip."""
    choose = random.Random(3)
    recorded = []
    for number in range(0, 300, 10):
        name = choose.choice(NAMES)
        if number % 70 == 0:
            recorded.append((number, MARK, b""))
        elif number % 20 == 0:
            recorded.append((number, OrderAck.type_id, bytes(OrderAck(name, SYMBOL, number, 1, 1))))
        else:
            fill = Fill(number, 1, 1, name, SYMBOL, 1, 100, 5, Side.BUY, Liquidity.MAKER)
            recorded.append((number, Fill.type_id, bytes(fill)))
    return recorded


@pytest.fixture
def bus_of(tmp):
    """A bus with all queues that the router reads."""

    def make(name):
        paths = DemoPaths(tmp / name, SMALL)
        write(paths.fills, answered(), sparse=True)
        for strategy in NAMES:
            ends = paths.strategy(strategy)
            write(ends.orders_out, sent_by(strategy))
            bus.mark_ready(ends.orders_out)
        return paths

    return make


def route_everything(paths):
    with Router(paths) as router:
        router.poll()
        while router.step(timeout=0):
            pass


def routed(paths, name):
    """(type_id, source_seq) of what the router sent for a strategy."""
    passed = [record.decode() for record in records(paths.orders)]
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


def check(paths):
    for name in NAMES:
        assert routed(paths, name) == due(name)
        assert rows(paths.strategy(name).orders_in) == answers(name)


def test_orders_and_fills_are_forwarded(bus_of):
    paths = bus_of("bus")
    route_everything(paths)
    check(paths)


def test_killed_after_any_append_it_continues_after_its_own_output(bus_of):
    choose = random.Random(5)
    complete = bus_of("complete")
    route_everything(complete)
    orders = rows(complete.orders)
    for cut in range(len(orders) + 1):
        paths = bus_of(str(cut))
        write(paths.orders, orders[:cut])
        for name in NAMES:
            recorded = answers(name)
            had = recorded[: choose.randint(0, len(recorded))]
            write(paths.strategy(name).orders_in, had, sparse=True)
        route_everything(paths)
        check(paths)


def test_a_second_start_sends_nothing(bus_of):
    paths = bus_of("bus")
    route_everything(paths)
    route_everything(paths)
    check(paths)


def test_an_order_keeps_all_fields_but_the_router_s(bus_of):
    paths = bus_of("bus")
    route_everything(paths)
    first = next(iter(records(paths.orders))).decode()
    original = NewOrder.decode(sent_by(first.strategy)[first.source_seq][2])
    assert first.routed_ns > 0
    assert replace(first, source_seq=0, routed_ns=0) == original


def test_a_strategy_that_stops_is_removed_after_its_orders_are_sent(bus_of):
    paths = bus_of("bus")
    with Router(paths) as router:
        router.poll()
        bus.clear_ready(paths.strategy("alpha").orders_out)
        router.poll()
        while router.step(timeout=0):
            pass
    check(paths)


def test_a_strategy_cannot_send_orders_for_another(tmp):
    paths = DemoPaths(tmp, SMALL)
    forged = NewOrder("beta", SYMBOL, 1, 100, 5, Side.BUY)
    write(paths.strategy("alpha").orders_out, [(0, NewOrder.type_id, bytes(forged))])
    bus.mark_ready(paths.strategy("alpha").orders_out)
    route_everything(paths)
    assert [order.decode().strategy for order in records(paths.orders)] == ["alpha"]
