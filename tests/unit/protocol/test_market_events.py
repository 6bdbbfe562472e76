"""Book events: the encoders write the documented bytes, and invalid events are named."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapewire as tw
from tapewire.protocol import market
from tapewire.protocol.instruments import Instrument
from tests.support import market_format as page

MARKET = Instrument("venue", "SYM", price_scale=2, size_scale=3, venue_id=3, market_id=70_000)
HEAD = {"exchange_ns": 900, "stream_id": 4}
BIDS, ASKS = [(10, 1), (-9, 0)], [(11, 2**63 - 1)]

i64 = st.integers(-(2**63), 2**63 - 1)
u64 = st.integers(0, 2**64 - 1)
sides = st.lists(st.tuples(i64, i64), max_size=5)


def array(levels):
    return np.array(levels, np.int64).reshape(-1, 2)


def structured(levels):
    return np.array(levels, market.LEVEL_DTYPE)


@pytest.mark.parametrize(
    "given_as", [list, tuple, iter, array, structured], ids=lambda f: f.__name__
)
def test_a_diff_has_the_documented_bytes(given_as):
    made = market.l2_diff(
        MARKET, 1_000, bids=given_as(BIDS), asks=given_as(ASKS), first=7, last=9, prev=6, **HEAD
    )
    assert made == page.diff(BIDS, ASKS)


def test_a_diff_of_deltas_has_its_flag():
    made = market.l2_diff(MARKET, 1_000, first=7, last=9, prev=6, delta=True, **HEAD)
    assert made == page.header(page.diff([], [])[64:], flags=2 | 4)
    assert market.BookEvent.decode(made).delta


def test_a_snapshot_has_the_documented_bytes():
    made = market.l2_snapshot(MARKET, 1_000, bids=BIDS, asks=ASKS, native_seq=9, **HEAD)
    assert made == page.snapshot(BIDS, ASKS)
    assert market.BookEvent.decode(made).update_last == 9


def test_an_order_has_the_documented_bytes():
    made = market.l3_event(
        MARKET,
        1_000,
        type=market.L3Type.TRADE,
        side=market.Side.SELL,
        order_id=5,
        bid_order_id=6,
        price=-7,
        qty=8,
        amt=9,
        ord_type=ord("2"),
        exec_type=ord("F"),
        flags=market.L3Flags.OPENING_AUCTION,
        native_seq=9,
        **HEAD,
    )
    assert made == page.order(
        event_type=4,
        side=2,
        order_id=5,
        bid_order_id=6,
        price=-7,
        qty=8,
        amt=9,
        ord_type=ord("2"),
        exec_type=ord("F"),
        flags=2 | 16,
    )
    assert market.BookEvent.decode(made).order.amt == 9


def test_the_ids_of_both_sides_set_their_flags():
    made = market.l3_event(MARKET, 1, type=4, bid_order_id=1, ask_order_id=2)
    assert (
        market.BookEvent.decode(made).order.flags == market.L3Flags.HAS_BID | market.L3Flags.HAS_ASK
    )


@pytest.mark.parametrize(("encode", "event_type"), [(market.reset, 3), (market.heartbeat, 4)])
@pytest.mark.parametrize("mode", market.BookMode)
def test_a_reset_and_a_heartbeat_are_a_header(encode, event_type, mode):
    made = encode(MARKET, 1_000, book_mode=mode, native_seq=9, **HEAD)
    assert made == page.header(b"", event_type=event_type, book_mode=mode, flags=0)
    assert market.BookEvent.decode(made).event_type == event_type


@settings(max_examples=100, deadline=None)
@given(bids=sides, asks=sides, ids=st.tuples(u64, u64, u64), delta=st.booleans(), seq=u64)
def test_any_diff_is_decoded_as_it_was_encoded(bids, asks, ids, delta, seq):
    first, last, prev = ids
    event = market.BookEvent.decode(
        market.l2_diff(
            MARKET,
            5,
            bids=bids,
            asks=asks,
            first=first,
            last=last,
            prev=prev,
            native_seq=seq,
            delta=delta,
        )
    )
    assert (event.update_first, event.update_last, event.update_prev) == ids
    assert event.bids.tolist() == bids
    assert event.asks.tolist() == asks
    assert (event.native_seq, event.delta, event.ingest_ts_ns) == (seq, delta, 5)
    assert (event.price_scale, event.size_scale, event.venue_id) == (2, 3, 3)


@settings(max_examples=100, deadline=None)
@given(values=st.tuples(u64, u64, u64, i64, i64, i64), kind=st.sampled_from(market.L3Type))
def test_any_order_is_decoded_as_it_was_encoded(values, kind):
    names = ("order_id", "bid_order_id", "ask_order_id", "price", "qty", "amt")
    made = market.l3_event(MARKET, 5, type=kind, **dict(zip(names, values, strict=True)))
    order = market.BookEvent.decode(made).order
    assert order[-6:] == values
    assert order.event_type == kind


@pytest.mark.parametrize("cause", market.LossCause)
def test_any_cause_of_a_loss_is_decoded_as_it_was_encoded(cause):
    event = market.BookEvent.decode(market.loss(MARKET, 5, cause.name.lower(), first=3, last=4))
    assert (event.event_type, event.loss) == (market.EventType.LOSS, (cause, 3, 4))


@pytest.mark.parametrize("cause", [0, max(market.LossCause) + 1])
def test_an_unknown_cause_of_a_loss_is_refused(cause):
    record = np.frombuffer(bytearray(market.loss(MARKET, 5, "missing")), market.LOSS_RECORD_DTYPE)
    record["loss"]["cause"] = cause
    named = f"must be 1 to {max(market.LossCause)}: loss.cause={cause}"
    with pytest.raises(tw.CorruptRecord, match=named):
        market.BookEvent.decode(record.tobytes())


def test_levels_are_a_read_only_view_of_the_record(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        payload = market.l2_snapshot(MARKET, 1_000, bids=BIDS, asks=ASKS)
        writer.append(market.BOOK_EVENT, payload, timestamp_ns=1_000)
    with tw.open_log(tmp / "q") as log:
        record = log.next()
    event = record.decode()
    whole = np.frombuffer(record, np.uint8)
    assert np.shares_memory(event.asks, whole)
    assert event.asks.__array_interface__["data"][0] - whole.ctypes.data == 76 + 32
    with pytest.raises(ValueError, match="read-only"):
        event.bids["price"] = 0
    assert event.seq == 0
    del record, whole
    assert event.asks.tolist() == ASKS  # the record lives as long as its levels


def test_an_event_made_from_bytes_is_a_copy():
    data = bytearray(page.diff(BIDS, ASKS))
    event = market.BookEvent.decode(data)
    data[:] = bytes(len(data))
    assert event.bids.tolist() == BIDS


def test_events_can_be_compared_and_pickled():
    event = market.BookEvent.decode(page.diff(BIDS, ASKS))
    assert pickle.loads(pickle.dumps(event)) == event == market.BookEvent.decode(bytes(event))
    assert event != market.BookEvent.decode(page.diff(BIDS, []))
    with pytest.raises(TypeError, match=r"use BookEvent\.decode"):
        market.BookEvent()


def test_version_2_has_the_same_bytes():
    event = market.BookEvent.decode(page.diff(BIDS, ASKS, schema_version=2))
    assert event.schema_version == 2
    assert event.asks.tolist() == ASKS


@pytest.mark.parametrize("version", [0, 1, 4, 65535])
def test_another_version_is_refused_with_the_remedy(version):
    with pytest.raises(tw.UnsupportedVersion, match=f"schema_version={version}") as caught:
        market.BookEvent.decode(page.diff(BIDS, ASKS, schema_version=version))
    assert "upgrade" in caught.value.hint or version < 2


BROKEN = {
    "record_len=65": page.diff(BIDS, ASKS, record_len=65),
    "endianness=1": page.diff(BIDS, ASKS, endianness=1),
    "event_type=0": page.diff(BIDS, ASKS, event_type=0),
    "event_type=6": page.diff(BIDS, ASKS, event_type=6),
    "book_mode=2": page.diff(BIDS, ASKS, book_mode=2),
    "flags=13": page.header(page.diff(BIDS, ASKS)[64:], flags=13),
    "flags=3": page.header(page.diff(BIDS, ASKS)[64:], flags=3),
    "price_scale=19": page.diff(BIDS, ASKS, scales=(19, 3)),
    "size_scale=19": page.snapshot(BIDS, ASKS, scales=(2, 19)),
    "diff.flags=2": page.diff(BIDS, ASKS, flags=2),
    "bid_count=3": page.diff(BIDS, ASKS, counts=(3, 1)),
    "ask_count=0": page.diff(BIDS, ASKS, counts=(2, 0)),
    "bid_count=4294967295": page.snapshot(BIDS, ASKS, counts=(2**32 - 1, 4)),
    "ask_count=268435459": page.snapshot([], ASKS * 3, counts=(0, 2**28 + 3)),
    "order.event_type=0": page.order(event_type=0),
    "order.event_type=7": page.order(event_type=7),
    "order.event_type=1, event_type=3": page.order(head={"event_type": 3}),
    "order.side=3": page.order(side=3),
    "price_scale=255": page.order(price_scale=255),
    "order.flags=64": page.order(flags=64),
    "record_len=64": page.header(b"", event_type=2),
    "record_len=80": page.header(bytes(16), event_type=3),
    "payload=63": page.diff([], [])[:63],
    "payload=0": b"",
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_invalid_field_is_named(name):
    with pytest.raises(tw.CorruptRecord) as caught:
        market.BookEvent.decode(BROKEN[name])
    assert name in caught.value.message.replace("64 + ", "")


def test_an_ingest_time_other_than_that_of_the_record_is_refused(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        writer.append(market.BOOK_EVENT, page.diff(BIDS, ASKS), timestamp_ns=1_001)
    with tw.open_log(tmp / "q") as log:
        record = log.next()
    with pytest.raises(tw.CorruptRecord, match=r"ingest_ts_ns=1000, timestamp_ns=1001, seq=0"):
        record.decode()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"timestamp_ns": -1}, "timestamp_ns=-1"),
        ({"timestamp_ns": 1.5}, "timestamp_ns=1.5"),
        ({"first": 2**64}, "first=18446744073709551616"),
        ({"stream_id": 2**32}, "stream_id=4294967296"),
        ({"bids": [(2**63, 1)]}, "price=9223372036854775808"),
        ({"asks": [(1, "2")]}, "size='2'"),
        ({"bids": [(1, 2, 3)]}, "bids[0]=(1, 2, 3)"),
        ({"bids": np.ones((2, 2))}, "dtype=float64"),
        ({"bids": np.ones((2, 3), np.int64)}, "shape=(2, 3)"),
        ({"asks": np.full((1, 2), 2**63, np.uint64)}, "asks must fit 64 bits"),
        ({"bids": [(1, 1)] * 65_536}, "bids=65536"),
    ],
)
def test_a_value_that_does_not_fit_is_named(arguments, named):
    with pytest.raises(tw.InvalidMessage) as caught:
        market.l2_diff(MARKET, **{"timestamp_ns": 1} | arguments)
    assert named in str(caught.value)


def test_levels_that_shrink_while_they_are_encoded_are_encoded_as_they_were():
    levels = []

    class Price:
        def __index__(self):
            levels.clear()
            return 7

    levels += [(Price(), 1)] * 1_000
    event = market.BookEvent.decode(market.l2_diff(MARKET, 1, bids=levels))
    assert event.bids["price"].tolist() == [7] * 1_000


def test_65535_levels_a_side_fit():
    event = market.BookEvent.decode(market.l2_diff(MARKET, 1, bids=[(1, 1)] * 65_535))
    assert len(event.bids) == 65_535


@pytest.mark.parametrize("name", ["type", "side", "flags", "ord_type"])
def test_the_type_of_an_order_event_must_be_known(name):
    with pytest.raises(tw.InvalidMessage, match=f"{name} must be"):
        market.l3_event(MARKET, 1, **{"type": 1} | {name: 256})
    with pytest.raises(tw.InvalidMessage, match="type must be from 1"):
        market.l3_event(MARKET, 1, type=0)


def test_records_are_decoded_after_a_plain_import(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        writer.append(market.BOOK_EVENT, page.diff(BIDS, ASKS), timestamp_ns=1_000)
        writer.append_message(market.TradeTick(1, 2, 3, 4, 5, 6, 7, 8, 2, 3))
        writer.append_message(market.VenueRaw(b"{}"))
    code = (
        "import sys, tapewire as tw\n"
        f"with tw.open_log({str(tmp / 'q')!r}) as log:\n"
        "    records = list(log)\n"
        "assert 'numpy' not in sys.modules and 'tapewire.protocol.market' not in sys.modules\n"
        "print([type(record.decode()).__name__ for record in records])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "['BookEvent', 'TradeTick', 'VenueRaw']\n", done.stderr


def test_a_decoder_that_was_reset_still_decodes(tmp, own_messages):
    from tapewire import log, protocol

    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        writer.append_message(market.Quote(1, 2, 3, 4, 5, 6, 7, 2, 3))
    log.register_decoder(market.QUOTE, protocol._decode_market)
    with tw.open_log(tmp / "q") as reader:
        assert reader.next().decode().ask_size == 5


def test_a_message_of_another_size_is_refused(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        writer.append(market.TRADE_TICK, bytes(72))
    with tw.open_log(tmp / "q") as reader, pytest.raises(tw.UnsupportedVersion, match="newer"):
        reader.next().decode()


def test_examples_of_the_native_module_run(tmp):
    import doctest

    from tapewire.protocol import _native

    ran = 0
    for name, member in vars(_native).items():
        if name not in market.__all__ or ">>>" not in (member.__doc__ or ""):
            continue
        test = doctest.DocTestParser().get_doctest(member.__doc__, {"tmp": tmp}, name, None, 0)
        report = []
        results = doctest.DocTestRunner().run(test, out=report.append)
        assert results.failed == 0, "".join(report)
        ran += results.attempted
    assert ran > 8
