"""Importers of files: rows that the samples lack, imported into an archive."""

import collections
import json
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapewire import ingest
from tapewire.errors import CorruptSource, InvalidOption, TapewireError
from tapewire.ingest._parsers import message_length
from tapewire.ingest.channel_events import phase_flags
from tapewire.ingest.registry import importer_class
from tapewire.ingest.source import SourceFile
from tapewire.protocol.market import EventType, L3Flags, L3Type
from tests.support.archives import l3_book_of, records_of

L2_HEADER = "exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount\n"
ACME = b"ACME    "
T = 1_700_000_000_000_000


def write(tmp, name, text):
    path = tmp / name
    path.write_text(text)
    return path


def l2(tmp, *rows):
    text = "".join(f"x,{row}\n" for row in rows)
    summary = ingest.run("tardis", [write(tmp, "l2.csv", L2_HEADER + text)], tmp / "archive")
    return summary


def events(tmp, venue, symbol, stream="book"):
    """Without losses: some files here begin within a session, or have bad rows."""
    found = [record.decode() for record in records_of(tmp / "archive", venue, symbol, stream)]
    return [event for event in found if getattr(event, "loss", None) is None]


def book_of(tmp, venue, symbol):
    """The book after these events."""
    book = l3_book_of(tmp / "archive", venue, symbol)
    for event in events(tmp, venue, symbol):
        book.apply(event)
    return book


def test_rows_of_one_moment_are_one_event(tmp):
    l2(
        tmp,
        f"A,{T},{T},true,bid,1,1",
        f"A,{T},{T},true,ask,2,1",
        f"A,{T},{T + 1},false,bid,1,0",
        f"A,{T},{T + 1},false,bid,0.5,3",
        f"A,{T + 1},{T + 1},false,ask,2,5",
    )
    got = events(tmp, "x", "A")
    assert [event.event_type for event in got] == [
        EventType.SNAPSHOT,
        EventType.DIFF,
        EventType.DIFF,
    ]
    assert got[1].bids.tolist() == [(10**8, 0), (5 * 10**7, 3 * 10**8)]
    assert (got[2].ingest_ts_ns, got[2].exchange_ts_ns) == ((T + 1) * 1000, (T + 1) * 1000)


def test_a_run_of_snapshot_rows_resets_the_book_once(tmp):
    l2(
        tmp,
        f"A,{T},{T},true,bid,1,1",
        f"A,{T},{T + 1},true,bid,2,1",
        f"A,{T},{T + 2},false,bid,3,1",
        f"A,{T},{T + 3},true,bid,4,1",
    )
    assert [event.event_type for event in events(tmp, "x", "A")] == [
        EventType.SNAPSHOT,
        EventType.DIFF,
        EventType.DIFF,
        EventType.SNAPSHOT,
    ]


def test_symbols_in_one_file_go_to_their_own_logs(tmp):
    summary = l2(
        tmp,
        f"A,{T},{T},true,bid,1,1",
        f"XBT/USD,{T},{T},true,bid,7,1",
        f"A,{T},{T},true,ask,2,1",
    )
    assert [log.split("/")[2] for log in summary.logs] == ["A", "XBT-USD"]
    (event,) = events(tmp, "x", "A")
    assert (len(event.bids), len(event.asks)) == (1, 1)


def test_two_markets_with_one_directory_name_are_not_mixed(tmp):
    summary = l2(
        tmp,
        f"A/B,{T},{T},true,bid,1,1",
        f"A:B,{T},{T},true,bid,7,1",
    )
    (event,) = events(tmp, "x", "A-B")
    assert event.bids.tolist() == [(10**8, 10**8)]
    assert summary.bad == {"invalid name of a market, or the same name as another market": 1}


@pytest.mark.parametrize("symbol", ["..", ".", "恒盛", "a b", "a\\b", "*"])
def test_no_symbol_leads_out_of_the_archive(tmp, symbol):
    summary = l2(tmp, f"{symbol},{T},{T},true,bid,1,1")
    (log,) = summary.logs
    assert (tmp / "archive" / log).resolve().is_relative_to(tmp.resolve() / "archive" / "v1" / "x")


@pytest.mark.parametrize("symbol", ["A" * 65, "恒" * 8, "A" * 129, "A" * 1000])
def test_a_symbol_too_long_for_an_instrument_is_a_bad_row(tmp, symbol):
    """It does not end the import."""
    summary = l2(tmp, f"{symbol},{T},{T},true,bid,1,1", f"A,{T},{T},true,bid,1,1")
    assert (sum(summary.bad.values()), summary.records) == (1, 1)


def test_more_levels_than_a_diff_holds_are_split(tmp):
    rows = [f"A,{T},{T},{flag},bid,{i},1" for flag in ("true", "false") for i in range(1, 70_001)]
    l2(tmp, *rows)
    got = events(tmp, "x", "A")
    assert [(event.event_type, len(event.bids)) for event in got] == [
        (EventType.SNAPSHOT, 65_535),
        (EventType.DIFF, 4_465),
        (EventType.DIFF, 65_535),
        (EventType.DIFF, 4_465),
    ]
    assert len({event.ingest_ts_ns for event in got}) == 1


def test_a_value_that_does_not_fit_the_scale_is_a_bad_row(tmp):
    summary = l2(tmp, f"A,{T},{T},true,bid,0.123456789,1", f"A,{T},{T},true,bid,1,-1")
    assert summary.bad == {"more decimals than the scale has": 1, "an amount below zero": 1}
    first, second = map(json.loads, Path(summary.rejected).read_text().splitlines())
    assert (first["line"], first["detail"]) == (2, "price; import with a higher scale")
    assert (second["line"], second["text"]) == (3, f"x,A,{T},{T},true,bid,1,-1")
    assert not summary.logs


def test_quotes_have_zeros_where_a_side_is_empty(tmp):
    path = write(
        tmp,
        "quotes.csv",
        "exchange,symbol,timestamp,local_timestamp,ask_amount,ask_price,bid_price,bid_amount\n"
        f"x,A,{T},{T},1,2.5,2,3\nx,A,{T},{T},,,2,3\n",
    )
    ingest.run("tardis", [path], tmp / "archive", price_scale=1, size_scale=0)
    got = events(tmp, "x", "A", "quotes")
    assert [(q.bid_price, q.bid_size, q.ask_price, q.ask_size) for q in got] == [
        (20, 3, 25, 1),
        (20, 3, 0, 0),
    ]


def test_a_file_of_an_unknown_kind_names_the_missing_columns(tmp):
    with pytest.raises(CorruptSource, match="missing=amount of incremental_book_L2"):
        ingest.run(
            "tardis", [write(tmp, "x.csv", L2_HEADER.replace(",amount", ""))], tmp / "archive"
        )


SZSE_ORDERS = "code,time,price,volume,order_kind,function_code,channel,order_index\n"
SZSE_TRADES = "code,time,price,volume,bid_order,ask_order,function_code,channel,trade_index\n"


def szse(tmp, orders, trades, **options):
    files = [
        write(tmp, "o.csv", SZSE_ORDERS + "".join(f"000001,{row}\n" for row in orders)),
        write(tmp, "t.csv", SZSE_TRADES + "".join(f"000001,{row}\n" for row in trades)),
    ]
    return ingest.run("szse", files, tmp / "archive", date="2024-01-02", **options)


def test_a_missing_day_is_asked_for(tmp):
    with pytest.raises(InvalidOption, match="give date"):
        ingest.run("szse", [write(tmp, "o.csv", SZSE_ORDERS)], tmp / "archive")


def test_market_orders_and_cancels_of_shenzhen(tmp):
    summary = szse(
        tmp,
        [
            "09:30:00.000,10.5,100,50,49,1,1",
            "09:30:00.000,-1,100,49,50,1,2",
            "09:30:01.000,0,100,85,49,1,3",
            "09:30:01.000,1,1,51,49,1,9",
        ],
        [
            "09:30:02.000,0,100,1,0,52,1,4",
            "09:30:02.000,0,100,1,3,52,1,5",
            "09:30:02.000,10,1,1,0,70,1,6",
        ],
    )
    assert summary.bad == {
        "unknown order_kind": 1,
        "bid_order and ask_order do not match function_code": 2,
    }
    orders = [event.order for event in events(tmp, "szse", "000001")]
    assert [order.event_type for order in orders] == [*[L3Type.ADD] * 3, L3Type.CANCEL]
    market = [bool(order.flags & L3Flags.PRICE_IS_MARKET) for order in orders]
    assert market == [False, True, True, False]
    assert chr(orders[2].ord_type) == "U"
    assert (orders[3].order_id, orders[3].qty) == (1, 10_000)


def test_files_out_of_order_are_sorted_and_a_number_counts_once(tmp):
    order = "09:30:00.000,10,100,50,49,1,{}".format
    summary = szse(tmp, [order(3), order(1), order(3)], ["09:30:02.000,0,100,1,0,52,1,2"])
    assert [event.native_seq for event in events(tmp, "szse", "000001")] == [1, 2, 3]
    assert summary.skipped == {"duplicate number": 1}


def test_days_given_together_stay_separate(tmp):
    """Numbers restart each day: they must neither be merged nor taken for duplicates."""
    order = "000001,09:30:00.000,{},100,50,49,1,{}\n".format
    files = [
        write(tmp, "o_20240103.csv", SZSE_ORDERS + order(7, 1) + order(8, 2)),
        write(tmp, "o_20240102.csv", SZSE_ORDERS + order(5, 1) + order(6, 2)),
        write(tmp, "t_20240103.csv", SZSE_TRADES + "000001,09:31:00.000,0,100,2,0,52,1,3\n"),
    ]
    summary = ingest.run("szse", files, tmp / "archive", check_gaps=True)
    assert (summary.skipped, summary.gaps) == ({}, 0)
    assert [log.split("/")[3] for log in summary.logs] == ["2024-01-02", "2024-01-03"]
    got = [(event.native_seq, event.order.price) for event in events(tmp, "szse", "000001")]
    assert got == [(1, 50_000), (2, 60_000), (0, 0), (1, 70_000), (2, 80_000), (3, 0)]
    book = book_of(tmp, "szse", "000001")
    assert book.bids().tolist() == [(70_000, 10_000, 1)], "nothing of the day before"


def test_a_number_missing_in_a_complete_channel_is_a_gap_if_asked_for(tmp):
    order = "09:30:00.000,10,100,50,49,1,{}".format
    summary = szse(tmp, [order(1), order(4)], [], check_gaps=True)
    assert summary.gaps == 1
    from tapewire.book.gaps import GapLedger

    (log,) = summary.logs
    (gap,) = GapLedger(tmp / "archive" / log).read()
    assert (gap.first, gap.last, gap.seq) == (2, 3, 1)


SSE_ORDERS = (
    "MDDate,MDTime,SecurityID,ChannelNo,ApplSeqNum,BizIndex,OrderType,OrderPrice,OrderQty,"
    "OrderBSFlag,OrderNO\n"
)


def test_a_row_without_the_number_that_the_file_uses_is_a_bad_row(tmp):
    """The rows next to it must not be ordered by another number."""
    row = "20240102,09:30:00.000,600000.SH,1,{},{},A,10,100,B,{}\n".format
    text = SSE_ORDERS + row(30, 1, 1) + row(20, 2, 2) + row(10, "", 3) + row(5, 4, 4)
    summary = ingest.run("sse", [write(tmp, "orders.csv", text)], tmp / "archive")
    assert sum(summary.bad.values()) == 1
    assert [event.native_seq for event in events(tmp, "sse", "600000")] == [1, 2, 4]


@pytest.mark.parametrize(
    ("clock", "kind", "want"),
    [
        ("09:15", L3Type.ADD, L3Flags.OPENING_AUCTION),
        ("09:19", L3Type.CANCEL, L3Flags.OPENING_AUCTION),
        ("09:20", L3Type.CANCEL, L3Flags.OPENING_AUCTION | L3Flags.RESTRICTED_CANCEL),
        ("09:25", L3Type.TRADE, L3Flags.OPENING_AUCTION),
        ("09:30", L3Type.CANCEL, 0),
        ("14:56", L3Type.ADD, 0),
        ("14:57", L3Type.CANCEL, L3Flags.CLOSING_AUCTION | L3Flags.RESTRICTED_CANCEL),
        ("15:00", L3Type.TRADE, L3Flags.CLOSING_AUCTION),
        ("15:05", L3Type.TRADE, 0),
    ],
)
def test_phases_of_a_day(clock, kind, want):
    import numpy as np

    hours, minutes = map(int, clock.split(":"))
    ns = np.array([(hours * 60 + minutes) * 60 * 10**9])
    assert phase_flags(np.array([kind]), ns)[0] == want


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("tardis", {}),
        ("sse", {}),
        ("szse", {}),
        ("itch", {"date": "2024-07-01"}),
        ("lobster", {}),
        ("dbn", {}),
    ],
)
def test_keep_wire_is_refused_for_files_without_messages(tmp, format, options):
    with pytest.raises(InvalidOption, match="keep the files themselves"):
        ingest.run(format, [write(tmp, "x", "x")], tmp / "a", keep_wire=True, **options)


@pytest.mark.parametrize(
    ("format", "option"),
    [
        ("itch", {}),
        ("itch", {"date": "2024-07-01", "lengths": "guess"}),
        ("itch", {"date": "1066-10-14"}),
        ("itch", {"date": "2024-07-01", "price_scale": 2}),
        ("itch", {"date": "2024-07-01", "size_scale": 10}),
        ("szse", {"date": "today"}),
        ("sse", {"clock": "mine"}),
    ],
)
def test_invalid_options_are_refused(tmp, format, option):
    with pytest.raises(InvalidOption):
        ingest.run(format, [write(tmp, "x", "x")], tmp / "a", **option)


def test_the_archives_own_scale_is_kept(tmp):
    l2(tmp, f"A,{T},{T},true,bid,1,1")
    other = write(tmp, "other.csv", L2_HEADER + f"x,A,{T},{T},true,bid,2,1\n")
    with pytest.raises(InvalidOption, match="import with price_scale=8"):
        ingest.run("tardis", [other], tmp / "archive", price_scale=2)


LENGTHS = dict(
    zip(
        "SRHYLVWKJhAFECXDUPQBINO",
        (
            12,
            39,
            25,
            20,
            26,
            35,
            12,
            28,
            35,
            21,
            36,
            40,
            31,
            36,
            23,
            19,
            35,
            44,
            40,
            19,
            50,
            20,
            48,
        ),
        strict=True,
    )
)


@pytest.mark.parametrize("kind", [chr(code) for code in range(256)])
def test_lengths_are_those_of_the_specification(kind):
    assert message_length(kind) == LENGTHS.get(kind, 0)


def itch(tmp, *messages, **options):
    path = tmp / "day.itch"
    path.write_bytes(b"".join(struct.pack(">H", len(m)) + m for m in messages))
    return ingest.run("itch", [path], tmp / "archive", date="2024-07-01", **options)


def message(kind, body, seconds=36_000):
    return kind + struct.pack(">HH", 1, 0) + (seconds * 10**9).to_bytes(6, "big") + body


def add(order_id, side=b"B", size=100, price=10_000):
    return message(
        b"A", struct.pack(">Q", order_id) + side + struct.pack(">I8sI", size, ACME, price)
    )


def test_orders_of_itch_reach_the_book(tmp):
    itch(
        tmp,
        add(1),
        add(2, b"S", 50, 10_100),
        message(b"E", struct.pack(">QIQ", 1, 30, 7)),
        message(b"C", struct.pack(">QIQ", 1, 10, 8) + b"N" + struct.pack(">I", 9_990)),
        message(b"X", struct.pack(">QI", 1, 5)),
        message(b"U", struct.pack(">QQII", 2, 3, 40, 10_200)),
        message(b"P", struct.pack(">Q", 0) + b"S" + struct.pack(">I8sIQ", 9, ACME, 10_050, 9)),
        message(b"Q", struct.pack(">Q8sIQ", 500, ACME, 10_000, 10) + b"C"),
    )
    book = book_of(tmp, "nasdaq", "ACME")
    assert book.bids().tolist() == [(10_000, 55, 1)]
    assert book.asks().tolist() == [(10_200, 40, 1)]
    ticks = events(tmp, "nasdaq", "ACME", "trades")
    assert [(t.price, t.size, t.trade_id, t.is_buyer_maker) for t in ticks] == [
        (10_000, 30, 7, 1),
        (10_050, 9, 9, 0),
        (10_000, 500, 10, 2),
    ]
    assert ticks[0].timestamp_ns == (1_719_806_400 + 36_000) * 10**9  # UTC-4 in summer


def test_messages_with_a_wrong_length_are_bad_rows_and_the_next_one_is_found(tmp):
    summary = itch(tmp, add(1), add(2)[:-1], add(3) + b"x", b"z123", add(4), add(5, b"?"))
    assert summary.bad == {
        "wrong length for its type": 2,
        "unknown message type": 1,
        "neither a buy nor a sell": 1,
    }
    assert [event.order.order_id for event in events(tmp, "nasdaq", "ACME")] == [1, 4]


def test_an_order_with_the_number_of_a_resting_order_is_a_bad_row(tmp):
    """Its executions would be ambiguous."""
    summary = itch(
        tmp,
        add(1),
        add(2),
        add(1, b"S", 50, 20_000),
        message(b"U", struct.pack(">QQII", 2, 1, 40, 10_200)),
        message(b"U", struct.pack(">QQII", 2, 2, 40, 10_200)),
        message(b"E", struct.pack(">QIQ", 1, 100, 7)),
        add(1, b"S", 50, 20_000),
    )
    assert summary.bad == {"the number of another resting order": 2}
    book = book_of(tmp, "nasdaq", "ACME")
    assert book.bids().tolist() == [(10_200, 40, 1)]
    assert book.asks().tolist() == [(20_000, 50, 1)]
    (trade,) = events(tmp, "nasdaq", "ACME", "trades")
    assert (trade.price, trade.is_buyer_maker) == (10_000, 1)


def test_orders_end_with_their_session(tmp):
    for name, one in (("1.itch", add(1)), ("2.itch", add(1, price=20_000))):
        (tmp / name).write_bytes(struct.pack(">H", len(one)) + one)
    files = [tmp / "1.itch", tmp / "2.itch"]
    ingest.run("itch", files, tmp / "archive", date="2024-07-01")
    book = book_of(tmp, "nasdaq", "ACME")
    assert book.bids().tolist() == [(20_000, 100, 1)]


class Looked:
    """A report that counts."""

    def __init__(self):
        self.rows = 0
        self.kept = 0
        self.skipped = collections.Counter()

    def bad(self, file, line, text, why, detail="", *, symbol=None, of_book=True):
        self.kept += 1

    def instrument(self, instrument):
        return instrument

    def gap(self, gap):
        pass


EXTREMES = st.sampled_from(
    [
        "0",
        "1",
        "-1",
        "2",
        "10",
        "50",
        "49",
        "52",
        "70",
        "9223372036854775807",
        "-9223372036854775808",
        "1e300",
        "1e-300",
        "nan",
        "true",
        "false",
        "bid",
        "buy",
        "09:30:00.000",
        "23:59:59.999999999",
        "2023.07.11",
        "1970.01.01",
        "1970.01.01T00:00:00",
        "A",
        "B",
        "N",
        "../x",
    ]
)
HEADERS = {
    "tardis": [L2_HEADER, "exchange,symbol,timestamp,local_timestamp,id,side,price,amount\n"],
    "szse": [SZSE_ORDERS, SZSE_TRADES],
    "sse": [
        "MDDate,MDTime,SecurityID,ChannelNo,ApplSeqNum,ReceiveDateTime,OrderType,OrderPrice,OrderQty,"
        "OrderBSFlag,OrderNO\n",
        "MDDate,MDTime,SecurityID,ChannelNo,ApplSeqNum,TradeBuyNo,TradeSellNo,TradeBSFlag,TradePrice,"
        "TradeQty\n",
        "MsgType=1\n",
    ],
    "itch": [""],
    "lobster": ["34200.5,1,7,100,1000000,1\n"],
    "dbn": ["DBN"],
}
PAIRS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "MsgType",
                "SecurityID",
                "ChannelNo",
                "BizIndex",
                "OrderNo",
                "Price",
                "OrderQty",
                "OrdType",
                "Side",
                "TransactTime",
                "BidApplSeqNum",
                "OfferApplSeqNum",
                "LastPx",
                "LastQty",
                "ExecType",
                "DataTimeStamp",
                "NumTrades",
                "BidLevel[0].Price",
                "BidLevel[0].Qty",
            ]
        ),
        EXTREMES | st.sampled_from(["192", "191", "111", "65", "66", "9300000", "93000"]),
    ).map("=".join),
    max_size=18,
).map(" ".join)
ROWS = st.lists(EXTREMES, min_size=6, max_size=11).map(",".join) | PAIRS
TEXT = st.lists((ROWS.map(str.encode)) | st.binary(max_size=60), max_size=6).map(b"\n".join)


@pytest.mark.parametrize("format", HEADERS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_arbitrary_files_give_records_bad_rows_or_a_typed_error(format, data):
    header = data.draw(st.sampled_from([*HEADERS[format], ""])).encode()
    cls = importer_class(format)
    options = {} if format in ("tardis", "dbn") else {"date": "2023-02-07"}
    if format == "lobster":
        options["ticker"] = "A"
    report = Looked()
    records = 0
    with tempfile.NamedTemporaryFile() as file:
        file.write(header + data.draw(TEXT))
        file.flush()
        try:
            for chunk in cls(cls.Options(**options)).chunks([SourceFile(file.name)], report):
                records += len(chunk)
                assert min(chunk.timestamps_ns) >= 0
                assert len(chunk.payloads) == len(chunk)
        except TapewireError as error:
            assert str(error)  # noqa: PT017 - both are valid outcomes
    assert report.rows >= report.kept
