"""Joining a market that runs: from a snapshot, or from its opening where there is none yet."""

import pytest

import tapewire as tw
from tapewire import replay
from tapewire.demo.books import book_of, from_start, hashes_at, join, snapshots_of
from tapewire.demo.exchange import Exchange
from tapewire.demo.places import Places
from tapewire.protocol.market import BOOK_EVENT
from tests.unit.demo.tapes import SMALL, session


@pytest.fixture
def market(tmp):
    """Half a session: its places, the exchange, and the inputs that are still to come."""
    places = Places(tmp, SMALL)
    inputs = list(session(seed=5, length=60))
    with Exchange(places) as exchange:
        for what, input_seq in inputs[:30]:
            exchange.accept(what, input_seq)
        yield places, exchange, inputs[30:]


def take_snapshots(places):
    replay.Snapshotter(places.raw, every=replay.Every(records=10)).run(follow=False)


def go_on(exchange, inputs):
    for what, input_seq in inputs:
        exchange.accept(what, input_seq)


def test_without_a_snapshot_one_begins_with_the_opening(market):
    places, exchange, _ = market
    with tw.open_log(places.raw) as log:
        book, snapshot = join(log, places.raw)
        assert snapshot is None
        book.apply_batch(log.read_batch())
    assert book.hash() == book_of(exchange.engine).hash()


def test_with_one_only_what_lies_behind_it_is_read(market):
    places, exchange, rest = market
    take_snapshots(places)
    go_on(exchange, rest)
    latest = snapshots_of(places.raw)[-1].seq
    with tw.open_log(places.raw) as log:
        book, snapshot = join(log, places.raw)
        behind = log.read_batch()
        assert (snapshot, behind.seq[0]) == (latest, latest + 1)
        book.apply_batch(behind)
    assert book.hash() == book_of(exchange.engine).hash()


def test_a_gap_behind_the_snapshot_raises(market):
    places, exchange, rest = market
    take_snapshots(places)
    go_on(exchange, rest)
    with tw.open_log(places.raw, types={BOOK_EVENT}) as log:
        book, _ = join(log, places.raw)
        log.next()  # lost
        with pytest.raises(tw.GapDetected):
            book.apply_batch(log.read_batch())


def test_the_long_way_counts_every_record_up_to_the_one_asked_for(market):
    places, *_ = market
    assert from_start(places.raw, 12).records == 13


def test_hashes_are_those_of_a_replay_that_ends_there(market):
    places, *_ = market
    take_snapshots(places)
    found = hashes_at(places.raw, [s.seq for s in snapshots_of(places.raw)])
    assert len(set(found.values())) > 2
    for file in snapshots_of(places.raw):
        assert found[file.seq] == replay.snapshots.info(file.path).book_hash


def test_a_record_that_is_not_there_has_no_hash(market):
    places, *_ = market
    assert hashes_at(places.raw, [10**6]) == {}
