"""Streaming books and features: the rows of one pass, whatever micro-batches and states."""

import contextlib
import copy
import hashlib
import json
import os
import random
import shutil
from pathlib import Path

import pytest

import tapewire as tw
from conftest import wait_until
from tapewire import bus
from tapewire.errors import CorruptMetadata, InvalidOption, SegmentMissing
from tapewire.protocol.instruments import Instruments
from tapewire.queue import status
from tapewire.replay import sources
from tapewire.replay.row_stream import RowStream
from tapewire.spark.streaming import replay_steps, replayed_reader
from tests.support.book_tapes import START_NS, L2Feed
from tests.support.crafted import break_header
from tests.support.feature_tapes import TRADE_TICK, TapeWriter, random_tape
from tests.support.micro_batches import Killed, MicroBatches, batch
from tests.support.replayed_streams import ONE, VIEWS, options_of, same, write_days


class Feed:
    """Writers of the book and the trades of an instrument on a bus, or of both in one queue."""

    def __init__(self, root, seed, *, apart, count=900, **options):
        layout = bus.Layout(root)
        self.paths = {"book": layout.streams.clean(ONE.venue, ONE.symbol, "book")}
        self.paths["trades"] = self.paths["book"]
        if apart:
            self.paths["trades"] = layout.streams.clean(ONE.venue, ONE.symbol, "trades")
        root.mkdir(exist_ok=True)
        Instruments([ONE]).save(root)
        self._encode = TapeWriter(root, ONE)
        self._tape = iter(random_tape(seed, count))
        self._options = {"segment_bytes": 1 << 16, **options}
        self._writers = {}
        self.duplicated = False
        self.encode = self._encode.payload
        self.open()

    def open(self):
        for path in dict.fromkeys(self.paths.values()):
            self._writers[path] = tw.open_publisher(path, **self._options)

    def append_only(self, stream):
        """Append the next event if it is of this stream; drop it otherwise."""
        event = next(self._tape)
        type_id, payload = self._encode.payload(event)
        if stream == ("trades" if type_id == TRADE_TICK else "book"):
            self._writers[self.paths[stream]].append(type_id, payload, timestamp_ns=event.time)

    def append(self, count=None):
        """Append `count` events, or all that are left; return whether there was one."""
        done = 0
        for event in self._tape:
            type_id, payload = self._encode.payload(event)
            path = self.paths["trades" if type_id == TRADE_TICK else "book"]
            for _ in range(1 + self.duplicated):
                self._writers[path].append(type_id, payload, timestamp_ns=event.time)
            done += 1
            if done == count:
                break
        return done > 0

    def close(self):
        for writer in self._writers.values():
            writer.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def query_over(root, view, sample, **more):
    options = options_of(view, sample, root, **more)
    return MicroBatches(root, reader="q", state=root.parent / "state", **options)


def one_pass(root, view, sample, **more):
    return batch(root, partitions=1, **options_of(view, sample, root, **more))


@pytest.mark.parametrize(("view", "sample"), VIEWS)
@pytest.mark.parametrize("apart", [False, True], ids=["one log", "two logs"])
def test_micro_batches_of_live_logs_have_the_rows_of_one_pass(tmp, view, sample, apart):
    rng = random.Random(f"{view}{sample}{apart}")
    with Feed(tmp / "bus", rng.randrange(1000), apart=apart, count=500) as feed:
        query = query_over(tmp / "bus", view, sample)
        while feed.append(rng.randrange(1, 150)):
            # The limit of a query may change from run to run.
            query.options["max_rows"] = rng.choice(["43", "1000"])
            query.run(now=rng.random() < 0.5)
    query.run()
    same(query.rows, one_pass(tmp / "bus", view, sample))
    assert len(query.batches) > 3


@pytest.mark.parametrize(("view", "sample"), VIEWS)
@pytest.mark.parametrize("apart", [False, True], ids=["one log", "two logs"])
def test_lost_or_damaged_states_change_no_row(tmp, view, sample, apart):
    rng = random.Random(f"{view}{sample}{apart}")
    with Feed(tmp / "bus", rng.randrange(1000), apart=apart, count=300) as feed:
        query = query_over(tmp / "bus", view, sample, max_rows=60)
        while feed.append(rng.randrange(1, 100)):
            query.run()
            if rng.random() < 0.3:
                shutil.rmtree(tmp / "state", ignore_errors=True)
            for path in (tmp / "state").rglob("*.state"):
                if rng.random() < 0.4:
                    content = bytearray(path.read_bytes())
                    content[rng.randrange(len(content))] ^= 1
                    path.write_bytes(content)
    query.run()
    same(query.rows, one_pass(tmp / "bus", view, sample))


@pytest.mark.parametrize("view", ["book", "features"])
def test_after_kills_at_any_point_the_rows_are_those_of_one_pass(tmp, view):
    rng = random.Random(view)
    killed = 0
    with Feed(tmp / "bus", 5, apart=True) as feed:
        query = query_over(tmp / "bus", view, "event", max_rows=40)
        while feed.append(rng.randrange(1, 150)):
            try:
                query.run(lambda point, number: rng.random() < 0.15)
            except Killed:
                killed += 1
    assert killed > 3
    query.run()
    same(query.rows, one_pass(tmp / "bus", view, "event"))


def test_retention_keeps_the_records_after_the_last_state_but_one(tmp):
    retention = tw.Retention(reader_ttl=0.0, max_reader_lag_bytes=0)
    options = {"segment_bytes": 8192, "retention": retention}
    with Feed(tmp / "bus", 8, apart=True, count=1500, **options) as feed:
        query = query_over(tmp / "bus", "features", "event", max_rows=200)
        expected = Feed(tmp / "kept", 8, apart=True, count=1500)
        with expected:
            expected.append()
        while feed.append(150):
            query.run()
            # There is an older state, and the records after that one still exist.
            newest = max((tmp / "state").rglob("*.state"), default=None)
            if newest is not None:
                newest.write_bytes(b"damaged")
    query.run()
    assert status(feed.paths["book"]).first_available_seq > 0
    same(query.rows, one_pass(tmp / "kept", "features", "event"))


@contextlib.contextmanager
def retired(tmp, **options):
    """Live logs whose beginning was retired, a query that has read them; `kept` is complete."""
    retention = tw.Retention(reader_ttl=0.0, max_reader_lag_bytes=0)
    live = {"segment_bytes": 8192, "retention": retention}
    with (
        Feed(tmp / "bus", 8, apart=True, count=1500, **live) as feed,
        Feed(tmp / "kept", 8, apart=True, count=1500) as kept,
    ):
        query = query_over(tmp / "bus", "book", "event", max_rows=200, **options)
        for _ in range(6):
            feed.append(150)
            query.run()
        wait_until(lambda: status(feed.paths["book"]).first_available_seq > 0)
        kept.append()
        yield feed, query


def rewrite_states(directory, state):
    """Replace the content of all states, with valid headers."""
    for path in directory.rglob("*.state"):
        magic, header, _ = path.read_bytes().split(b"\n", 2)
        document = json.loads(header)
        document |= {"bytes": len(state), "sha256": hashlib.sha256(state).hexdigest()}
        path.write_bytes(b"\n".join([magic, json.dumps(document).encode(), state]))


def test_states_of_another_release_are_rebuilt(tmp):
    with Feed(tmp / "bus", 5, apart=True) as feed:
        query = query_over(tmp / "bus", "book", "event", max_rows=100)
        while feed.append(300):
            query.run()
            rewrite_states(tmp / "state", b"a state of another release")
    query.run()
    same(query.rows, one_pass(tmp / "bus", "book", "event"))


def lose_directory(query):
    shutil.rmtree(query.options["state"])


def change_levels(query):
    query.options["levels"] = "2"


def be_another_release(query):
    rewrite_states(Path(query.options["state"]), b"a state of another release")


@pytest.mark.parametrize("lose", [lose_directory, change_levels, be_another_release])
def test_a_state_that_cannot_be_rebuilt_is_reported(tmp, lose):
    with retired(tmp) as (feed, query):
        lose(query)
        feed.append(200)
        done = len(query.batches)
        with pytest.raises(SegmentMissing, match="the state of a book is missing") as error:
            query.run()
        assert error.value.path in map(str, feed.paths.values())
        assert len(query.batches) == done
        query.options["on_damage"] = "skip"
        feed.append(200)
        query.run()
        assert len(query.batches) > done


def test_a_query_that_begins_after_retired_records_needs_no_state_to_continue(tmp):
    with retired(tmp) as (feed, first), contextlib.ExitStack() as pins:
        for path in feed.paths.values():  # retention must not pass the beginning of the query
            pinned = tw.open_subscriber(path, "holder", start="earliest", pinned=True)
            pins.enter_context(pinned).commit()
        first_seq = status(feed.paths["book"]).first_available_seq
        query = MicroBatches(**{**first.options, "reader": "late", "max_rows": "40"})
        query.run()
        for path in (tmp / "state").rglob("*.state"):
            path.unlink()
        assert query.committed > 1
        query.committed -= 1  # the last batch is repeated
        before = query.rows
        query.run()
        assert status(feed.paths["book"]).first_available_seq == first_seq > 0
        same(query.rows, before)


def test_with_damage_skipped_existing_states_are_still_used(tmp, caplog):
    with retired(tmp) as (feed, query):
        query.options["on_damage"] = "skip"
        feed.append()
    query.run()
    assert "the state of a book is missing" not in caplog.text
    same(query.rows, one_pass(tmp / "kept", "book", "event"))


@pytest.mark.parametrize("limit", [30, 1000])
def test_a_missing_segment_is_skipped_as_in_one_pass(tmp, limit):
    with Feed(tmp / "bus", 5, apart=True, segment_bytes=8192) as feed:
        feed.append()
    os.rename(status(feed.paths["book"]).segments[2].path, tmp / "away")
    query = query_over(tmp / "bus", "book", "event", max_rows=limit, on_damage="skip").run()
    same(query.rows, one_pass(tmp / "bus", "book", "event", on_damage="skip"))


def test_two_queries_may_share_a_directory_of_states(tmp):
    with retired(tmp) as (feed, book):
        other = MicroBatches(**{**book.options, "reader": "other", "levels": "1"})
        while feed.append(50):
            other.run()
            book.run()
            directories = list((tmp / "state").iterdir())
            assert len(directories) == 2
            assert all(len(list(each.glob("*.state"))) >= 2 for each in directories)
    book.run()
    same(book.rows, one_pass(tmp / "kept", "book", "event"))


def test_records_of_one_log_wait_for_the_other(tmp):
    with Feed(tmp / "bus", 1, apart=True) as feed:
        feed.append(300)
        query = query_over(tmp / "bus", "features", "event").run()
        times = [status(path).last_timestamp_ns for path in feed.paths.values()]
        assert max(query.column("timestamp_ns")) < min(times)
    query.run()
    assert max(query.column("timestamp_ns")) >= max(times)


def test_a_new_day_continues_with_the_book_of_the_last_one(tmp):
    root = tmp / "archive"
    tape = random_tape(3, 900)
    query = MicroBatches(root, state=tmp / "state", **options_of("book", "event", root))
    write_days(root, [tape[300 * day : 300 * day + 300] for day in range(3)], query.run)
    query.run()
    found = query.rows
    same(found, batch(root, partitions=1, **options_of("book", "event", root)))


@pytest.mark.parametrize("flat", [False, True])
def test_decimal_prices_are_those_of_a_batch(tmp, flat):
    with Feed(tmp / "bus", 9, apart=False, count=200) as feed:
        feed.append()
    asked = {"prices": "decimal", "flat": flat}
    query = query_over(tmp / "bus", "book", "event", max_rows=30, **asked).run()
    same(query.rows, one_pass(tmp / "bus", "book", "event", **asked))


def test_time_ranges_work_as_in_a_batch(tmp):
    with Feed(tmp / "bus", 4, apart=True) as feed:
        feed.append()
    times = one_pass(tmp / "bus", "features", "event").column("timestamp_ns").to_pylist()
    for sample in ("event", "100ms"):
        asked = {"time_from": times[200], "time_to": times[700]}
        shutil.rmtree(tmp / "state", ignore_errors=True)
        query = query_over(tmp / "bus", "features", sample, max_rows=50, **asked).run()
        same(query.rows, one_pass(tmp / "bus", "features", sample, **asked))


def test_several_instruments_of_one_log_are_replayed_separately(tmp):
    from tests.support.feature_tapes import write_three

    write_three(tmp / "mixed", 400)
    for symbols in ({}, {"symbols": "BTCUSDT,ETHUSDT"}):
        shutil.rmtree(tmp / "state", ignore_errors=True)
        asked = {"view": "features", "features": "mid,ofi", **symbols}
        name = f"q{len(symbols)}"
        query = MicroBatches(
            tmp / "mixed", reader=name, state=tmp / "state", max_rows=77, **asked
        ).run()
        key = [("symbol", "ascending"), ("timestamp_ns", "ascending")]
        expected = batch(tmp / "mixed", partitions=1, **asked)
        assert query.rows.sort_by(key).equals(expected.sort_by(key))
        if symbols:
            assert set(query.column("symbol")) == {"BTCUSDT", "ETHUSDT"}


def test_a_directory_for_states_is_required(tmp):
    with Feed(tmp / "bus", 1, apart=False) as feed:
        feed.append(10)
    query = MicroBatches(tmp / "bus", reader="q", view="book")
    with pytest.raises(InvalidOption, match=r'option\("state", DIR\)'):
        query.run()


def test_a_file_is_refused_as_directory_for_states(tmp):
    with Feed(tmp / "bus", 1, apart=False) as feed:
        feed.append(10)
    (tmp / "state").write_text("x")
    with pytest.raises(InvalidOption, match="not a directory: state="):
        query_over(tmp / "bus", "book", "event").run()


def test_old_states_are_deleted(tmp):
    with Feed(tmp / "bus", 2, apart=False) as feed:
        feed.append()
    query_over(tmp / "bus", "book", "event", max_rows=20).run()
    assert len(list((tmp / "state").rglob("*.state"))) <= 4


def test_duplicated_records_have_the_same_effect_as_in_a_batch(tmp):
    with Feed(tmp / "bus", 6, apart=True) as feed:
        feed.duplicated = True
        query = query_over(tmp / "bus", "book", "event", max_rows=50)
        while feed.append(100):
            query.run()
    query.run()
    same(query.rows, one_pass(tmp / "bus", "book", "event"))


@pytest.mark.parametrize("limit", [7, 1000])
def test_late_records_are_returned_without_newer_ones(tmp, limit):
    with Feed(tmp / "bus", 7, apart=True, count=400) as feed:
        feed.append()
    query = query_over(tmp / "bus", "features", "event", max_rows=limit).run()
    late = [event for event in random_tape(7, 400) if event.kind == "trade"][-30:-5]
    for round_ in range(2):
        with tw.open_publisher(feed.paths["trades"]) as writer:
            for event in late:
                type_id, payload = feed.encode(event)
                writer.append(type_id, payload, timestamp_ns=event.time)
        query.run()
        records = sum(status(path).records for path in feed.paths.values())
        assert query.rows.num_rows == records, round_
    batches = len(query.batches)
    assert len(query.run().batches) == batches


@pytest.mark.parametrize("now", [True, False])
def test_max_skew_limits_the_wait_for_a_silent_stream(tmp, now):
    with Feed(tmp / "bus", 1, apart=True) as feed:
        feed.append(300)
        writers = feed.paths["book"], feed.paths["trades"]
        quiet = status(writers[1]).last_timestamp_ns
        for _ in range(400):
            feed.append_only("book")
        last = status(writers[0]).last_timestamp_ns
        waiting = query_over(tmp / "bus", "features", "event").run(now=now)
        assert max(waiting.column("timestamp_ns")) <= quiet
        assert last - quiet > 20 * 10**9
        query = MicroBatches(**{**waiting.options, "reader": "other", "max_skew": "5s"})
        query.run(now=now)
        assert list(query.offsets[-1]["times"].values()) == [last - 5 * 10**9]
        assert quiet < max(query.column("timestamp_ns")) < last - 5 * 10**9
        feed.append()
    query.run()
    same(query.rows, one_pass(tmp / "bus", "features", "event"))


@pytest.mark.parametrize("lose_states", [False, True])
def test_records_of_a_passed_time_are_returned_once(tmp, lose_states):
    """Their rows are at the current replay time.

    Here streaming differs from a batch over the same logs, which puts the records in order.
    """
    with Feed(tmp / "bus", 7, apart=True, count=400) as feed:
        feed.append(300)
    query = query_over(tmp / "bus", "features", "event", max_rows=100).run()
    before = query.rows
    with tw.open_publisher(feed.paths["trades"]) as writer:
        late = [event for event in random_tape(7, 400)[:300] if event.kind == "trade"][-20:]
        for event in late:
            type_id, payload = feed.encode(event)
            writer.append(type_id, payload, timestamp_ns=event.time)
    if lose_states:
        shutil.rmtree(tmp / "state")
    feed.open()
    feed.append()
    feed.close()
    query.run()
    found = query.rows
    assert found.slice(0, before.num_rows).equals(before)
    assert found.num_rows == sum(status(path).records for path in feed.paths.values())
    times = found.column("timestamp_ns").to_pylist()
    assert times == sorted(times)


@pytest.mark.parametrize("view", ["book", "features"])
@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "middle", "last"])
def test_a_segment_whose_header_is_damaged_is_reported_or_skipped(tmp, view, which):
    with Feed(tmp / "bus", 7, apart=True, count=300, segment_bytes=8192) as feed:
        feed.append()
    everything = one_pass(tmp / "bus", view, "event")
    path = [part.path for part in status(feed.paths["book"]).segments if part.holds_records][which]
    break_header(path)
    with pytest.raises(CorruptMetadata, match="damaged") as error:
        one_pass(tmp / "bus", view, "event")
    assert error.value.path == path
    with pytest.raises(CorruptMetadata, match="damaged"):
        query_over(tmp / "bus", view, "event").run()
    found = one_pass(tmp / "bus", view, "event", on_damage="skip")
    assert 0 < found.num_rows < everything.num_rows
    query = query_over(tmp / "bus", view, "event", on_damage="skip", max_rows=60).run()
    same(query.rows, found)
    if view == "book":
        rows = set(map(str, everything.to_pylist()))
        assert all(str(row) in rows for row in found.to_pylist() if row["trusted"])


# ---- the cost of a micro-batch -------------------------------------------------------------------


@pytest.fixture
def replayed(monkeypatch):
    """The number of records that each stream of rows had read when its state was saved."""
    counts = []
    save = RowStream.save

    def counted(stream):
        counts.append(stream.records)
        return save(stream)

    monkeypatch.setattr(RowStream, "save", counted)
    return counts


@pytest.mark.parametrize("view", ["book", "features"])
def test_a_book_that_stays_untrusted_costs_each_micro_batch_its_own_records(tmp, view, replayed):
    feed = L2Feed(ONE)
    (tmp / "bus").mkdir()
    Instruments([ONE]).save(tmp / "bus")
    path = bus.Layout(tmp / "bus").streams.clean(ONE.venue, ONE.symbol, "book")
    times = iter(range(START_NS, START_NS + 10**12, 10**7))
    with tw.open_publisher(path, segment_bytes=1 << 20) as writer:

        def append(payload, time):
            writer.append(0x1000, payload, timestamp_ns=time)

        for _ in range(2):  # waits for its first snapshot; then for one after a gap
            feed.update += 5
            for n in range(150):
                if n == 100:
                    late = copy.deepcopy(feed)
                append(feed.diff(time := next(times)), time)
            # A snapshot from before the last diffs, which waited and are applied after it.
            append(late.snapshot(time := next(times)), time)
            for _ in range(20):
                append(feed.diff(time := next(times)), time)
    query = query_over(tmp / "bus", view, "event", max_rows=10).run()
    expected = one_pass(tmp / "bus", view, "event")
    same(query.rows, expected)
    assert len(replayed) == len(query.batches) > 30
    assert max(replayed) <= 10
    if view == "book":
        assert 40 <= sum(expected.column("trusted").to_pylist()) < 100


@pytest.mark.parametrize("sample", ["event", "100ms"])
def test_a_task_opens_only_the_logs_that_it_needs(tmp, sample, monkeypatch):
    days = 8
    write_days(
        tmp / "archive", [random_tape(3, 40 * days)[40 * n : 40 * n + 40] for n in range(days)]
    )
    opened = []
    for module in (sources, replay_steps):
        monkeypatch.setattr(
            module,
            "open_log",
            lambda path, **more: opened.append(str(path)) or tw.open_log(path, **more),
        )
    counts = []
    read = replayed_reader.read_step

    def counted(step, options):
        opened.clear()
        yield from read(step, options)
        counts.append(len(set(opened)))

    monkeypatch.setattr(replayed_reader, "read_step", counted)
    asked = options_of("features", sample, tmp)
    query = MicroBatches(tmp / "archive", state=tmp / "state", max_rows=80, **asked).run()
    assert len(counts) == len(query.batches) > days
    assert max(counts) <= 4 < 2 * days
    same(query.rows, batch(tmp / "archive", partitions=1, **asked))
    # The log of an old day is continued: it is opened again, at its position.
    counts.clear()
    first = next((tmp / "archive").rglob("2026-01-01/book"))
    late = random_tape(3, 40 * days)[1]
    type_id, payload = TapeWriter(tmp / "y", ONE).payload(late)
    with tw.open_publisher(first) as writer:
        before = query.rows.num_rows
        writer.append(type_id, payload, timestamp_ns=late.time)
    query.run()
    assert len(counts) == 1
    assert counts[0] <= 4
    assert query.rows.num_rows == before + (sample == "event")
