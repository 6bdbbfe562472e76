"""Losses and leading resets in a log: what a replay and `tapewire replay` report."""

import tapewire as tw
from tapewire import replay
from tapewire.book.gaps import Gap, GapLedger
from tapewire.protocol import market
from tapewire.protocol.instruments import Instrument, Instruments
from tests.support.commands import tapewire

BTC = Instrument.of("binance", "BTCUSDT", price_scale=2, size_scale=3)


def write(path, *payloads):
    Instruments([BTC]).save(path.parent)
    with tw.open_publisher(path, segment_bytes=1 << 16) as writer:
        for time, payload in enumerate(payloads):
            writer.append(market.BOOK_EVENT, payload, timestamp_ns=time)
    return path


def snapshot(time, last=4):
    return market.l2_snapshot(BTC, time, bids=[(10_000, 5)], asks=[(10_010, 7)], native_seq=last)


def diff(time, previous, last):
    return market.l2_diff(BTC, time, bids=[(10_001, 1)], first=last, last=last, prev=previous)


def trust(log):
    with replay.Replay(log) as running:
        return [step.book.trusted for step in running]


def test_a_leading_reset_has_a_book(tmp):
    log = write(tmp / "q", market.reset(BTC, 0), snapshot(1))
    with replay.Replay(log) as steps:
        assert [step.book.spread for step in steps if step.book.trusted] == [10]


def test_a_diff_that_follows_shows_that_no_diff_was_lost(tmp):
    log = write(tmp / "q", snapshot(0), market.loss(BTC, 1, "rejected"), diff(2, 4, 5))
    assert trust(log) == [True, False, True]


def test_a_diff_that_does_not_follow_shows_what_was_lost(tmp):
    rest = [diff(2, 7, 8), diff(3, 8, 9), snapshot(4, 9)]
    log = write(tmp / "q", snapshot(0), market.loss(BTC, 1, "rejected"), *rest)
    assert trust(log) == [True, False, False, False, True]
    with replay.Replay(log) as running:
        running.run()
        gaps = [(gap.kind, gap.first, gap.last, gap.action) for gap in running.gaps]
    assert gaps == [("parse", 0, 0, "resynced"), ("venue", 5, 7, "resynced")]


def test_a_command_shows_gaps_that_only_the_ledger_has(tmp):
    log = write(tmp / "q", snapshot(0), diff(1, 4, 5))
    gap = Gap("checksum", "binance", "BTCUSDT", "book", 0, 0, seq=1, timestamp_ns=1, cause="crc")
    GapLedger(log).add(gap)
    ran = tapewire("replay", log, "--levels", 0, "--json")
    assert (ran.code, ran.json[-1]["gaps"]) == (1, 1)
    assert ran.json[-1]["gap_list"][0]["cause"] == "crc"
    assert tapewire("replay", log, "--levels", 0, "--to", "1", "--json").json[-1]["gaps"] == 0
    assert "gaps     1" in tapewire("replay", log, "--levels", 0).out


def test_a_gap_that_the_ledger_has_too_counts_once(tmp):
    log = write(tmp / "q", snapshot(0), market.loss(BTC, 1, "missing", first=8, last=9))
    with replay.Replay(log) as running:
        running.run()
        GapLedger(log).add(*running.gaps)
    assert tapewire("replay", log, "--json").json[-1]["gaps"] == 1


def test_a_loss_raises_if_asked_to(tmp):
    log = write(tmp / "q", snapshot(0), market.loss(BTC, 1, "missing", first=8, last=9))
    raised = []
    with replay.Replay(log, on_gap="raise") as running:
        for _ in range(2):
            try:
                next(iter(running))
            except tw.GapDetected as error:
                raised.append((error.first, error.last))
    assert raised == [(8, 9)]
