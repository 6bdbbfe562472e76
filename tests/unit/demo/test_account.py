"""A strategy's account after a kill at any point: every fill is counted once."""

import tapewire as tw
from tapewire.demo.account import Account
from tapewire.demo.messages import Counted
from tapewire.demo.paths import SYMBOL, DemoPaths
from tapewire.demo.queue_records import records
from tapewire.protocol.orders import AckStatus, Fill, Liquidity, NewOrder, OrderAck, Side
from tests.unit.demo.queue_rows import SMALL, rows, write


def answers():
    """Five orders: bought, sold in two fills, rejected, cancelled, and one that rests."""
    messages = [
        OrderAck("alpha", SYMBOL, 1, 1, AckStatus.ACCEPTED),
        Fill(1, 1, 1, "alpha", SYMBOL, 1, 100, 5, Side.BUY, Liquidity.TAKER),
        OrderAck("alpha", SYMBOL, 2, 2, AckStatus.ACCEPTED),
        Fill(2, 2, 2, "alpha", SYMBOL, 2, 103, 4, Side.SELL, Liquidity.MAKER, leaves_qty=1),
        OrderAck("alpha", SYMBOL, 3, 0, AckStatus.REJECTED),
        OrderAck("alpha", SYMBOL, 4, 4, AckStatus.ACCEPTED),
        Fill(4, 3, 2, "alpha", SYMBOL, 2, 104, 1, Side.SELL, Liquidity.MAKER),
        OrderAck("alpha", SYMBOL, 4, 4, AckStatus.CANCELLED),
        OrderAck("alpha", SYMBOL, 5, 5, AckStatus.ACCEPTED),
    ]
    return [(10 * n, message.type_id, bytes(message)) for n, message in enumerate(messages)]


def send_five(account, tick):
    for side in (Side.BUY, Side.SELL, Side.BUY, Side.BUY, Side.SELL):
        account.send(tick, side, 100, 5, immediate=False)


def tick_of(tmp):
    write(tmp / "md", [(0, 1, b"tick")])
    return next(iter(records(tmp / "md")))


def a_life(ends):
    """Start, apply all of orders_in, and close."""
    account = Account(ends, SMALL)
    for record in records(ends.orders_in):
        account.take(record)
    account.close()
    return account


def counted(ends):
    return [Counted.decode(r).fill_id for r in records(ends.orders_out, {Counted.type_id})]


def test_killed_after_any_append_it_counts_the_rest_without_duplicates(tmp):
    whole = DemoPaths(tmp / "whole", SMALL).strategy("alpha")
    account = Account(whole, SMALL)
    send_five(account, tick_of(tmp))
    account.close()
    write(whole.orders_in, answers(), sparse=True)
    a_life(whole)
    tape = rows(whole.orders_out)
    assert len(tape) == 5 + 3
    for had in range(5, len(tape) + 1):
        ends = DemoPaths(tmp / str(had), SMALL).strategy("alpha")
        write(ends.orders_out, tape[:had])
        write(ends.orders_in, answers(), sparse=True)
        account = a_life(ends)
        assert counted(ends) == [1, 2, 4]
        assert (account.position, account.cash) == (0, -500 + 412 + 104)
        assert list(account.open) == [5]


def test_order_ids_continue_after_a_kill(tmp):
    ends = DemoPaths(tmp / "bus", SMALL).strategy("alpha")
    tick = tick_of(tmp)
    for _ in range(2):
        account = Account(ends, SMALL)
        send_five(account, tick)
        account.close()
    sent = [NewOrder.decode(r).client_order_id for r in records(ends.orders_out)]
    assert sent == list(range(1, 11))


def test_an_unanswered_order_is_pending_after_a_kill(tmp):
    ends = DemoPaths(tmp / "bus", SMALL).strategy("alpha")
    account = Account(ends, SMALL)
    account.send(tick_of(tmp), Side.BUY, 100, 5, immediate=True)
    account.close()
    again = Account(ends, SMALL)
    assert again.waiting
    write(ends.orders_in, answers()[:1], sparse=True)
    with tw.open_log(ends.orders_in) as log:
        again.take(log.next())
    assert not again.waiting
    again.close()
