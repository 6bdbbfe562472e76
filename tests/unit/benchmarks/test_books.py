"""Benchmarks of books: reproducible, sane events, and the same final book for all."""

from collections import Counter

import numpy as np
import pytest

from benchmarks import markdown
from benchmarks.books import alternatives, captures, compare, events
from benchmarks.books.replay import LEVELS, Ending, Replayed, first_read

EVENTS = 6_000
MAKERS = {"l2": events.l2_events, "l3": events.l3_events}


def naive(kind, rows):
    """The simplest book; also checks that no event leaves it crossed."""
    orders = {}
    levels = {events.BUY: Counter(), events.SELL: Counter()}
    bid_sum = ask_sum = 0
    first = first_read(kind, rows)
    for i, row in enumerate(rows):
        side, price = int(row["side"]), int(row["price"])
        if kind == "l2":
            levels[side][price] = int(row["size"])
        else:
            before, size = orders.pop(int(row["order"]), (0, 0))
            levels[side][before] -= size
            if left := int(row["left"]):
                orders[int(row["order"])] = price, left
                levels[side][price] += left
        if i >= first:
            bid = max(p for p, size in levels[events.BUY].items() if size)
            ask = min(p for p, size in levels[events.SELL].items() if size)
            assert bid < ask
            bid_sum, ask_sum = bid_sum + bid, ask_sum + ask
    ladders = [
        sorted(((p, size) for p, size in levels[side].items() if size), reverse=side == events.BUY)
        for side in (events.BUY, events.SELL)
    ]
    return Ending(*([list(level) for level in side[:LEVELS]] for side in ladders), bid_sum, ask_sum)


@pytest.fixture(scope="module", params=MAKERS)
def market(request):
    return compare.Market(request.param, "small", MAKERS[request.param](EVENTS))


@pytest.fixture(scope="module")
def expected(market):
    return naive(market.kind, market.events)


@pytest.mark.parametrize("make", MAKERS.values())
def test_the_same_seed_gives_the_same_events_and_another_gives_others(make):
    assert np.array_equal(make(EVENTS), make(EVENTS))
    assert not np.array_equal(make(EVENTS), make(EVENTS, seed=2))
    assert len(make(EVENTS)) == EVENTS


def test_diffs_are_as_in_a_capture_and_have_bids_before_asks():
    rows = events.l2_events(30_000)
    changes = rows[rows["diff"] > 0]
    counts = np.bincount(changes["diff"])[1:]
    assert 15 < counts.mean() < 30
    assert 0.1 < np.mean(changes["size"] == 0) < 0.15
    for number in range(1, 50):
        sides = changes["side"][changes["diff"] == number]
        assert np.all(np.diff(sides.astype(int)) >= 0)


def test_orders_are_added_modified_traded_and_cancelled_and_a_trade_never_takes_too_much():
    rows = events.l3_events(30_000)
    shares = np.bincount(rows["type"], minlength=5)[1:] / len(rows)
    assert np.all(shares > 0.04)
    left = {}
    for row in rows:
        order = int(row["order"])
        if row["type"] == events.TRADE:
            assert 0 < row["size"] <= left[order]
            assert row["left"] == left[order] - row["size"]
        assert (row["type"] == events.ADD) == (order not in left)
        left[order] = int(row["left"])
        if not left[order]:
            left[order] = -1


def test_ours_ends_as_the_plainest_book(market, expected, tmp):
    job = compare.prepared(tmp, market, 1)
    assert compare.replayed(compare.OURS, job).ending == expected


def test_the_book_alone_ends_as_the_plainest_book(tmp):
    market = compare.Market("l3", "small", events.l3_events(EVENTS))
    job = compare.prepared(tmp, market, 1)
    assert compare.replayed(compare.OURS_ALONE, job).ending == naive("l3", market.events)


def test_orders_have_a_bar_for_the_book_alone_and_one_from_the_queue():
    ending = Ending([], [], 0, 0)
    seconds = {compare.OURS.title: 2.0, compare.OURS_ALONE.title: 1.0, compare.NAUTILUS.title: 4.0}
    found = {name: Replayed(6, [100.0], [s], ending) for name, s in seconds.items()}
    rows = compare.rows_of(compare.Market("l3", "small", np.zeros(6)), found)
    assert [(row.what, row.ratio, row.bar) for row in rows if row.bar] == [
        ("L3, small, the book alone, beside nautilus_trader", 4.0, ("≥", 3.0)),
        ("L3, small, from the queue, beside nautilus_trader", 2.0, ("≥", 2.0)),
    ]


@pytest.mark.parametrize("book", [compare.HFT[1], compare.NAUTILUS], ids=lambda book: book.package)
def test_an_alternative_ends_as_the_plainest_book(market, expected, tmp, book):
    if book.missing is not None:
        pytest.skip(book.missing)
    job = compare.prepared(tmp, market, 1)
    assert compare.replayed(book, job).ending == expected


def replay(ending):
    return Replayed(1, [1.0], [1.0], ending)


def test_a_book_that_ends_differently_is_named_with_both_values():
    right = Ending([[9, 1]], [[10, 1]], 9, 10)
    found = {"A": replay(right), "B": replay(Ending([[9, 2]], [[10, 1]], 9, 10))}
    assert compare.differing(found, same_tops=True) == ["B: bids=[[9, 2]], A has [[9, 1]]"]


def test_best_prices_on_the_way_are_compared_where_nothing_crosses():
    right = Ending([[9, 1]], [[10, 1]], 9, 10)
    found = {"A": replay(right), "B": replay(Ending([[9, 1]], [[10, 1]], 8, 10))}
    assert compare.differing(found, same_tops=True) == ["B: bid_sum=8, A has 9"]
    assert compare.differing(found, same_tops=False) == []


def test_the_bar_is_held_against_the_faster_form_of_an_alternative_by_processor_time():
    ending = Ending([], [], 0, 0)
    seconds = {"Tapewire": 1.0, compare.HFT[0].title: 4.0, compare.HFT[1].title: 3.0}
    found = {name: Replayed(6, [100.0], [s], ending) for name, s in seconds.items()}
    rows = compare.rows_of(compare.Market("l2", "small", np.zeros(6)), found)
    judged = [(row.against, row.ratio, row.verdict) for row in rows if row.bar]
    assert judged == [(compare.HFT[1].title, 3.0, "pass")]


def test_an_alternative_that_is_not_installed_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(alternatives, "installed", lambda: {"found": {}, "include": ""})
    assert [one["missing"] for one in alternatives.who_is_who()] == [
        "the package hftbacktest is not installed: make book-alternatives",
        "the package nautilus_trader is not installed: make book-alternatives",
    ]


def test_a_capture_is_stored_at_the_least_scale_that_is_exact():
    values, scale = captures._least_scale(np.array([639_439_000_000, 63_867_400]), 8)
    assert (values.tolist(), scale) == ([6_394_390_000, 638_674], 6)


def test_a_missing_capture_is_named(monkeypatch, tmp):
    monkeypatch.setenv("TAPEWIRE_MARKETDATA", str(tmp))
    assert captures.missing(captures.STOCK) == f"no {captures.STOCK} in {tmp}"


def test_the_table_has_a_line_for_each_book_and_a_column_for_each_market():
    rows = [
        {"value": 20.0, "detail": {"book": "A", "column": "L2"}},
        {"value": 10.0, "detail": {"book": "B", "column": "L2"}},
        {"value": 5.0, "detail": {"book": "A", "column": "L3"}},
        {"value": 1.0, "detail": {}},
    ]
    assert markdown.books({"rows": rows}).splitlines() == [
        "|  | L2 | L3 |",
        "|---|--:|--:|",
        "| A | 20 | 5 |",
        "| B | 10 |  |",
    ]
