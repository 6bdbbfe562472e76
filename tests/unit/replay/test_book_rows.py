"""Rows of books: against a plain book, in slices, and from a state; every level of every row."""

import random
from itertools import pairwise

import pytest

import tapewire as tw
from tapewire import replay
from tapewire.errors import InvalidOption
from tapewire.protocol.instruments import Instrument
from tests.support.book_tapes import BTC, ETH, ORDERS
from tests.support.feature_tapes import TapeWriter, instrument, random_tape, write_three
from tests.support.plain_features import SECOND, State

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

SAMPLES = ["event", "trade", "100ms", "7s"]


def plain_rows(tape, levels, sample):
    """(time, seq, trusted, bids, asks) of the rows of one log, by the definition."""

    def row(time, seq, state):
        bids = sorted(state.bids.items(), reverse=True)[:levels] if state.trusted else []
        asks = sorted(state.asks.items())[:levels] if state.trusted else []
        return time, seq, state.trusted, bids, asks

    rows, state, clock = [], State(), tape[0].time
    span = {"100ms": SECOND // 10, "7s": 7 * SECOND}.get(sample)
    for seq, event in enumerate(tape):
        before, clock = clock, max(clock, event.time)
        if span and seq:
            points = range((before // span + 1) * span, clock + 1, span)
            rows += [row(point, None, state) for point in points]
        if sample == "trade" and event.kind == "trade":
            rows.append(row(clock, seq, state))
        if event.kind != "trade":
            state = state.after(event)
        if sample == "event":
            rows.append(row(clock, seq, state))
    return rows


def rows_of(table):
    return [
        (
            row["timestamp_ns"],
            row["seq"],
            row["trusted"],
            list(zip(row["bid_prices"], row["bid_sizes"], strict=True)),
            list(zip(row["ask_prices"], row["ask_sizes"], strict=True)),
        )
        for row in table.to_pylist()
    ]


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("levels", [1, 3, 50])
def test_every_row_is_the_book_at_its_time(tmp, sample, levels):
    tape = random_tape(21, 400)
    writer = TapeWriter(tmp, instrument())
    writer.write(tape)
    table = replay.book_rows(writer.book, levels, sample)
    want = plain_rows(tape, levels, sample)
    assert {row[2] for row in want} == {False, True}
    assert rows_of(table) == want
    assert set(table["venue"].to_pylist()) == {"venue"}
    assert set(table["symbol"].to_pylist()) == {"SYM"}
    assert set(
        zip(*(table[n].to_pylist() for n in ("price_scale", "size_scale")), strict=True)
    ) == {(2, 3)}


@pytest.mark.parametrize("sample", SAMPLES)
def test_rows_of_books_and_of_features_have_the_same_times(tmp, sample):
    writer = TapeWriter(tmp, instrument(), apart=True)
    writer.write(random_tape(22, 400))
    books = replay.book_rows(writer.logs, 1, sample)
    mids = replay.features(writer.logs, ["bid"], sample)
    assert books["timestamp_ns"] == mids["timestamp_ns"]
    best = [row[0] / 100 if row else None for row in books["bid_prices"].to_pylist()]
    assert best == mids["bid"].to_pylist()


@pytest.mark.parametrize("apart", [False, True], ids=["one log", "two logs"])
@pytest.mark.parametrize("sample", SAMPLES)
def test_slices_have_the_rows_of_one_pass(tmp, sample, apart):
    tape = random_tape(23, 600)
    writer = TapeWriter(tmp, instrument(), apart=apart)
    writer.write(tape, snapshots_every=30)
    options = {"levels": 5, "sample": sample, "symbols": "SYM"}
    whole = replay.book_rows(writer.logs, **options)
    times = sorted({event.time for event in tape})
    cuts = [times[0], *sorted(random.Random(sample).sample(times[1:], 8)), times[-1] + 1]
    parts, records = [], []
    for time_from, time_to in pairwise(cuts):
        bounds = {"time_from": time_from, "time_to": time_to}
        with replay.BookStream(writer.logs, **options, **bounds) as stream:
            parts += stream
            records.append(stream.records)
    assert pa.Table.from_batches(parts, whole.schema).equals(whole)
    assert min(records[3:]) < len(tape) // 4, "none began at a snapshot"


@pytest.mark.parametrize("apart", [False, True], ids=["one log", "two logs"])
@pytest.mark.parametrize("sample", ["event", "trade", "100ms"])
@pytest.mark.parametrize("what", ["book", "features"])
def test_a_stream_with_moving_ends_continues_from_its_state(tmp, sample, apart, what):
    """Different ends each time, by time and by seq of each log; the logs are complete."""
    tape = random_tape(24, 500)
    writer = TapeWriter(tmp, instrument(), apart=apart)
    writer.write(tape)
    logs = {log.name: log for log in writer.logs}

    def stream(**options):
        if what == "book":
            return replay.BookStream(logs, 4, sample, symbols="SYM", **options)
        names = ["mid", "ofi", "vwap_5s", "time_since_trade"]
        return replay.FeatureStream(logs, names, sample, symbols="SYM", venues=True, **options)

    with stream() as one:
        whole = pa.Table.from_batches(list(one), one.schema)
    batches, state = [], None
    horizons = sorted(random.Random(7).sample(sorted({event.time for event in tape})[1:], 20))
    for turn, horizon in enumerate([*horizons, None]):
        ends = {"time_to": horizon}
        if horizon is not None and turn % 2:
            ends = {"seq_to": {name: _reached(log, horizon) for name, log in logs.items()}}
        with stream(**ends, state=state) as one:
            batches += one
            state = one.save()
    assert pa.Table.from_batches(batches, whole.schema).equals(whole)


def _reached(log, horizon):
    with tw.open_log(log) as reader:
        seq = replay.start.first_seq_after(reader, horizon - 1)
        return 2**63 if seq is None else seq


def test_a_state_accepts_a_log_that_was_created_later(tmp):
    tape = random_tape(25, 300)
    days = [TapeWriter(tmp / name, instrument()) for name in ("b", "a")]
    middle = max(event.time for event in tape[:150]) + 1
    late = [event for event in tape[150:] if event.time >= middle]
    days[0].write(tape[:150])
    options = {"sample": "100ms", "symbols": "SYM", "levels": 3}
    # The new log is the first by name: indexes change, names do not.
    with replay.BookStream({"1": days[0].book}, **options, time_to=middle) as stream:
        batches = list(stream)
        state = stream.save()
    days[1].write(late)
    both = {"0": days[1].book, "1": days[0].book}
    with replay.BookStream(both, **options, state=state) as stream:
        batches += stream
    whole = replay.book_rows(both, **options)
    assert pa.Table.from_batches(batches, whole.schema).equals(whole)
    with pytest.raises(InvalidOption, match="other logs"):
        replay.BookStream({"0": days[1].book}, **options, state=state)


def test_logs_end_at_their_seq_to_whatever_is_appended(tmp):
    tape = random_tape(26, 300)
    writer = TapeWriter(tmp, instrument(), apart=True)
    writer.write(tape[:200])
    counts = {str(log): tw.queue.status(log).last_seq + 1 for log in writer.logs}
    want = replay.book_rows(writer.logs, 3, symbols="SYM")
    writer.write(tape[200:])
    assert replay.book_rows(writer.logs, 3, symbols="SYM", seq_to=counts).equals(want)
    with replay.BookStream(writer.logs, 3, symbols="SYM", seq_to=counts) as stream:
        assert sum(batch.num_rows for batch in stream.follow()) == want.num_rows
        assert stream.done
    with replay.Replay(writer.logs, seq_to=counts) as steps:
        assert sum(1 for _ in steps) == 200
        assert list(steps.follow()) == []


@pytest.mark.parametrize(
    ("ends", "what"), [({"nowhere": 3}, "has an unknown log"), ({"here": -1}, "seq_to")]
)
def test_ends_of_unknown_logs_are_refused(tmp, ends, what):
    writer = TapeWriter(tmp, instrument())
    writer.write(random_tape(1, 5))
    with pytest.raises(InvalidOption, match=what):
        replay.book_rows({"here": writer.book}, 3, seq_to=ends)


def _orders(book):
    """The orders of the best four bids; a book of levels does not have them."""
    if book is None:
        return []
    levels = book.bids(4)
    return levels["orders"].tolist() if "orders" in levels.dtype.names else [0] * len(levels)


def test_levels_of_orders_have_their_count(tmp):
    write_three(tmp / "q", 300)
    table = replay.book_rows(tmp / "q", 4, orders=True)
    with replay.Replay(tmp / "q") as tape:
        steps = [(step.symbol, _orders(step.book)) for step in tape]
    got = zip(table["symbol"].to_pylist(), table["bid_orders"].to_pylist(), strict=True)
    assert list(got) == steps
    orders = [count for symbol, counts in steps if symbol == ORDERS.symbol for count in counts]
    assert max(orders) > 1
    assert {row["symbol"] for row in table.to_pylist()} == {BTC.symbol, ETH.symbol, ORDERS.symbol}


def test_many_levels_make_fewer_rows_in_a_batch(tmp):
    writer = TapeWriter(tmp, instrument())
    writer.write(random_tape(2, 100))
    batches = list(replay.book_batches(writer.book, 65_535))
    assert max(batch.num_rows for batch in batches) <= 16
    assert pa.Table.from_batches(batches).equals(replay.book_rows(writer.book, 65_535))


@pytest.mark.parametrize("levels", [0, -1, 65_536, 2.5])
def test_an_invalid_number_of_levels_is_refused(tmp, levels):
    writer = TapeWriter(tmp, instrument())
    writer.write(random_tape(2, 5))
    with pytest.raises(InvalidOption, match="levels"):
        replay.book_rows(writer.book, levels)


def test_a_state_of_other_levels_is_refused(tmp):
    writer = TapeWriter(tmp, instrument())
    writer.write(random_tape(3, 1))
    with replay.BookStream(writer.book, 3) as stream:
        state = stream.save()
    with pytest.raises(InvalidOption, match="other features"):
        replay.BookStream(writer.book, 4, state=state)


def test_venues_have_a_column_of_their_own(tmp):
    one, two = (Instrument.of(venue, "SYM", price_scale=2, size_scale=3) for venue in "xy")
    for each in (one, two):
        TapeWriter(tmp / each.venue, each).write(random_tape(5, 20))
    logs = [tmp / "x" / "book", tmp / "y" / "book"]
    apart = replay.features(logs, "mid", venues=True)
    assert apart.column_names == ["timestamp_ns", "venue", "symbol", "mid"]
    together = replay.features(logs, "mid")
    assert together.column_names == ["timestamp_ns", "symbol", "mid"]
    assert set(together["symbol"].to_pylist()) == {"x:SYM", "y:SYM"}
    names = zip(apart["venue"].to_pylist(), apart["symbol"].to_pylist(), strict=True)
    assert [":".join(pair) for pair in names] == together["symbol"].to_pylist()
    assert apart["mid"] == together["mid"]
