"""Slices of replayed views: the rows of one pass, from few logs, with and without snapshots."""

import os
import shutil
from itertools import pairwise

import pytest

import tapewire as tw
from tapewire import bus, replay
from tapewire.errors import InvalidOption
from tapewire.protocol.instruments import Instrument, Instruments
from tapewire.protocol.market import l2_snapshot, reset
from tests.support import queue_format as qf
from tests.support.archive_tapes import SYMBOL, VENUE, save_books, write_archive, write_orders
from tests.support.book_tapes import BTC, ETH, ORDERS, write_l2
from tests.support.feature_tapes import BOOK_EVENT, instrument, write_three

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("pyspark", reason="pyspark is not installed")

from tapewire.scan import replay_slices  # noqa: E402 - needs pyspark
from tests.support.replayed import Query, assert_same_rows  # noqa: E402 - needs pyspark

SECOND = 10**9
SHORT = "mid,imbalance3,ofi,vwap_300ms,trade_flow_1s,volatility_1s"
LONG = f"{SHORT},trade_sign,time_since_trade"
QUERIES = {
    "book": {"view": "book", "levels": 4},
    "book at trades": {"view": "book", "levels": 4, "sample": "trade"},
    "book on a grid": {"view": "book", "levels": 4, "sample": "100ms"},
    "features": {"view": "features", "features": SHORT},
    "features at trades": {"view": "features", "features": LONG, "sample": "trade"},
    "features on a grid": {"view": "features", "features": SHORT, "sample": "100ms"},
}


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    """Three days of one instrument, with gaps, resets and snapshots."""
    root = tmp_path_factory.mktemp("days")
    write_archive(root, 31, 600)
    return root


def book_logs(root):
    return sorted(path.parent for path in root.rglob("book/control.meta"))


def snapshot_files(root):
    return sorted(root.rglob("snapshot_*.bin"))


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize(
    "span_ns", [777_777_777, 10 * SECOND, 10**15], ids=["0.8 s", "10 s", "one"]
)
def test_slices_of_any_span_equal_one_pass(days, query, span_ns):
    asked = Query(days, **QUERIES[query])
    parts = asked.parts(span_ns=span_ns)
    assert_same_rows(asked.read(parts), asked.one_pass())


@pytest.mark.parametrize("query", [name for name in QUERIES if name != "features at trades"])
def test_slices_at_snapshots_equal_one_pass(days, query):
    asked = Query(days, **QUERIES[query], partitions=7)
    parts = asked.parts(wanted=7)
    assert len(parts) > 3
    assert_same_rows(asked.read(parts), asked.one_pass())


@pytest.mark.parametrize("query", ["book", "book on a grid", "features on a grid"])
@pytest.mark.parametrize("span_ns", [SECOND, None], ids=["by time", "at snapshots"])
def test_a_unit_ends_at_a_missing_day_and_another_begins_after_it(tmp, query, span_ns):
    write_archive(tmp, 40, 240, days=4)
    days = tmp / "v1" / VENUE / SYMBOL
    shutil.rmtree(days / "2023-11-15")
    asked = Query(tmp, **QUERIES[query], partitions=5)
    found = asked.read(asked.parts(5, span_ns))
    first = Query(days / "2023-11-14", **QUERIES[query]).one_pass()
    others = Query(days / "2023-11-1[67]", **QUERIES[query]).one_pass()
    assert_same_rows(found, pa.concat_tables([first, others]))


def test_a_range_after_a_missing_day_reads_nothing_from_before_it(tmp):
    write_archive(tmp, 40, 240)
    shutil.rmtree(tmp / "v1" / VENUE / SYMBOL / "2023-11-15")
    asked = Query(tmp, "book")
    first, last = asked.parts(span_ns=10**15)
    query = Query(tmp, "book", time_from=last.logs[0].first_ns)
    assert [log.name for part in query.parts() for log in part.logs] == [
        log.name for log in last.logs
    ]
    before = Query(tmp, "book", time_to=last.logs[0].first_ns)
    assert [part.logs for part in before.parts()] == [first.logs]


@pytest.mark.parametrize("span_ns", [SECOND, None], ids=["by time", "at snapshots"])
def test_orders_of_the_day_before_are_in_the_slices_of_a_day(tmp, span_ns):
    """A snapshot of the second day lacks them, because its log does: it is not used."""
    write_orders(tmp, 38, 600)
    asked = Query(tmp, "book", partitions=5)
    parts = asked.parts(5, span_ns)
    assert len(parts) > 3
    assert_same_rows(asked.read(parts), asked.one_pass(orders=True))


@pytest.mark.parametrize("every", [25, None], ids=["with snapshots", "without"])
def test_an_l3_day_that_begins_with_a_reset_needs_no_other(tmp, every):
    write_orders(tmp, 39, 800, days=4, resets=(1, 3), snapshots_every=every)
    asked = Query(tmp, "book", partitions=8)
    want = asked.one_pass(orders=True)
    for parts in (asked.parts(8), asked.parts(span_ns=SECOND)):
        assert len(parts) > 2
        assert_same_rows(asked.read(parts), want)
    last = asked.parts(8)[-1]
    assert [log.name[-15:] for log in replay_slices.needed(last, 0)] == ["2023-11-17/book"]


def test_a_slice_opens_the_logs_from_its_snapshot_on(days):
    asked = Query(days, "book", partitions=6)
    first, *_, last = asked.parts(wanted=6)
    names = [log.name for log in replay_slices.needed(last, 0)]
    assert names == [f"{VENUE}/{SYMBOL}/2023-11-16/{stream}" for stream in ("book", "trades")]
    assert not [log for log in first.logs if "2023-11-16" in log.name]


def test_slices_are_of_similar_size(days):
    asked = Query(days, "book", partitions=5)
    counts = []
    for part in asked.parts(wanted=5):
        options = replay_slices.stream_options(part, asked.options, 0)
        with asked.view.open_stream(asked.options, **options) as stream:
            list(stream)
            counts.append(stream.records)
    assert len(counts) == 5
    assert max(counts) < 2.5 * sum(counts) / 5
    assert sum(counts) < 1.5 * 600


def test_damaged_snapshots_of_a_day_cost_time_and_no_rows(tmp):
    write_archive(tmp, 32, 600)
    asked = Query(tmp, "book")
    want = asked.one_pass()
    parts = asked.parts(span_ns=2 * SECOND)
    # Damaged after planning: all of the last day, half of the second.
    for file in snapshot_files(book_logs(tmp)[2]):
        file.write_bytes(file.read_bytes()[:-9])
    for file in snapshot_files(book_logs(tmp)[1])[::2]:
        file.write_bytes(b"x" * 200)
    assert_same_rows(asked.read(parts), want)


def test_missing_snapshots_of_a_day_cost_time_and_no_rows(tmp):
    write_archive(tmp, 33, 600)
    asked = Query(tmp, "features", features=SHORT)
    want = asked.one_pass()
    parts = asked.parts(span_ns=2 * SECOND)
    for log in book_logs(tmp)[1:]:
        shutil.rmtree(log / "snapshots")
    assert_same_rows(asked.read(parts), want)


def test_a_unit_without_snapshots_is_one_slice(tmp):
    write_archive(tmp, 34, 300, snapshots_every=None)
    asked = Query(tmp, "book", partitions=8)
    (part,) = asked.parts(wanted=8)
    assert (part.time_from, part.time_to) == (None, None)
    assert_same_rows(asked.read([part]), asked.one_pass())


@pytest.mark.parametrize("policy", ["quarantine", "raise"])
def test_gap_policies_without_snapshots_give_one_slice(days, policy):
    assert len(Query(days, "book", partitions=8, on_gap=policy).parts(wanted=8)) == 1


def test_a_range_of_time_is_cut_inside(days):
    asked = Query(days, "book")
    times = asked.one_pass()["timestamp_ns"].to_numpy()
    bounds = {"time_from": int(times[150]), "time_to": int(times[450])}
    ranged = Query(days, "book", partitions=4, **bounds)
    parts = ranged.parts(wanted=4)
    assert len(parts) > 2
    assert (parts[0].time_from, parts[-1].time_to) == tuple(bounds.values())
    for one, other in pairwise(parts):
        assert one.time_to == other.time_from
    assert_same_rows(ranged.read(parts), asked.one_pass(**bounds))


def test_a_range_of_sequence_numbers_needs_one_log(days):
    with pytest.raises(InvalidOption, match="needs a single log"):
        Query(days, "book", seq_from=10).parts()
    log = book_logs(days)[0]
    asked = Query(log, "book", seq_from=50, seq_to=120, partitions=3)
    want = replay.book_rows(log, symbols=SYMBOL, seq_from=50, seq_to=120)
    assert want["seq"].to_pylist() == list(range(50, 120))
    assert_same_rows(asked.read(asked.parts(wanted=3)), want)


def test_what_is_appended_after_the_plan_is_in_no_slice(tmp):
    write_archive(tmp, 35, 300, days=1)
    asked = Query(tmp, "book", partitions=3)
    want, parts = asked.one_pass(), asked.parts(wanted=3)
    assert len(parts) > 1
    last = int(want["timestamp_ns"].to_numpy()[-1])
    for log in asked.logs:
        with tw.open_publisher(log.path) as writer:
            for late in (-5, 0, 10**9):  # also late ones, and one with the same time
                payload = reset(instrument(), last + late)
                writer.append(BOOK_EVENT, payload, timestamp_ns=last + late)
    assert_same_rows(asked.read(parts), want)
    assert asked.one_pass().num_rows > want.num_rows


@pytest.mark.parametrize("view", [{"view": "book"}, {"view": "features", "features": "mid"}])
def test_records_retired_after_planning_are_an_error(tmp, view):
    write_l2(tmp / "q", 2_000, snapshot_every=400)
    asked = Query(tmp / "q", symbols=BTC.symbol, **view)
    parts = asked.parts(1)
    (tmp / "q" / "000000000.q").unlink()
    with pytest.raises(tw.SegmentMissing, match=r"first_wanted=0, first_available=\d+"):
        asked.read(parts)
    passing = Query(tmp / "q", symbols=BTC.symbol, on_damage="skip", **view)
    assert 0 < passing.read(parts).num_rows < 2_000


def test_a_slice_that_begins_at_a_snapshot_needs_nothing_before_it(tmp):
    write_l2(tmp / "q", 2_000, snapshot_every=400)
    save_books(tmp / "q", 200)
    asked = Query(tmp / "q", "book", symbols=BTC.symbol, partitions=4)
    last = asked.parts(4)[-1]
    before = asked.read([last])
    (tmp / "q" / "000000000.q").unlink()
    assert_same_rows(asked.read([last]), before)


def test_a_log_whose_sequence_numbers_restart_is_read_completely(tmp):
    events = [
        (run * 100 + n, l2_snapshot(BTC, run * 100 + n, bids=[(9, 1)], asks=[(11, n + 1)]))
        for run, count in ((1, 20), (2, 20), (3, 5))
        for n in range(count)
    ]
    records = [
        qf.record(time % 100, payload, type_id=BOOK_EVENT, timestamp_ns=time, checked=False)
        for time, payload in events
    ]
    qf.write_queue(tmp / "q", [records[:20], records[20:40], records[40:]], segment_bytes=16384)
    Instruments([BTC]).save(tmp)
    asked = Query(tmp / "q", "book", symbols=BTC.symbol)
    found = asked.read(asked.parts(4))
    assert found["timestamp_ns"].to_pylist() == [time for time, _ in events]


def test_a_look_back_past_the_start_gives_one_slice(days):
    asked = Query(days, **QUERIES["features at trades"], partitions=7)
    assert len(asked.parts(wanted=7)) == 1


def test_default_slices_are_longer_than_their_look_back(days):
    short = Query(days, "features", features=SHORT, sample="100ms")
    assert len(short.parts(wanted=6)) > 1
    assert len(Query(days, "features", features=LONG, sample="100ms").parts(wanted=6)) == 1


def test_many_instruments_share_the_slices_by_their_bytes(tmp):
    write_archive(tmp, 36, 600, days=2)
    other = instrument()
    layout = bus.ArchiveLayout(tmp)
    for log in book_logs(tmp):  # a second symbol, of the same bytes
        moved = layout.log(VENUE, "OTHER", log.parent.name, "book")
        shutil.copytree(log, moved)
    asked = Query(tmp, "book", partitions=8)
    assert [unit.instrument for unit in asked.units] == [None, other]  # OTHER is in no file
    parts = asked.parts(wanted=8)
    assert {part.instrument for part in parts} == {None, other}
    assert len([part for part in parts if part.instrument is None]) == 1


# ---- logs of many instruments --------------------------------------------------------------------


def test_a_log_of_many_instruments_is_one_slice_without_symbols(tmp):
    write_three(tmp / "q", 300)
    save_books(tmp / "q", 20)
    asked = Query(tmp / "q", "book", partitions=5)
    (part,) = asked.parts(wanted=5)
    got = asked.read([part])
    assert_same_rows(got, replay.book_rows(tmp / "q", orders=True))
    assert set(got["symbol"].to_pylist()) == {BTC.symbol, ETH.symbol, ORDERS.symbol}


def test_a_log_of_many_instruments_is_sliced_for_each_symbol(tmp):
    write_three(tmp / "q", 600)
    save_books(tmp / "q", 20)
    asked = Query(tmp / "q", "book", symbols=f"{ETH.venue}:{ETH.symbol},{BTC.symbol}", partitions=6)
    assert {unit.instrument for unit in asked.units} == {BTC, ETH}
    parts = asked.parts(wanted=6)
    assert len(parts) > 3
    assert_same_rows(asked.read(parts), asked.one_pass())


def test_l3_books_have_columns_of_orders(tmp):
    write_three(tmp / "q", 300)
    orders = Query(tmp / "q", "book", symbols=ORDERS.symbol)
    assert "bid_orders" in orders.options.columns
    levels = Query(tmp / "q", "book", symbols=BTC.symbol)
    assert "bid_orders" not in levels.options.columns


# ---- columns -------------------------------------------------------------------------------------


def test_flat_levels_are_columns_with_nulls(days):
    lists = Query(days, "book", levels=3)
    rows = lists.read(lists.parts()).to_pylist()
    flat = Query(days, "book", levels=3, flat="true")
    assert "bid_price_3" in flat.options.columns
    for row, levels in zip(flat.read(flat.parts()).to_pylist(), rows, strict=True):
        for side in ("bid", "ask"):
            for i in range(3):
                prices = levels[f"{side}_prices"]
                assert row[f"{side}_price_{i + 1}"] == (prices[i] if i < len(prices) else None)
                sizes = levels[f"{side}_sizes"]
                assert row[f"{side}_size_{i + 1}"] == (sizes[i] if i < len(sizes) else None)


@pytest.mark.parametrize("flat", ["true", "false"])
def test_prices_as_decimals_are_the_same_prices(days, flat):
    scaled = Query(days, "book", levels=3, flat=flat)
    decimal = Query(days, "book", levels=3, flat=flat, prices="decimal")
    got = decimal.read(decimal.parts())
    name = "bid_price_1" if flat == "true" else "bid_prices"
    type_of = got.schema.field(name).type
    assert (type_of if flat == "true" else type_of.value_type) == pa.decimal128(38, 2)
    exact = scaled.read(scaled.parts())[name].to_pylist()
    prices = got[name].to_pylist()
    if flat == "true":
        exact, prices = [[one] for one in exact], [[one] for one in prices]
    for some, others in zip(exact, prices, strict=True):
        assert [None if one is None else int(one.scaleb(2)) for one in others] == some


def test_decimals_have_the_largest_scale_of_all_instruments(tmp):
    for venue, scale in (("a", 2), ("b", 5)):
        one = Instrument.of(venue, "SYM", price_scale=scale, size_scale=3)
        Instruments([one]).save(tmp)
        path = bus.ArchiveLayout(tmp).log(venue, "SYM", "2023-11-14", "book")
        with tw.open_publisher(path, segment_bytes=1 << 20) as writer:
            levels = {"bids": [(-(10**18) + 1, 1)], "asks": [(10**18 + 7, 2)]}
            payload = l2_snapshot(one, 1000, **levels, native_seq=1)
            writer.append(BOOK_EVENT, payload, timestamp_ns=1000)
    asked = Query(tmp, "book", prices="decimal")
    rows = asked.read(asked.parts()).to_pylist()
    assert [str(row["ask_prices"][0]) for row in rows] == [
        "10000000000000000.07000",
        "10000000000000.00007",
    ]
    assert str(rows[0]["bid_prices"][0]) == "-9999999999999999.99000"


def test_decimals_need_instruments(tmp):
    write_three(tmp / "q", 20)
    asked = Query(tmp / "q", "book", prices="decimal")
    got = asked.read(asked.parts())
    assert got.schema.field("bid_prices").type.value_type == pa.decimal128(38, 4)
    by_hand = Query(tmp / "q", "book").read(asked.parts()).to_pylist()
    for row, scaled in zip(got.to_pylist(), by_hand, strict=True):
        digits = [int(price.scaleb(row["price_scale"])) for price in row["bid_prices"]]
        assert digits == scaled["bid_prices"]
    (tmp / "instruments.json").unlink()
    with pytest.raises(InvalidOption, match="needs instruments, and none is known"):
        Query(tmp / "q", "book", prices="decimal")


def test_columns_are_in_the_order_asked_for(days):
    names = "ask_sizes,seq,timestamp"
    asked = Query(days, "book", columns=names)
    assert asked.read(asked.parts()).column_names == names.split(",")
    asked = Query(days, "features", features=SHORT, columns="ofi,symbol")
    got = asked.read(asked.parts())
    assert got.column_names == ["ofi", "symbol"]
    assert got["ofi"].to_pylist() == asked.one_pass()["ofi"].to_pylist()


def test_without_features_all_are_columns(days):
    asked = Query(days, "features", levels=5)
    names = asked.view.names_of(asked.options)
    assert {"mid", "imbalance5", "vwap_1m", "time_since_trade"} <= set(names)
    assert len(names) == len(replay.describe_features())
    assert_same_rows(asked.read(asked.parts()), asked.one_pass())


@pytest.mark.parametrize(
    "invalid", [{"features": "middle"}, {"sample": "now"}, {"features": "mid", "columns": "bid"}]
)
def test_invalid_features_are_refused(days, invalid):
    with pytest.raises(InvalidOption):
        Query(days, "features", **invalid)


def test_planning_a_month_opens_no_snapshot_and_reads_no_log(tmp, monkeypatch):
    write_archive(tmp, 37, 300, days=30, snapshots_every=5)
    for file in snapshot_files(tmp):
        os.chmod(file, 0o600)
        file.write_bytes(b"")  # only their names are read
    read = []
    real = replay_slices.next_record
    monkeypatch.setattr(
        replay_slices, "next_record", lambda reader: read.append(reader) or real(reader)
    )
    parts = Query(tmp, "book", partitions=10).parts(wanted=10)
    assert len(parts) > 5
    assert len(read) < 60 * 2 + 10
