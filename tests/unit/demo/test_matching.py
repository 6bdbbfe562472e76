"""The exchange's rules, compared with a naive exchange and one by one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tapewire.demo.events import (
    MARKET,
    Ack,
    AckStatus,
    Cancel,
    Close,
    FillEvent,
    Level,
    New,
    RejectReason,
    SetLevel,
    Side,
    TradeEvent,
)
from tapewire.demo.matching import Engine
from tests.unit.demo.naive_exchange import NaiveExchange

SIDES = st.sampled_from(Side)
OWNERS = st.sampled_from([MARKET, "a", "b"])
PRICES = st.integers(95, 105)
NEWS = st.builds(New, OWNERS, st.integers(1, 40), SIDES, PRICES, st.integers(0, 9), st.booleans())
INPUTS = st.one_of(
    NEWS,
    NEWS,
    st.builds(Cancel, OWNERS, st.integers(1, 40)),
    st.builds(SetLevel, SIDES, PRICES, st.integers(0, 9)),
)
SESSIONS = st.lists(INPUTS, max_size=60)
ENDS = st.sampled_from([[], [Close()], [Close(), New("a", 99, Side.BUY, 100, 1)]])


def filled(events):
    return [(e.owner, e.order_id, e.price, e.qty) for e in events if isinstance(e, FillEvent)]


@settings(max_examples=300, deadline=None)
@given(SESSIONS, ENDS)
def test_it_trades_as_a_naive_exchange_does(session, end):
    engine, naive = Engine(), NaiveExchange()
    fills, trades = [], []
    for what in session + end:
        events = engine.apply(what)
        naive.apply(what)
        fills += filled(events)
        trades += [(e.price, e.qty) for e in events if isinstance(e, TradeEvent)]
        assert set(engine.levels()) == naive.levels()
    assert fills == naive.fills
    assert trades == naive.trades


@settings(max_examples=200, deadline=None)
@given(SESSIONS)
def test_the_book_is_never_crossed(session):
    engine = Engine()
    for what in session:
        engine.apply(what)
        bid, ask = engine.best(Side.BUY), engine.best(Side.SELL)
        assert bid is None or ask is None or bid < ask


@settings(max_examples=200, deadline=None)
@given(SESSIONS, ENDS)
def test_quantity_is_conserved(session, end):
    """What a strategy sent is filled, cancelled, or in the book."""
    engine = Engine()
    sent, gone, traded = {}, {}, {}
    for what in session + end:
        open_before = {
            (owner, order_id): qty
            for owner in ("a", "b")
            for order_id, _, _, qty in engine.orders_of(owner)
        }
        for event in engine.apply(what):
            match event:
                case Ack(owner, order_id, AckStatus.ACCEPTED, leaves=qty):
                    sent[owner] = sent.get(owner, 0) + qty
                    open_before[owner, order_id] = qty
                case Ack(owner, order_id, AckStatus.CANCELLED):
                    gone[owner] = gone.get(owner, 0) + open_before[owner, order_id]
                case FillEvent(owner=owner, order_id=order_id, qty=qty, leaves=leaves):
                    open_before[owner, order_id] -= qty
                    assert open_before[owner, order_id] == leaves
                    traded[owner] = traded.get(owner, 0) + qty
    for owner in ("a", "b"):
        resting = sum(qty for _, _, _, qty in engine.orders_of(owner))
        assert sent.get(owner, 0) == traded.get(owner, 0) + gone.get(owner, 0) + resting


@settings(max_examples=200, deadline=None)
@given(SESSIONS, SESSIONS, ENDS)
def test_an_engine_from_a_checkpoint_continues_like_the_original(before, after, end):
    engine = Engine()
    for what in before:
        engine.apply(what)
    copy = Engine.from_state(engine.state(), engine.counters())
    for what in after + end:
        assert copy.apply(what) == engine.apply(what)
    assert copy.levels() == engine.levels()


@settings(max_examples=200, deadline=None)
@given(SESSIONS, ENDS)
def test_levels_alone_rebuild_the_book(session, end):
    engine, book = Engine(), {}
    for what in session + end:
        for event in engine.apply(what):
            if isinstance(event, Level):
                book[int(event.side), event.price] = event.qty
    assert {(*at, qty) for at, qty in book.items() if qty} == set(engine.levels())


def test_at_one_price_the_older_order_trades_first():
    engine = Engine()
    engine.apply(New("a", 1, Side.SELL, 100, 5))
    engine.apply(New("b", 1, Side.SELL, 100, 5))
    assert filled(engine.apply(New(MARKET, 1, Side.BUY, 100, 7))) == [
        ("a", 1, 100, 5),
        ("b", 1, 100, 2),
    ]


def test_a_better_price_trades_before_an_older_order():
    engine = Engine()
    engine.apply(New("a", 1, Side.BUY, 99, 5))
    engine.apply(New("b", 1, Side.BUY, 100, 5))
    assert filled(engine.apply(New(MARKET, 1, Side.SELL, 99, 6))) == [
        ("b", 1, 100, 5),
        ("a", 1, 99, 1),
    ]


def test_fill_ids_have_no_gap_over_all_strategies():
    engine = Engine()
    engine.apply(New("a", 1, Side.SELL, 100, 1))
    engine.apply(New("b", 1, Side.SELL, 100, 1))
    events = engine.apply(New("a", 2, Side.BUY, 100, 2))
    assert [e.fill_id for e in events if isinstance(e, FillEvent)] == [1, 2, 3, 4]


def test_the_rest_of_an_immediate_order_is_cancelled():
    engine = Engine()
    engine.apply(New(MARKET, 1, Side.SELL, 100, 2))
    events = engine.apply(New("a", 1, Side.BUY, 100, 5, immediate=True))
    assert filled(events) == [("a", 1, 100, 2)]
    assert Ack("a", 1, AckStatus.CANCELLED, 0, exchange_id=2) in events
    assert engine.levels() == []


def test_after_the_close_orders_are_rejected_and_strategies_have_none_left():
    engine = Engine()
    engine.apply(New("a", 1, Side.BUY, 99, 5))
    engine.apply(New(MARKET, 1, Side.BUY, 99, 5))
    cancelled, level = engine.apply(Close())
    assert cancelled == Ack("a", 1, AckStatus.CANCELLED, 0, exchange_id=1)
    assert level == Level(Side.BUY, 99, 5)
    [answer] = engine.apply(New("a", 2, Side.BUY, 99, 5))
    assert (answer.status, answer.reason) == (AckStatus.REJECTED, RejectReason.SESSION_CLOSED)
    [answer] = engine.apply(Cancel("a", 1))
    assert (answer.status, answer.reason) == (AckStatus.CANCEL_REJECTED, RejectReason.UNKNOWN_ORDER)


def test_orders_of_the_participants_are_not_acknowledged():
    engine = Engine()
    events = [
        *engine.apply(New(MARKET, 1, Side.BUY, 99, 5)),
        *engine.apply(New(MARKET, 2, Side.SELL, 99, 2, immediate=True)),
        *engine.apply(Cancel(MARKET, 7)),
        *engine.apply(New(MARKET, 3, Side.SELL, 99, 0)),
    ]
    assert not any(isinstance(e, Ack | FillEvent) for e in events)
