"""Joining a running market: from a snapshot, or from its opening if there is none yet."""

import pytest

import tapewire as tw
from tapewire import replay
from tapewire.demo.books import book_of, from_start, hashes_at, join, snapshots_of
from tapewire.demo.exchange import Exchange
from tapewire.demo.paths import DemoPaths
from tapewire.protocol.market import BOOK_EVENT
from tests.unit.demo.queue_rows import SMALL, session


@pytest.fixture
def market(tmp):
    """Half a session: its paths, the exchange, and the remaining inputs."""
    paths = DemoPaths(tmp, SMALL)
    inputs = list(session(seed=5, length=60))
    with Exchange(paths) as exchange:
        for what, input_seq in inputs[:30]:
            exchange.accept(what, input_seq)
        yield paths, exchange, inputs[30:]


def take_snapshots(paths):
    replay.Snapshotter(paths.raw, every=replay.Every(records=10)).run(follow=False)


def go_on(exchange, inputs):
    for what, input_seq in inputs:
        exchange.accept(what, input_seq)


def test_without_a_snapshot_the_reader_starts_at_the_opening(market):
    paths, exchange, _ = market
    with tw.open_log(paths.raw) as log:
        book, snapshot = join(log, paths.raw)
        assert snapshot is None
        book.apply_batch(log.read_batch())
    assert book.hash() == book_of(exchange.engine).hash()


def test_with_a_snapshot_only_the_records_after_it_are_read(market):
    paths, exchange, rest = market
    take_snapshots(paths)
    go_on(exchange, rest)
    latest = snapshots_of(paths.raw)[-1].seq
    with tw.open_log(paths.raw) as log:
        book, snapshot = join(log, paths.raw)
        rest_of_log = log.read_batch()
        assert (snapshot, rest_of_log.seq[0]) == (latest, latest + 1)
        book.apply_batch(rest_of_log)
    assert book.hash() == book_of(exchange.engine).hash()


def test_a_gap_after_the_snapshot_raises(market):
    paths, exchange, rest = market
    take_snapshots(paths)
    go_on(exchange, rest)
    with tw.open_log(paths.raw, types={BOOK_EVENT}) as log:
        book, _ = join(log, paths.raw)
        log.next()  # lost
        with pytest.raises(tw.GapDetected):
            book.apply_batch(log.read_batch())


def test_a_replay_from_the_start_counts_every_record_up_to_the_given_one(market):
    paths, *_ = market
    assert from_start(paths.raw, 12).records == 13


def test_hashes_are_those_of_a_replay_that_ends_there(market):
    paths, *_ = market
    take_snapshots(paths)
    found = hashes_at(paths.raw, [s.seq for s in snapshots_of(paths.raw)])
    assert len(set(found.values())) > 2
    for file in snapshots_of(paths.raw):
        assert found[file.seq] == replay.snapshots.info(file.path).book_hash


def test_a_missing_record_has_no_hash(market):
    paths, *_ = market
    assert hashes_at(paths.raw, [10**6]) == {}
