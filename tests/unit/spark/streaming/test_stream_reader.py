"""The reader of streaming queries: every record once, wherever runs end and continue."""

import os
import random
import shutil
import time

import pytest

import tapewire as tw
from tapewire import bus
from tapewire.errors import (
    CorruptMetadata,
    CorruptRecord,
    InvalidOption,
    ReaderAlreadyActive,
    SegmentMissing,
)
from tapewire.queue import status
from tapewire.queue._native import remove_reader
from tapewire.spark.streaming import pinned_readers
from tests.support.crafted import break_header
from tests.support.micro_batches import Killed, MicroBatches, batch

POINTS = ["planning", "offset", "partitions", "task", "written"]


def append(writer, count, size=0):
    for _ in range(count):
        writer.append(1 + writer.next_seq % 3, b"%d" % writer.next_seq + bytes(size))


@pytest.fixture
def md(tmp):
    """A live queue of 500 records, and its writer."""
    with tw.open_publisher(tmp / "md", segment_bytes=8192) as writer:
        append(writer, 500)
        yield writer


def on(writer, **options):
    return MicroBatches(writer.path, **{"reader": "q", **options})


def pinned_at(path, name="q"):
    (found,) = [reader for reader in status(path).readers if reader.name == name]
    assert found.pinned
    return found.next_seq


# ---- rows ----------------------------------------------------------------------------------------


def test_a_run_continues_where_the_last_one_ended(md):
    query = on(md).run()
    append(md, 300)
    query.run()
    assert query.column("seq") == list(range(800))
    assert query.counts() == [500, 300]


@pytest.mark.parametrize("limit", [{}, {"max_rows": 7}, {"max_rows": 500}, {"max_bytes": 1000}])
def test_streaming_returns_the_same_bytes_as_a_batch(md, limit):
    assert on(md, **limit).run().rows == batch(md.path)


def test_rows_of_a_micro_batch_are_limited(md):
    assert on(md, max_rows=200).run().counts() == [200, 200, 100]


def test_bytes_of_a_micro_batch_are_limited(md):
    counts = on(md, max_bytes=67 * 10).run().counts()
    assert set(counts[:-1]) <= {10, 9}
    assert sum(counts) == 500


def test_with_two_limits_the_smaller_one_applies(md):
    assert max(on(md, max_rows=50, max_bytes=670).run().counts()) <= 10


def test_records_appended_during_a_run_are_left_for_the_next_run(md):
    query = on(md, max_rows=100)
    query.run(lambda point, number: append(md, 10) if point == "task" else False)
    assert query.column("seq") == list(range(500))
    query.run()
    assert query.column("seq") == list(range(550))


def test_a_continuous_query_reads_records_appended_meanwhile(md):
    query = on(md, max_rows=100)
    query.run(lambda point, number: append(md, 10) if point == "task" else False, now=False, most=9)
    assert len(query.column("seq")) > 550
    assert query.column("seq") == list(range(len(query.column("seq"))))


def test_filters_and_columns_work_as_in_a_batch(md):
    asked = {"types": "2", "columns": "payload,seq", "seq_from": 90, "seq_to": 411}
    found = on(md, max_rows=33, **asked).run().rows
    assert found == batch(md.path, **asked)
    assert found.column_names == ["payload", "seq"]


def test_time_ranges_work_as_in_a_batch(tmp):
    with tw.open_publisher(tmp / "md", segment_bytes=8192) as writer:
        for n in range(100):
            writer.append(1, b"x", timestamp_ns=1000 + 10 * n)
    asked = {"time_from": 1205, "time_to": 1705}
    query = MicroBatches(tmp / "md", reader="q", max_rows=7, **asked).run()
    assert query.column("timestamp_ns") == list(range(1210, 1710, 10))
    assert query.rows == batch(tmp / "md", **asked)


def test_a_large_micro_batch_has_several_tasks_and_a_small_one_has_one(tmp):
    with tw.open_publisher(tmp / "md", segment_bytes=1 << 20) as writer:
        writer.append_batch(1, [b"x"] * 90_000)
        query = MicroBatches(tmp / "md", reader="q").run()
        append(writer, 100)
        query.run()
    assert query.parts == {0: 4, 1: 1}
    assert query.column("seq") == list(range(90_100))


def test_the_option_partitions_sets_the_number_of_tasks(md):
    assert on(md, partitions=5).run().parts == {0: 5}


def test_a_query_waits_for_the_first_record_of_a_queue(tmp):
    with tw.open_publisher(tmp / "md", segment_bytes=8192) as writer:
        query = MicroBatches(tmp / "md", reader="q").run()
        assert query.offsets == []
        append(writer, 3)
        assert query.run().column("seq") == [0, 1, 2]


def test_a_sparse_log_keeps_its_sequence_numbers(tmp):
    numbers = sorted(random.Random(1).sample(range(10**12), 300))
    with tw.open_publisher(tmp / "md", segment_bytes=8192, sparse=True) as writer:
        for number in numbers:
            writer.append(1, b"x", seq=number)
    query = MicroBatches(tmp / "md", reader="q", max_rows=70).run()
    assert query.column("seq") == numbers
    assert query.counts() == [70, 70, 70, 70, 20]


# ---- trees ---------------------------------------------------------------------------------------


def archived(root, symbol, date, count):
    where = bus.ArchiveLayout(root).log("binance", symbol, date, "trades")
    with tw.open_publisher(where, segment_bytes=8192) as writer:
        append(writer, count)


def test_new_days_and_new_symbols_of_a_tree_are_found(tmp):
    archived(tmp, "BTCUSDT", "2026-01-30", 40)
    query = MicroBatches(tmp, max_rows=30).run()
    archived(tmp, "BTCUSDT", "2026-01-31", 50)
    archived(tmp, "ETHUSDT", "2026-01-30", 60)
    query.run()
    seen = sorted(zip(query.column("queue"), query.column("seq"), strict=True))
    assert seen == [
        *(("binance/BTCUSDT/2026-01-30/trades", n) for n in range(40)),
        *(("binance/BTCUSDT/2026-01-31/trades", n) for n in range(50)),
        *(("binance/ETHUSDT/2026-01-30/trades", n) for n in range(60)),
    ]
    assert max(query.counts()) == 30


def test_a_log_that_appears_during_a_run_is_left_for_the_next_run(tmp):
    archived(tmp, "BTCUSDT", "2026-01-30", 40)
    query = MicroBatches(tmp, max_rows=30)

    def later(point, number):
        if (point, number) == ("offset", 0):
            archived(tmp, "ETHUSDT", "2026-01-30", 60)

    assert len(query.run(later).column("seq")) == 40
    assert len(query.run().column("seq")) == 100


def test_a_log_that_was_read_completely_may_be_removed(tmp):
    archived(tmp, "BTCUSDT", "2026-01-30", 40)
    query = MicroBatches(tmp).run()
    (tmp / "v1/binance/BTCUSDT/2026-01-30").rename(tmp / "_tapewire")
    archived(tmp, "BTCUSDT", "2026-01-31", 50)
    assert len(query.run().column("seq")) == 90


def test_an_archive_needs_no_reader_and_gets_none(tmp):
    archived(tmp, "BTCUSDT", "2026-01-30", 40)
    MicroBatches(tmp, reader="q").run()
    assert status(tmp / "v1/binance/BTCUSDT/2026-01-30/trades").readers == ()


# ---- the pinned reader ---------------------------------------------------------------------------


def test_a_query_over_a_queue_needs_the_option_reader(md):
    with pytest.raises(InvalidOption, match=r'option\("reader", NAME\)'):
        MicroBatches(md.path).run()


def test_only_what_the_checkpoint_has_committed_is_released(md):
    query = on(md, max_rows=100)
    seen = []

    def note(point, number):
        if point in ("partitions", "task", "written"):
            seen.append((number, pinned_at(md.path)))

    query.run(note)
    assert sorted(set(seen)) == [(0, 0), (1, 100), (2, 200), (3, 300), (4, 400)]
    assert query.committed == 5
    assert pinned_at(md.path) == 400  # Spark does not report the commit of the last batch
    append(md, 1)
    query.run()
    assert pinned_at(md.path) == 500


def test_the_name_is_locked_during_a_run_and_its_position_stays_afterwards(md):
    alive = []
    query = on(md)
    query.run(lambda point, number: alive.extend(r.alive for r in status(md.path).readers))
    assert alive
    assert all(alive)
    (reader,) = status(md.path).readers
    assert (reader.name, reader.pinned, reader.alive) == ("q", True, False)


def test_a_second_query_with_the_same_name_is_refused(md, monkeypatch):
    monkeypatch.setattr(pinned_readers, "NAME_TIMEOUT_S", 0.05)

    def second(point, number):
        with pytest.raises(ReaderAlreadyActive, match="reader='q'"):
            on(md).run()
        assert on(md, reader="other").run().counts() == [500]
        return True

    with pytest.raises(Killed):
        on(md).run(lambda point, number: point == "task" and second(point, number))


def test_a_repeated_batch_locks_the_name_before_it_reads(md, monkeypatch):
    monkeypatch.setattr(pinned_readers, "NAME_TIMEOUT_S", 0.05)
    query = on(md, max_rows=100)
    with pytest.raises(Killed):
        query.run(lambda point, number: (point, number) == ("offset", 1))
    with tw.open_subscriber(md.path, "q", pinned=True):
        with pytest.raises(ReaderAlreadyActive, match="reader='q'"):
            query.run()
        assert sorted(query.batches) == [0]
    assert query.run().column("seq") == list(range(500))


def test_retention_keeps_what_a_stopped_query_has_not_read(tmp):
    retention = tw.Retention(reader_ttl=0.0, max_reader_lag_bytes=0)
    with tw.open_publisher(tmp / "md", segment_bytes=8192, retention=retention) as writer:
        query = MicroBatches(tmp / "md", reader="q", max_rows=40)
        append(writer, 100, 200)
        query.run()
        append(writer, 1000, 200)
        assert status(tmp / "md").first_available_seq <= 80
        query.run()
        assert query.column("seq") == list(range(1100))


def test_a_query_stopped_for_three_ttls_continues_where_it_was(tmp, eventually):
    retention = tw.Retention(reader_ttl=0.1, max_reader_lag_bytes=1 << 30)
    with tw.open_publisher(tmp / "md", segment_bytes=8192, retention=retention) as writer:
        append(writer, 100, 200)
        query = MicroBatches(tmp / "md", reader="q", max_rows=40).run()
        # A control: a stopped reader that is not pinned loses its records.
        with tw.open_subscriber(tmp / "md", "control", start="earliest") as control:
            control.commit()
        stopped = time.monotonic()
        append(writer, 1000, 200)
        eventually(lambda: time.monotonic() > stopped + 3 * 0.1)
        append(writer, 100, 200)
        eventually(lambda: status(tmp / "md").first_available_seq > 0)
        query.run()
        assert query.column("seq") == list(range(1200))
        with pytest.raises(SegmentMissing):
            tw.open_subscriber(tmp / "md", "control")


def test_a_live_queue_rolls_and_retires_while_it_streams(tmp, eventually):
    retention = tw.Retention(reader_ttl=0.0, max_reader_lag_bytes=0)
    with tw.open_publisher(tmp / "md", segment_bytes=8192, retention=retention) as writer:
        query = MicroBatches(tmp / "md", reader="q", max_rows=300)
        append(writer, 10)
        query.run()

        def more(point, number):
            if point in ("planning", "partitions") and writer.next_seq < 5000:
                append(writer, 200, 100)

        query.run(more, now=False)
        assert query.column("seq") == list(range(writer.next_seq))
        assert eventually(lambda: status(tmp / "md").first_available_seq > 4000)


# ---- killed --------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("number", [0, 1, 3])
def test_after_a_kill_at_any_point_no_record_is_lost_or_repeated(md, point, number):
    query = on(md, max_rows=120)
    with pytest.raises(Killed):
        query.run(lambda at, which: (at, which) == (point, number))
    append(md, 100)
    if (point, number) != ("planning", 0):
        assert pinned_at(md.path) <= 120 * query.committed
    query.run()
    assert query.column("seq") == list(range(600))


def test_repeated_kills_while_the_queue_rolls_and_retires_lose_nothing(tmp):
    rng = random.Random(7)
    retention = tw.Retention(reader_ttl=0.0, max_reader_lag_bytes=0)
    with tw.open_publisher(tmp / "md", segment_bytes=8192, retention=retention) as writer:
        query = MicroBatches(tmp / "md", reader="q", max_rows=50)
        append(writer, 1)
        query.run()

        def kill(point, number):
            append(writer, rng.randrange(20), 100)
            return rng.random() < 0.1

        killed = 0
        while writer.next_seq < 5000:
            try:
                query.run(kill, now=rng.random() < 0.5)
            except Killed:
                killed += 1
        assert killed > 20
        query.run()
        assert query.column("seq") == list(range(writer.next_seq))
        assert status(tmp / "md").first_available_seq > 0


# ---- errors --------------------------------------------------------------------------------------


def test_a_checkpoint_of_another_view_is_refused(md):
    query = on(md).run()
    query.options["view"] = "trades"
    with pytest.raises(CorruptMetadata, match="belongs to another view"):
        query.run()


def test_a_checkpoint_past_the_end_of_the_log_is_refused(md, tmp):
    query = on(md).run()
    with tw.open_publisher(tmp / "new", segment_bytes=8192) as other:
        append(other, 3)
    query.options["path"] = str(tmp / "new")
    for offset in query.offsets:
        offset["logs"] = {"new": 500}
    match = "past the end of the log: queue=new, next_seq=500, last_seq=2"
    with pytest.raises(CorruptMetadata, match=match):
        query.run()


def test_records_retired_before_they_were_read_are_reported(tmp, eventually):
    retention = tw.Retention(reader_ttl=0.0, max_reader_lag_bytes=0)
    with tw.open_publisher(tmp / "md", segment_bytes=8192, retention=retention) as writer:
        append(writer, 100, 200)
        query = MicroBatches(tmp / "md", reader="q", max_rows=50)
        with pytest.raises(Killed):
            query.run(lambda point, number: (point, number) == ("partitions", 1))
        assert remove_reader(tmp / "md", "q")
        append(writer, 100, 200)
        with tw.open_subscriber(tmp / "md", "other", start="latest") as other:
            other.commit()
            append(writer, 1)
            eventually(lambda: status(tmp / "md").first_available_seq > 100)
        with pytest.raises(SegmentMissing, match="first_wanted=50"):
            query.run()
        query.options["on_damage"] = "skip"
        query.run()
        assert query.counts() == [50, 0, 26]
        assert query.column("seq")[50:] == list(range(status(tmp / "md").first_available_seq, 201))


def damage(path, seq):
    """Overwrite the header of the record with this sequence number."""
    with tw.open_log(path) as reader:
        reader.seek_seq(seq)
        position = reader.position
    with open(f"{path}/{position.segment:09d}.q", "r+b") as file:
        file.seek(position.offset)
        file.write(b"\xff" * 24)


def test_damage_in_the_range_is_reported_or_skipped(tmp):
    with tw.open_publisher(tmp / "md", segment_bytes=8192) as writer:
        append(writer, 300)
    damage(tmp / "md", 130)
    with pytest.raises(CorruptRecord, match="md"):
        MicroBatches(tmp / "md", reader="q", max_rows=50).run()
    for limit in (7, 50, 1000):
        query = MicroBatches(tmp / "md", reader=f"q{limit}", max_rows=limit, on_damage="skip").run()
        assert query.rows == batch(tmp / "md", on_damage="skip")
        assert set(range(300)) - set(query.column("seq")) == {130}


@pytest.mark.parametrize("which", [0, 1], ids=["first", "middle"])
def test_a_segment_whose_header_is_damaged_is_skipped(tmp, which):
    with tw.open_publisher(tmp / "md", segment_bytes=8192) as writer:
        append(writer, 300)
    first, last = (status(tmp / "md").segments[which + n].first_seq for n in (0, 1))
    break_header(status(tmp / "md").segments[which].path)
    left = [n for n in range(300) if not first <= n < last]
    for limit in (7, last - first, 100, 1000):
        query = MicroBatches(tmp / "md", reader=f"q{limit}", max_rows=limit, on_damage="skip").run()
        assert query.column("seq") == left
    query = MicroBatches(tmp / "md", reader="bytes", max_bytes=3000, on_damage="skip").run()
    assert query.column("seq") == left
    for parts in (1, 16):
        found = batch(tmp / "md", on_damage="skip", partitions=parts)
        assert found.column("seq").to_pylist() == left
    inside = batch(tmp / "md", on_damage="skip", seq_from=first + 5, seq_to=last + 5)
    assert inside.column("seq").to_pylist() == list(range(last, last + 5))


def test_a_sequence_number_beyond_bigint_is_reported_before_the_checkpoint_has_it(tmp):
    with tw.open_publisher(tmp / "md", segment_bytes=8192, sparse=True) as writer:
        for number in (2**63 - 1, 2**63):
            writer.append(1, b"x", seq=number)
    query = MicroBatches(tmp / "md", reader="q")
    with pytest.raises(InvalidOption, match=f"seq={2**63}"):
        query.run()
    assert query.offsets == []
    query.options["seq_to"] = str(2**63)
    assert query.run().column("seq") == [2**63 - 1]


def test_a_missing_segment_in_the_middle_is_reported_or_skipped(tmp):
    with tw.open_publisher(tmp / "md", segment_bytes=8192) as writer:
        append(writer, 300)
    first, last = (status(tmp / "md").segments[n].first_seq for n in (2, 3))
    os.rename(status(tmp / "md").segments[2].path, tmp / "away")
    with pytest.raises(SegmentMissing, match="the next segment is missing"):
        MicroBatches(tmp / "md", reader="q").run()
    for limit in (7, first, 100, 1000):
        query = MicroBatches(tmp / "md", reader=f"q{limit}", max_rows=limit, on_damage="skip").run()
        assert query.column("seq") == [n for n in range(300) if not first <= n < last]


def test_a_queue_that_replaced_another_is_reported(md, caplog):
    query = on(md, max_rows=300).run()
    md.close()
    shutil.rmtree(md.path)
    with tw.open_publisher(md.path, segment_bytes=8192) as writer:
        append(writer, 600)
    query.run()
    assert "this is another queue of the same name" in caplog.text


def test_a_batch_reports_a_damaged_header_at_the_end_of_a_log(tmp):
    with tw.open_publisher(tmp / "md", segment_bytes=8192) as writer:
        append(writer, 300)
    last = [part for part in status(tmp / "md").segments if part.holds_records][-1]
    break_header(last.path)
    with pytest.raises(CorruptMetadata, match="at the end") as error:
        batch(tmp / "md")
    assert error.value.path == last.path
    for asked in ({"on_damage": "skip"}, {"seq_to": last.first_seq}):
        assert batch(tmp / "md", **asked).num_rows == last.first_seq


@pytest.mark.parametrize("which", [0, -1])
def test_a_damaged_unread_segment_is_reported(tmp, which):
    with tw.open_publisher(tmp / "md", segment_bytes=8192) as writer:
        append(writer, 300, 100)
    path = [part.path for part in status(tmp / "md").segments if part.holds_records][which]
    break_header(path)
    with pytest.raises(CorruptMetadata, match="damaged") as error:
        MicroBatches(tmp / "md", reader="q").run()
    assert error.value.path == path


def test_a_segment_that_was_read_before_may_be_damaged(tmp):
    with tw.open_publisher(tmp / "md", segment_bytes=8192) as writer:
        append(writer, 300, 100)
        query = MicroBatches(tmp / "md", reader="q").run()
        break_header(status(tmp / "md").segments[1].path)
        append(writer, 10)
        assert query.run().counts() == [300, 10]
