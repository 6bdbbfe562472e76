"""The instrument and stream of a record, from its payload."""

import numpy as np

import tapewire as tw
from tapewire.protocol import market
from tapewire.refine.owners import STREAMS, InstrumentKeys
from tests.support.raw_tapes import INSTRUMENTS, plain_split, raw_rows, write_raw


def batch_of(path):
    with tw.open_log(path) as log:
        return log.read_batch(65_536)


def test_owners_equal_those_of_decoded_messages(tmp_path):
    rows = raw_rows(3_000, stranger_every=11)
    write_raw(tmp_path / "raw", rows)  # over many segments
    batch = batch_of(tmp_path / "raw")
    keys = InstrumentKeys(INSTRUMENTS)
    owners = keys.owners(batch)

    got = {}
    for i in np.flatnonzero(owners.market >= 0).tolist():
        venue, symbol = keys.names[owners.market[i]]
        name = f"{venue}/{symbol}/{STREAMS[owners.stream[i]]}"
        got.setdefault(name, []).append(int(batch.seq[i]))
    want = {}
    for name, log in plain_split(rows).items():
        venue, symbol, _, stream = name.split("/")
        want.setdefault(f"{venue}/{symbol}/{stream}", []).extend(row[0] for row in log)
    assert got == {name: sorted(seqs) for name, seqs in want.items()}
    assert sum(owners.unknown.values()) == len(range(11, 3_000, 11))


def test_numbers_and_times_of_the_venue_equal_those_of_the_messages(tmp_path):
    rows = raw_rows(500)
    write_raw(tmp_path / "raw", rows)
    owners = InstrumentKeys(INSTRUMENTS).owners(batch_of(tmp_path / "raw"))
    for i, (_, type_id, _, payload) in enumerate(rows):
        if type_id == market.BOOK_EVENT:
            event = market.BookEvent.decode(payload)
            assert owners.native[i] == event.native_seq
            assert owners.venue_ns[i] == event.exchange_ts_ns
        elif type_id == market.TRADE_TICK:
            assert owners.native[i] == market.TradeTick.decode(payload).trade_id


def test_payloads_too_short_for_their_type_are_unknown(tmp_path):
    with tw.open_publisher(tmp_path / "q", segment_bytes=1 << 16) as writer:
        for size in (0, 5, 12, 13, 63):
            writer.append(market.BOOK_EVENT, b"\xff" * size)
        writer.append(market.TRADE_TICK, b"\xff" * 64)
    owners = InstrumentKeys(INSTRUMENTS).owners(batch_of(tmp_path / "q"))
    assert owners.market.tolist() == [-1] * 6
    assert sum(owners.unknown.values()) == 6


def test_without_instruments_all_are_unknown(tmp_path):
    write_raw(tmp_path / "raw", raw_rows(50))
    assert (InstrumentKeys([]).owners(batch_of(tmp_path / "raw")).market == -1).all()
