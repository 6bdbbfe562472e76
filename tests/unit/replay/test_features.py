"""Features against their definitions, and slices against one pass: every value, bit for bit."""

import random
import struct
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tapewire import replay
from tapewire.errors import ClosedHandle, CorruptMetadata, InvalidOption
from tapewire.protocol.instruments import Instrument, Instruments
from tests.support.book_tapes import BTC, ETH, ORDERS, archive_of_two_venues
from tests.support.crafted import damage
from tests.support.feature_tapes import (
    NAMES,
    SHORT_NAMES,
    TapeWriter,
    instrument,
    random_tape,
    write_three,
)
from tests.support.plain_features import SECOND, Event, PlainFeatures
from tests.support.tables import assert_same

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pc = pytest.importorskip("pyarrow.compute", reason="pyarrow is not installed")

SAMPLES = ["event", "trade", "100ms", "7s"]
START = 1_700_000_000 * SECOND


def bits(value):
    return None if value is None else struct.pack("<d", value)


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize(
    ("seed", "scales", "largest"),
    # The products of the fourth are on both sides of 2^53, up to which doubles hold every integer.
    [(1, (2, 3), 50), (2, (18, 18), 2**55), (3, (0, 0), 7), (4, (0, 1), 2**43)],
)
def test_every_feature_matches_its_definition(tmp, sample, seed, scales, largest):
    one = instrument(*scales)
    tape = random_tape(seed, 400, largest=largest)
    writer = TapeWriter(tmp, one)
    writer.write(tape)
    table = replay.features(writer.logs, NAMES, sample)
    want = PlainFeatures(tape, *scales).rows(NAMES, sample)
    assert len(want) > 2
    assert table.num_rows == len(want)
    for row, plain in zip(table.to_pylist(), want, strict=True):
        assert row.pop("symbol") == "SYM"
        got = dict(zip(["timestamp_ns", *NAMES], plain, strict=True))
        assert {k: v if k == "timestamp_ns" else bits(v) for k, v in row.items()} == {
            k: v if k == "timestamp_ns" else bits(v) for k, v in got.items()
        }, plain[0]


def test_the_definitions_are_tested_with_values_and_with_nulls(tmp):
    tape = random_tape(1, 400)
    rows = PlainFeatures(tape, 2, 3).rows(NAMES, "event")
    for i, name in enumerate(NAMES, start=1):
        column = [row[i] for row in rows]
        assert any(value is not None for value in column), name
        if not name.startswith(("volume", "trade_flow")):
            assert None in column, name


def slices(rng, tape, longest):
    """Random times that cut the log, from before its start to after its end."""
    cuts = [tape[0].time - 2 * SECOND]
    while cuts[-1] <= tape[-1].time:
        cuts.append(cuts[-1] + rng.randint(1, longest))
    return list(pairwise(cuts))


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("apart", [False, True], ids=["one log", "two logs"])
def test_slices_of_any_size_have_the_bits_of_one_pass(tmp, sample, apart):
    writer = TapeWriter(tmp, instrument(), apart=apart)
    tape = random_tape(5, 1200)
    writer.write(tape)
    whole = replay.features(writer.logs, NAMES, sample, symbols="SYM")
    assert whole.num_rows > 25
    longest = (tape[-1].time - tape[0].time) // 8
    pieces = []
    for time_from, time_to in slices(random.Random(sample), tape, longest):
        times = {"time_from": time_from, "time_to": time_to}
        pieces.append(replay.features(writer.logs, NAMES, sample, symbols="SYM", **times))
    assert len(pieces) > 8
    assert_same(pa.concat_tables(pieces), whole)


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("apart", [False, True], ids=["one log", "two logs"])
def test_slices_that_start_at_snapshots_have_the_bits_of_one_pass(tmp, sample, apart):
    writer = TapeWriter(tmp, instrument(), apart=apart)
    tape = random_tape(5, 1200)
    writer.write(tape, snapshots_every=30)
    whole = replay.features(writer.logs, SHORT_NAMES, sample, symbols="SYM")
    longest = (tape[-1].time - tape[0].time) // 16
    pieces, records = [], []
    for time_from, time_to in slices(random.Random(sample), tape, longest):
        times = {"time_from": time_from, "time_to": time_to}
        with replay.FeatureStream(
            writer.logs, SHORT_NAMES, sample, symbols="SYM", **times
        ) as stream:
            pieces += stream
            records.append(stream.records)
    assert_same(pa.Table.from_batches(pieces, whole.schema), whole)
    assert sum(records) < len(tape) * len(records) / 3  # snapshots were found, and used


def test_a_slice_without_symbols_finds_them_from_the_start(tmp):
    writer = TapeWriter(tmp, instrument())
    tape = random_tape(6, 300)
    writer.write(tape)
    whole = replay.features(writer.logs, NAMES, "100ms")
    middle = (tape[0].time + tape[-1].time) // 2
    pieces = [
        replay.features(writer.logs, NAMES, "100ms", time_to=middle),
        replay.features(writer.logs, NAMES, "100ms", time_from=middle),
    ]
    assert_same(pa.concat_tables(pieces), whole)


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_stream_continues_from_its_state(tmp, sample):
    tape = random_tape(8, 600)
    whole_log, live = (
        TapeWriter(tmp / "whole", instrument()),
        TapeWriter(tmp / "live", instrument()),
    )
    whole_log.write(tape)
    whole = replay.features(whole_log.logs, NAMES, sample, symbols="SYM")
    trusted_after = [book.trusted for book in PlainFeatures(tape, 2, 3).states]
    batches, state, untrusted = [], None, 0
    for begin in range(0, len(tape), 37):
        live.write(tape[begin : begin + 37])
        with replay.FeatureStream(live.logs, NAMES, sample, symbols="SYM", state=state) as stream:
            batches += stream
            state = stream.save()
        untrusted += not trusted_after[min(begin + 37, len(tape))]
    assert untrusted  # such a book is kept as any other
    assert_same(pa.Table.from_batches(batches, whole.schema), whole)


def test_a_stream_returns_rows_of_new_records(tmp):
    writer = TapeWriter(tmp, instrument())
    tape = random_tape(9, 100)
    writer.write(tape[:40])
    with replay.FeatureStream(writer.logs, ["mid"], "event") as stream:
        first = sum(batch.num_rows for batch in stream)
        writer.write(tape[40:])
        second = sum(batch.num_rows for batch in stream)
    assert (first, second) == (40, 60)


def test_a_stream_follows_a_log_that_grows(tmp):
    writer = TapeWriter(tmp, instrument())
    tape = random_tape(9, 60)
    writer.write(tape[:20])
    with replay.FeatureStream(writer.logs, ["mid"], "event") as stream:
        rows = 0
        for batch in stream.follow(timeout=0.01):
            rows += batch.num_rows
            if rows < 60:
                writer.write(tape[rows : rows + 20])
    assert rows == 60


@pytest.fixture
def three_instruments(tmp):
    """A log of two L2 books, one of orders and their trades, with snapshots."""
    write_three(tmp / "log", 900)
    every = replay.Every(records=50)
    instruments = Instruments([BTC, ETH, ORDERS])
    replay.Snapshotter(tmp / "log", every=every, keep=None, instruments=instruments).run(
        follow=False
    )
    return tmp / "log", instruments


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize(
    "symbols", [["BTCUSDT"], ["AAPL", "BTCUSDT"], ["ETHUSDT", "AAPL", "BTCUSDT"]]
)
def test_instruments_are_independent(three_instruments, sample, symbols):
    log, instruments = three_instruments
    options = {"instruments": instruments}
    whole = replay.features(log, SHORT_NAMES, sample, symbols=symbols, **options)
    for symbol in symbols:
        alone = replay.features(log, SHORT_NAMES, sample, symbols=symbol, **options)
        assert_same(whole.filter(pc.field("symbol") == symbol), alone)
    middle = int(whole["timestamp_ns"][whole.num_rows // 2].as_py()) if whole.num_rows else 0
    pieces = [
        replay.features(log, SHORT_NAMES, sample, symbols=symbols, **bounds, **options)
        for bounds in ({"time_to": middle}, {"time_from": middle})
    ]
    assert_same(pa.concat_tables(pieces), whole)


def test_a_grid_has_a_row_for_each_instrument_that_is_named(three_instruments):
    log, instruments = three_instruments
    absent = Instrument.of("nasdaq", "ABSENT")
    table = replay.features(
        log,
        ["mid"],
        "10ms",
        symbols=[ORDERS, absent],
        instruments=Instruments([*instruments, absent]),
    )
    assert table["symbol"].to_pylist()[:4] == ["AAPL", "ABSENT", "AAPL", "ABSENT"]
    assert table.filter(pc.field("symbol") == "ABSENT")["mid"].null_count == table.num_rows // 2


def test_missing_records_make_features_null_until_a_snapshot(tmp):
    """A damaged record is skipped: the book is untrusted after it."""
    writer = TapeWriter(tmp, instrument())
    writer.write(
        [
            Event(START, "snapshot", ((900, 1),), ((1100, 1),)),
            Event(START + 1, "diff", ((950, 1),)),
            Event(START + 2, "diff", ((960, 1),)),
            Event(START + 3, "snapshot", ((970, 1),), ((1100, 1),)),
        ]
    )
    damage(writer.book, 0, 64 + 192)  # the second record: the first has 108 bytes
    table = replay.features(writer.logs, ["bid", "ofi"], skip_damaged=True)
    assert table["bid"].to_pylist() == [9.0, None, 9.7]
    assert table["ofi"].to_pylist() == [None, None, None]


def test_a_damaged_state_is_refused(tmp):
    writer = TapeWriter(tmp, instrument())
    writer.write([Event(START, "snapshot", ((9, 1),), ((11, 1),))])
    with replay.FeatureStream(writer.logs, ["mid"]) as stream:
        list(stream)
        state = bytearray(stream.save())
    state[len(state) // 2] ^= 1
    with pytest.raises(CorruptMetadata, match="checksum"):
        replay.FeatureStream(writer.logs, ["mid"], state=bytes(state))


def test_a_state_of_other_features_is_refused(tmp):
    writer = TapeWriter(tmp, instrument())
    writer.write([Event(START, "snapshot", ((9, 1),), ((11, 1),))])
    with replay.FeatureStream(writer.logs, ["mid"]) as stream:
        state = stream.save()
    with pytest.raises(InvalidOption, match="other features"):
        replay.FeatureStream(writer.logs, ["bid"], state=state)


def test_batches_are_bounded_and_together_equal_the_table(tmp):
    writer = TapeWriter(tmp, instrument())
    writer.write(
        [Event(START, "snapshot", ((9, 1),), ((11, 1),)), Event(START + 70 * SECOND, "reset")]
    )
    batches = list(replay.feature_batches(writer.logs, ["mid"], "1ms"))
    assert [batch.num_rows for batch in batches] == [65_536, 70_000 - 65_536]
    assert_same(pa.Table.from_batches(batches), replay.features(writer.logs, ["mid"], "1ms"))


def test_a_function_sees_the_row_and_the_trades_before_it(tmp):
    @replay.feature(lookback="5s")
    def volume(row):
        return sum(row.trades["size"].tolist()) / 1000

    def best(row):
        return None if row["mid"] is None else row.book.best_bid.price / 100

    writer = TapeWriter(tmp, instrument())
    writer.write(random_tape(4, 400))
    for sample in ("event", "trade", "100ms"):
        names = ["mid", volume, {"own_bid": best}, "bid", "volume_5s"]
        table = replay.features(writer.logs, names, sample)
        assert table.column_names[2:] == ["mid", "volume", "own_bid", "bid", "volume_5s"]
        assert table["volume"].to_pylist() == table["volume_5s"].to_pylist()
        mids = table["mid"].to_pylist()
        for own, bid, mid in zip(
            table["own_bid"].to_pylist(), table["bid"].to_pylist(), mids, strict=True
        ):
            assert own == (None if mid is None else bid)


def test_slices_include_the_look_back_of_a_function(tmp):
    @replay.feature(lookback="20s")
    def count(row):
        return float(len(row.trades))

    writer = TapeWriter(tmp, instrument())
    tape = random_tape(12, 400)
    writer.write(tape, snapshots_every=20)
    whole = replay.features(writer.logs, [count], "1s", symbols="SYM")
    pieces = [
        replay.features(
            writer.logs, [count], "1s", symbols="SYM", time_from=time_from, time_to=time_to
        )
        for time_from, time_to in slices(random.Random(1), tape, 9 * SECOND)
    ]
    assert_same(pa.concat_tables(pieces), whole)


def test_asof_joins_each_trade_with_the_book_before_it(tmp):
    writer = TapeWriter(tmp, instrument(), apart=True)
    writer.write(
        [
            Event(START, "snapshot", ((900, 1),), ((1100, 1),)),
            Event(START + 10, "trade", price=1100, size=2000, maker=0),
            Event(START + 10, "diff", ((950, 1),)),
            Event(START + 20, "trade", price=950, size=1000, maker=1),
            Event(START + 21, "diff", ((1000, 1),)),
        ]
    )
    table = replay.asof(writer.trades, writer.book, ["bid"])
    assert table.to_pylist() == [
        {
            "timestamp_ns": START + 10,
            "symbol": "SYM",
            "trade_price": 11.0,
            "trade_size": 2.0,
            "trade_sign": 1.0,
            "bid": 9.5,  # with the same time: the book's comes first
        },
        {
            "timestamp_ns": START + 20,
            "symbol": "SYM",
            "trade_price": 9.5,
            "trade_size": 1.0,
            "trade_sign": -1.0,
            "bid": 9.5,
        },
    ]


def test_a_crossed_book_has_a_spread_below_zero(tmp):
    writer = TapeWriter(tmp, instrument())
    writer.write([Event(START, "snapshot", ((1100, 1),), ((900, 3),))])
    (row,) = replay.features(writer.logs, ["mid", "spread", "microprice"]).to_pylist()
    assert (row["mid"], row["spread"], row["microprice"]) == (10.0, -2.0, 10.5)


def test_negative_prices_have_features(tmp):
    writer = TapeWriter(tmp, instrument())
    writer.write([Event(START, "snapshot", ((-1100, 1),), ((-900, 3),))])
    (row,) = replay.features(writer.logs, ["mid", "spread", "spread_bps"]).to_pylist()
    assert (row["mid"], row["spread"], row["spread_bps"]) == (-10.0, 2.0, None)


@pytest.mark.parametrize(
    "names",
    [
        ["middle"],
        ["imbalance"],
        ["imbalance0"],
        ["imbalance05"],
        ["vwap_"],
        ["vwap_2x"],
        ["mid", "mid"],
        ["volatility_100ms"],
        ["vwap_2d"],
        ["symbol"],
        [],
        ["bid_depth70000"],
        ["mid_1s"],
    ],
)
def test_an_unknown_feature_is_refused(tmp, names):
    TapeWriter(tmp, instrument()).write([Event(START, "reset")])
    with pytest.raises(InvalidOption):
        replay.features(tmp / "book", names)


@pytest.mark.parametrize("sample", ["", "events", "0s", "-1s", "1", "1.5s", "2d"])
def test_an_invalid_sample_is_refused(tmp, sample):
    TapeWriter(tmp, instrument()).write([Event(START, "reset")])
    with pytest.raises(InvalidOption, match="sample"):
        replay.features(tmp / "book", ["mid"], sample)


def test_every_feature_is_described():
    infos = replay.describe_features()
    names = [info.name for info in infos]
    assert len(set(names)) == len(names) == 20
    assert all(all(info) for info in infos)


def test_the_documented_table_is_that_of_the_engine():
    page = Path(__file__).parents[3] / "docs" / "reference" / "features.md"
    for info in replay.describe_features():
        cells = [f"`{info.name}`", info.meaning, f"`{info.formula}`", info.unit]
        row = " | ".join([*cells, info.look_back, info.missing])
        assert f"| {row} |" in page.read_text(), info.name


def test_a_closed_stream_raises(tmp):
    writer = TapeWriter(tmp, instrument())
    writer.write(random_tape(1, 10))
    stream = replay.FeatureStream(writer.logs, ["mid"])
    stream.close()
    stream.close()
    with pytest.raises(ClosedHandle):
        list(stream)
    with pytest.raises(ClosedHandle):
        stream.save()


def test_without_pyarrow_the_error_names_the_extra(tmp, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"tapewire\[arrow\]"):
        replay.features(tmp, ["mid"])


def test_an_error_of_a_function_is_raised_to_the_caller(tmp):
    writer = TapeWriter(tmp, instrument())
    writer.write(random_tape(1, 10))
    with pytest.raises(KeyError, match="no such feature in the row: name='mid'"):
        replay.features(writer.logs, [{"broken": lambda row: row["mid"]}])


def test_a_log_without_records_has_no_rows(tmp):
    TapeWriter(tmp, instrument()).write([])
    for sample in SAMPLES:
        table = replay.features(tmp / "book", ["mid"], sample, symbols="SYM", time_from=START)
        assert table.num_rows == 0
        assert table.schema.names == ["timestamp_ns", "symbol", "mid"]


def test_rows_of_two_venues_with_one_symbol_name_the_venue(tmp):
    logs = archive_of_two_venues(tmp)
    both = {"binance_spot:BTCUSDT", "binance_usdm:BTCUSDT"}
    table = replay.features(list(logs.values()), ["mid"])
    assert set(table["symbol"].to_pylist()) == both
    last = table["timestamp_ns"][-1].as_py()
    for options in ({}, {"symbols": "BTCUSDT"}):
        part = replay.features(list(logs.values()), ["mid"], time_from=last, **options)
        assert set(part["symbol"].to_pylist()) == both
    one = replay.features(logs["binance_spot"], ["mid"])
    assert set(one["symbol"].to_pylist()) == {"BTCUSDT"}
