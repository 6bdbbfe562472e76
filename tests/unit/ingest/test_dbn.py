"""Databento's files: written by its own library, read through an archive."""

import datetime as dt
import json
from pathlib import Path

import pytest

from tapewire import ingest
from tapewire.book.gaps import GapLedger
from tapewire.errors import CorruptSource, InvalidName, InvalidOption
from tapewire.protocol.market import EventType, L3Type, Maker, Side
from tests.support.archives import l3_book_of, records_of
from tests.support.dbn_files import DAY, LAST, NANO, T, header, library, mapping, mbo, priced

VENUE = "xnas.itch"


def run(tmp, *parts, name="day.dbn", **options):
    (tmp / name).write_bytes(b"".join(parts))
    return ingest.run("dbn", [tmp / name], tmp / "archive", **options)


def events(tmp, stream="book", symbol="ACME", venue=VENUE):
    """Without losses: most files here begin without a clear, so their books are untrusted."""
    found = [record.decode() for record in records_of(tmp / "archive", venue, symbol, stream)]
    return [event for event in found if getattr(event, "loss", None) is None]


def book_at_end(tmp, symbol="ACME", **options):
    book = l3_book_of(tmp / "archive", VENUE, symbol, **options)
    for record in records_of(tmp / "archive", VENUE, symbol, "book"):
        if record.decode().loss is None:
            book.apply(record)
    return book


def reasons(summary):
    return [json.loads(line)["why"] for line in Path(summary.rejected).read_text().splitlines()]


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("live", [False, True])
def test_orders_of_every_version_reach_the_book(tmp, version, live):
    sent = {"ts_out": T + 5} if live else {}
    summary = run(
        tmp,
        header(version=version, ts_out=live),
        mbo("R", **sent),
        mbo("A", 1, "B", 10.25, 100, sequence=11, ts_event=T - 9, **sent),
        mbo("A", 2, "A", 10.5, 50, **sent),
        mbo("A", 3, "A", 10.75, 70, **sent),
        mbo("C", 1, "B", 10.25, 30, **sent),
        mbo("M", 2, "A", 10.6, 80, **sent),
        mbo("C", 3, "A", 10.75, 70, **sent),
    )
    assert (summary.rows, summary.bad, summary.skipped) == (7, {}, {})
    got = events(tmp)
    assert [event.order.event_type for event in got] == [
        L3Type.RESET,
        *[L3Type.ADD] * 3,
        L3Type.CANCEL,
        L3Type.MODIFY,
        L3Type.CANCEL,
    ]
    first = got[1]
    assert (first.ingest_ts_ns, first.exchange_ts_ns, first.native_seq) == (T, T - 9, 11)
    book = book_at_end(tmp, unknown="raise")
    assert book.bids().tolist() == [(10_250_000_000, 70, 1)]
    assert book.asks().tolist() == [(10_600_000_000, 80, 1)]


def test_a_fill_counts_once_by_its_cancel_and_its_trade(tmp):
    summary = run(
        tmp,
        header(),
        mbo("A", 1, "B", 10, 100),
        mbo("T", 0, "A", 10, 40, flags=0, sequence=5),
        mbo("F", 1, "B", 10, 40, flags=0),
        mbo("C", 1, "B", 10, 40),
        mbo("T", 0, "B", 11, 3),
        mbo("T", 0, "N", 12, 4),
        mbo("N"),
    )
    assert summary.skipped == {"fill, beside its cancel": 1, "record without an action": 1}
    assert book_at_end(tmp).bids().tolist() == [(10 * NANO, 60, 1)]
    got = [(t.price, t.size, t.is_buyer_maker, t.trade_id) for t in events(tmp, "trades")]
    assert got == [
        (10 * NANO, 40, Maker.BUYER, 5),  # a seller took what a buyer had shown
        (11 * NANO, 3, Maker.SELLER, 0),
        (12 * NANO, 4, Maker.UNKNOWN, 0),
    ]


def test_a_snapshot_clears_the_book_and_fills_it(tmp):
    run(
        tmp,
        header(),
        mbo("A", 1, "B", 10, 100),
        mbo("R", flags=0x28),
        mbo("A", 5, "B", 9, 5, flags=0x28),
        mbo("A", 6, "A", 11, 6, flags=0x28 | LAST),
    )
    assert [e.event_type for e in events(tmp)].count(EventType.RESET) == 2
    book = book_at_end(tmp)
    assert (book.bids().tolist(), book.asks().tolist()) == (
        [(9 * NANO, 5, 1)],
        [(11 * NANO, 6, 1)],
    )


def test_a_file_begins_with_an_empty_book(tmp):
    later = DAY + dt.timedelta(1)
    names = [mapping("ACME", 7), mapping("ACME", 7, later)]
    for name, order, ts in (("1.dbn", 1, T), ("2.dbn", 2, T + 86_400 * NANO)):
        record = mbo("A", order, "B", order, 5, ts_recv=ts, ts_event=ts)
        run(tmp, header(mappings=names), record, name=name)
    assert [event.order.event_type for event in events(tmp)] == [L3Type.RESET, L3Type.ADD] * 2
    assert book_at_end(tmp).bids().tolist() == [(2 * NANO, 5, 1)]


def test_records_of_levels_are_not_orders(tmp):
    summary = run(
        tmp, header(), mbo("A", 1, "B", 10, 100, flags=0x40), mbo("A", 2, "B", 9, 1, flags=0x10)
    )
    assert summary.skipped == {"of a level, not an order": 2}
    assert summary.records == 0


def test_a_loss_reported_in_the_file_is_one_gap(tmp):
    doubt = {"flags": LAST | 4}
    summary = run(
        tmp,
        header(),
        mbo("R"),
        mbo("A", 1, "B", 10, 100),
        mbo("A", 2, "B", 10, 100, **doubt),
        mbo("A", 3, "B", 10, 100, **doubt),
    )
    assert summary.gaps == 1
    (gap,) = GapLedger(tmp / "archive" / f"v1/{VENUE}/ACME/{DAY}/book").read()
    assert (gap.seq, gap.timestamp_ns) == (2, T)
    assert len(events(tmp)) == 4


def test_a_loss_reported_after_a_clear_is_another_gap(tmp):
    doubt = {"flags": LAST | 4}
    summary = run(
        tmp,
        header(),
        mbo("R"),
        mbo("A", 1, "B", 10, 100, **doubt),
        mbo("R"),
        mbo("A", 2, "B", 10, 100),
        mbo("A", 3, "B", 10, 100, **doubt),
    )
    assert summary.gaps == 2
    assert list(summary.untrusted) == [f"{VENUE}/ACME/book"]


def test_prices_are_exact_at_the_scale_or_bad_rows(tmp):
    summary = run(
        tmp,
        header(),
        mbo("A", 1, "B", 10.25, 1),
        mbo("A", 2, "B", 10.255, 1),
        mbo("A", 3, "B", None, 1),
        mbo("T", 0, "B", 1.001, 1),
        mbo("C", 1, "B", 10.255, 1),  # the price of a cancel does not matter
        price_scale=2,
        size_scale=1,
    )
    assert summary.bad == {"a price that does not fit the scale": 2, "no price": 1}
    orders = [event.order for event in events(tmp)]
    assert [(o.order_id, o.price, o.qty) for o in orders[1:2]] == [(1, 1_025, 10)]
    assert len(orders) == 3


def test_a_scale_of_more_than_nine_decimals_imports_what_fits(tmp):
    summary = run(tmp, header(), mbo("A", 1, "B", 1, 1), mbo("A", 2, "B", 10**9, 1), price_scale=18)
    assert summary.bad == {"a price that does not fit the scale": 1}
    assert events(tmp)[1].order.price == 10**18


def test_invalid_rows_are_bad_rows(tmp):
    summary = run(
        tmp,
        header(),
        mbo("A", 1, "N", 10, 1),
        mbo("A", 1, "B", 10, 0),
        mbo("C", 1, "B", 10, 0),
        mbo("T", 0, "B", 10, 0),
        mbo("A", 1, "B", 10, 1, ts_recv=2**64 - 1),
        mbo("A", 9, "B", 10, 1, ts_event=2**64 - 1),
    )
    assert sorted(reasons(summary)) == [
        "neither a buy nor a sell",
        "no time of receipt",
        "size is zero",
        "size is zero",
        "size of a trade is zero",
    ]
    assert [(e.order.order_id, e.exchange_ts_ns) for e in events(tmp)[1:]] == [(9, T)]


def test_symbols_are_those_of_their_day(tmp):
    """A continuous future: one name, another instrument from the second day on."""
    day = dt.timedelta(1)
    names = [
        mapping("ES.c.0", 7, DAY),
        mapping("ES.c.0", 8, DAY + day),
    ]
    next_day = T + 86_400 * NANO
    run(
        tmp,
        header(mappings=names),
        mbo("A", 1, "B", 10, 1, instrument_id=7),
        mbo("A", 1, "B", 20, 1, instrument_id=8, ts_recv=next_day),
        mbo("A", 2, "B", 30, 1, instrument_id=7, ts_recv=next_day),
    )
    assert book_at_end(tmp, "ES.c.0").bids().tolist() == [(20 * NANO, 1, 1)]
    assert book_at_end(tmp, "7").bids().tolist() == [(30 * NANO, 1, 1)], "not named that day"


def test_instruments_that_share_a_name_get_separate_logs(tmp):
    names = [mapping("ES.FUT", 7), mapping("ES.FUT", 8), mapping("X", 9)]
    run(
        tmp,
        header(mappings=names),
        *(mbo("A", 1, "B", 10, 1, instrument_id=number) for number in (7, 8, 9)),
    )
    assert all(len(events(tmp, symbol=s)) == 2 for s in ("ES.FUT.7", "ES.FUT.8", "X"))


def test_instrument_numbers_that_were_asked_for_get_their_names(tmp):
    dbn = library()
    by_number = mapping("7", "ACME")
    stypes = {"stype_in": dbn.SType.INSTRUMENT_ID, "stype_out": dbn.SType.RAW_SYMBOL}
    run(tmp, header(mappings=[by_number], **stypes), mbo("A", 1, "B", 10, 1))
    assert len(events(tmp)) == 2


@pytest.mark.parametrize("version", [1, 3])
def test_a_live_session_names_its_instruments_between_records(tmp, version):
    dbn = library()
    if version == 1:
        named = dbn.SymbolMappingMsgV1(2, 7, T, "ACME", "ACME", T, T)
    else:
        raw = dbn.SType.RAW_SYMBOL
        named = dbn.SymbolMappingMsg(2, 7, T, raw, "ACME", raw, "ACME", T, T)
    summary = run(
        tmp,
        header(None, mappings=(), version=version, stype_in=None),
        mbo("A", 1, "B", 10, 1),
        bytes(named),
        mbo("A", 1, "B", 10, 1),
    )
    assert summary.skipped == {"symbol mapping": 1}
    assert (len(events(tmp)), len(events(tmp, symbol="7"))) == (2, 2)


def test_other_records_are_counted_and_skipped(tmp):
    dbn = library()
    bar = dbn.OHLCVMsg(dbn.RType.OHLCV_1S, 2, 7, T, 1, 1, 1, 1, 1)
    summary = run(
        tmp,
        header(None),
        mbo("A", 1, "B", 10, 1),
        bytes(dbn.SystemMsg(T, "heartbeat")),
        bytes(bar) * 3,
        mbo("A", 2, "B", 10, 1),
    )
    assert summary.skipped == {"system message": 1, "bar": 3}
    assert len(events(tmp)) == 3


def test_records_of_a_second_publisher_are_bad_rows_or_a_separate_venue(tmp):
    parts = [
        header(),
        mbo("A", 1, "B", 10, 1),
        mbo("A", 1, "B", 20, 1, publisher_id=3),
        mbo("A", 2, "B", 10, 1),
        mbo("A", 3, "B", 10, 1, publisher_id=3, ts_recv=T + 86_400 * NANO),
    ]
    summary = run(tmp, *parts)
    assert summary.bad == {"another publisher than the instrument's first": 2}
    assert summary.skipped == {}
    assert len(events(tmp)) == 3
    (tmp / "archive").rename(tmp / "before")
    assert run(tmp, *parts, by_publisher=True).bad == {}
    assert [len(events(tmp, venue=f"{VENUE}-{n}")) for n in (2, 3)] == [3, 2]


def test_only_the_symbols_asked_for_and_the_venue_named(tmp):
    summary = run(
        tmp,
        header(mappings=[("ACME", 7), ("B", 8)]),
        mbo("A", 1, "B", 10, 1),
        mbo("A", 1, "B", 10, 1, instrument_id=8),
        symbols=["B"],
        venue="nasdaq",
    )
    assert summary.skipped == {"another symbol": 1}
    assert list(summary.logs) == [f"v1/nasdaq/B/{DAY}/book"]


def test_trades(tmp):
    run(tmp, header("TRADES"), *(priced("TradeMsg", side=s, sequence=4) for s in "ABN"))
    got = events(tmp, "trades")
    assert [(t.price, t.size, t.is_buyer_maker, t.trade_id) for t in got] == [
        (10 * NANO, 1, maker, 4) for maker in (Maker.BUYER, Maker.SELLER, Maker.UNKNOWN)
    ]


@pytest.mark.parametrize(("kind", "depth"), [("MBP1Msg", 1), ("MBP10Msg", 10)])
def test_levels_are_snapshots_of_the_nonempty_ones(tmp, kind, depth):
    full = [(10 - i, 5 + i, 11 + i, 7 + i) for i in range(depth)]
    run(
        tmp,
        header(f"MBP_{depth}"),
        priced(kind, "A", "B", levels=full, sequence=3, ts_event=T - 1),
        priced(kind, "R", "N", price=None, ts_recv=T + 1),
    )
    first, second = events(tmp, f"book_snapshot_{depth}")
    assert first.event_type == second.event_type == EventType.SNAPSHOT
    assert first.bids.tolist() == [((10 - i) * NANO, 5 + i) for i in range(depth)]
    assert first.asks.tolist() == [((11 + i) * NANO, 7 + i) for i in range(depth)]
    assert (first.ingest_ts_ns, first.exchange_ts_ns, first.native_seq) == (T, T - 1, 3)
    assert (len(second.bids), len(second.asks)) == (0, 0)


def test_the_last_record_of_an_event_is_the_book(tmp):
    def level(size, **others):
        return priced("MBP1Msg", "A", "B", levels=[(10, size, 11, 1)], **others)

    summary = run(
        tmp,
        header("MBP_1"),
        level(1, flags=0),
        level(2, flags=0),
        level(3),
        level(4, flags=0, ts_recv=T + 1),  # its event's last record changed no level of these
        level(5, ts_recv=T + 2),
        level(6, flags=0, ts_recv=T + 3),
    )
    assert [e.bids.tolist()[0][1] for e in events(tmp, "book_snapshot_1")] == [3, 4, 5, 6]
    assert summary.skipped == {"within an event": 2}


def test_an_event_is_one_snapshot_wherever_the_file_is_cut_into_pieces(tmp, monkeypatch):
    from tapewire.ingest.formats import dbn_format

    def pieces(source):
        content = source.path.read_bytes()
        yield from (content[at : at + 50] for at in range(0, len(content), 50))
        yield b""

    monkeypatch.setattr(dbn_format, "pieces", pieces)
    parts = [
        priced("MBP1Msg", "A", "B", levels=[(10, 1 + i, 11, 1)], flags=0, ts_recv=T + i // 3)
        for i in range(9)
    ]
    summary = run(tmp, header("MBP_1"), *parts)
    assert [e.bids.tolist()[0][1] for e in events(tmp, "book_snapshot_1")] == [3, 6, 9]
    assert summary.skipped == {"within an event": 6}


def test_the_last_event_of_a_truncated_file_is_imported(tmp):
    parts = [header("MBP_1"), priced("MBP1Msg", "A", "B", levels=[(10, 1, 11, 1)], flags=0)]
    with pytest.raises(CorruptSource):
        run(tmp, *parts, b"\x14\x01")
    assert len(events(tmp, "book_snapshot_1")) == 1


def test_trades_among_levels_and_orders_can_be_left_to_their_own_file(tmp):
    parts = [header("MBP_1"), priced("MBP1Msg", levels=[(10, 1, 11, 1)])]
    assert set(run(tmp, *parts).logs) == {
        f"v1/{VENUE}/ACME/{DAY}/{stream}" for stream in ("book_snapshot_1", "trades")
    }
    (tmp / "archive").rename(tmp / "before")
    assert list(run(tmp, *parts, trades=False).logs) == [f"v1/{VENUE}/ACME/{DAY}/book_snapshot_1"]


def test_quotes_before_trades_are_trades(tmp):
    summary = run(tmp, header("TBBO"), priced("MBP1Msg", levels=[(10, 1, 11, 1)]), trades=False)
    assert list(summary.logs) == [f"v1/{VENUE}/ACME/{DAY}/trades"]


def test_a_level_that_does_not_fit_the_scale_makes_a_bad_row(tmp):
    summary = run(
        tmp,
        header("MBP_1"),
        priced("MBP1Msg", "A", "B", levels=[(10.001, 1, 11, 1)]),
        price_scale=2,
    )
    assert summary.bad == {"a price that does not fit the scale": 1}


def test_a_repeated_import_changes_nothing(tmp):
    parts = [header(), mbo("A", 1, "B", 10, 1)]
    run(tmp, *parts)
    assert ingest.run("dbn", [tmp / "day.dbn"], tmp / "archive").already


def test_an_order_is_the_same_in_the_library_and_by_hand():
    """The hand-made files of other tests depend on this."""
    from tests.support.dbn_files import plain_mbo

    by_library = bytearray(mbo("A", 1, "B", 10, 1, sequence=1, channel_id=0))
    assert plain_mbo() == bytes(by_library)


def test_sides_are_those_of_the_orders(tmp):
    run(tmp, header(), mbo("A", 1, "B", 10, 1), mbo("A", 2, "A", 11, 1))
    assert [e.order.side for e in events(tmp)[1:]] == [Side.BUY, Side.SELL]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"venue": "../x"}, InvalidName),
        ({"size_scale": 10}, InvalidOption),
        ({"keep_wire": True}, InvalidOption),
    ],
)
def test_invalid_options_are_refused(tmp, options, error):
    with pytest.raises(error):
        run(tmp, b"", **options)
