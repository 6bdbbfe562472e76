"""Where a named reader starts, what it commits, and where it resumes."""

import datetime as dt
import threading

import pytest

import tapewire as tw
from tests.support import queue_files
from tests.support.entries import BASE_NS, seqs
from tests.support.processes import WRITER, Child
from tests.support.queue_format import segment_path

COUNT = 60  # several segments


@pytest.fixture
def writer(publisher):
    writer = publisher()
    for number in range(COUNT):
        writer.append(1, bytes(500), timestamp_ns=BASE_NS + 10 * number)
    return writer


def test_a_new_name_starts_at_the_earliest_record(writer, subscriber):
    assert seqs(subscriber()) == list(range(COUNT))


def test_resume_continues_after_what_was_committed(writer, subscriber):
    with subscriber() as reader:
        reader.read_batch(25)
        reader.commit()
        reader.read_batch(10)  # read, not committed: read again
    assert seqs(subscriber()) == list(range(25, COUNT))


def test_resume_without_a_commit_starts_where_the_name_was_first_opened(writer, subscriber):
    with subscriber() as reader:
        list(reader)
    assert seqs(subscriber()) == list(range(COUNT))


def test_resume_at_the_end_yields_only_new_records(writer, subscriber):
    with subscriber() as reader:
        list(reader)
        reader.commit()
    reader = subscriber()
    assert reader.next() is None
    writer.append(1, b"new")
    assert seqs(reader) == [COUNT]


@pytest.mark.parametrize("count", [0, 1, 13, 14, 15, 59, 60])
def test_resume_is_correct_at_every_place_of_a_segment(writer, subscriber, count):
    with subscriber() as reader:
        for _ in range(count):
            reader.next()
        reader.commit()
    assert seqs(subscriber()) == list(range(count, COUNT))


def test_names_commit_separately(writer, subscriber):
    for name, count in (("a", 5), ("b", 40)):
        with subscriber(name) as reader:
            reader.read_batch(count)
            reader.commit()
    assert seqs(subscriber("a")) == list(range(5, COUNT))
    assert seqs(subscriber("b")) == list(range(40, COUNT))


def test_earliest_starts_over_regardless_of_commits(writer, subscriber):
    with subscriber() as reader:
        list(reader)
        reader.commit()
    assert seqs(subscriber(start="earliest")) == list(range(COUNT))


def test_latest_yields_only_later_records(writer, subscriber):
    reader = subscriber(start="latest")
    assert reader.next() is None
    writer.append(1, b"new")
    assert seqs(reader) == [COUNT]


@pytest.mark.parametrize("number", [0, 1, 30, 59])
def test_seq_starts_at_that_number(writer, subscriber, number):
    assert seqs(subscriber(start=tw.Seq(number))) == list(range(number, COUNT))


def test_seq_past_the_end_starts_at_the_end(writer, subscriber):
    reader = subscriber(start=tw.Seq(10**6))
    assert reader.next() is None
    writer.append(1, b"new")
    assert seqs(reader) == [COUNT]


@pytest.mark.parametrize(
    "time",
    [
        BASE_NS + 300,
        BASE_NS + 291,
        dt.datetime.fromtimestamp(BASE_NS // 10**9, dt.UTC) + dt.timedelta(0),
    ],
    ids=["at", "between", "datetime"],
)
def test_time_starts_at_the_first_record_of_that_time_or_later(writer, subscriber, time):
    expected = 0 if isinstance(time, dt.datetime) else 30
    assert seqs(subscriber(start=tw.Time(time))) == list(range(expected, COUNT))


def test_time_past_the_last_record_starts_at_the_end(writer, subscriber):
    assert subscriber(start=tw.Time(BASE_NS + 10**12)).next() is None


@pytest.mark.parametrize("wrong", ["newest", "", 5, None, 1.5, ("seq", 1)], ids=repr)
def test_another_start_is_refused_and_leaves_no_reader(writer, queue, wrong):
    with pytest.raises(tw.InvalidOption, match="start"):
        tw.open_subscriber(queue, "r", start=wrong)
    tw.open_subscriber(queue, "r").close()


def test_committed_is_the_position_on_file(writer, subscriber, queue):
    reader = subscriber()
    reader.read_batch(20)
    assert reader.committed != reader.position
    reader.commit()
    assert reader.committed == reader.position
    slot = queue_files.reader_slot(queue, "r")
    assert (slot["segment_id"], slot["offset"]) == tuple(reader.committed)


def test_a_seek_changes_nothing_that_was_committed(writer, subscriber):
    with subscriber() as reader:
        reader.read_batch(20)
        reader.commit()
        reader.seek_start()
        reader.seek_end()
    assert seqs(subscriber()) == list(range(20, COUNT))


def test_a_commit_after_a_seek_back_counts(writer, subscriber):
    with subscriber() as reader:
        list(reader)
        reader.commit()
        reader.seek_seq(10)
        reader.commit()
    assert seqs(subscriber()) == list(range(10, COUNT))


def test_a_reader_with_types_commits_past_what_it_skips(writer, subscriber):
    writer.append(2, b"wanted")
    writer.append(1, b"skipped")
    with subscriber(types={2}) as reader:
        assert seqs(reader) == [COUNT]
        reader.commit()
    assert seqs(subscriber()) == []


def test_an_anonymous_reader_has_nothing_to_commit(writer, queue):
    with tw.open_log(queue) as reader:
        assert "commit" not in reader.caps
        assert reader.committed is None
        with pytest.raises(tw.InvalidOption, match="anonymous"):
            reader.commit()
    assert not (queue / "readers").exists()


def test_the_caps_of_a_named_reader_include_commit(writer, subscriber):
    assert "commit" in subscriber().caps


def test_a_missing_path_is_not_found(queue):
    with pytest.raises(FileNotFoundError):
        tw.open_subscriber(queue, "r")
    assert not queue.exists()


def test_create_timeout_ends_in_not_found(queue):
    with pytest.raises(FileNotFoundError):
        tw.open_subscriber(queue, "r", create_timeout=0.01)
    assert not queue.exists()


@pytest.mark.parametrize("wrong", [-1, "1", float("nan")], ids=repr)
def test_an_invalid_create_timeout_is_refused(queue, wrong):
    with pytest.raises((tw.InvalidOption, TypeError)):
        tw.open_subscriber(queue, "r", create_timeout=wrong)


def test_create_timeout_waits_for_the_queue(queue):
    opened = []
    thread = threading.Thread(
        target=lambda: opened.append(tw.open_subscriber(queue, "r", create_timeout=30))
    )
    thread.start()
    with Child(WRITER, queue, 8192) as child:
        child.expect("ready")
        child.send("3")
        child.expect("3")
        thread.join(30)
        with opened[0] as reader:
            assert seqs(reader.follow(timeout=0)) == [0, 1, 2]


def test_create_timeout_of_an_existing_queue_does_not_wait(writer, subscriber):
    assert subscriber(create_timeout=3600).next().seq == 0


def test_earliest_is_the_earliest_record_that_is_left(writer, subscriber, queue):
    writer.flush_sync()  # a segment deleted before its sync would make close() fail
    segment_path(queue, 0).unlink()
    with tw.open_log(queue) as reader:
        first = reader.next().seq
    assert first > 0
    assert seqs(subscriber()) == list(range(first, COUNT))


def test_close_keeps_the_reader_s_file_and_forget_removes_it(writer, subscriber, queue):
    path = queue / "readers" / "r.meta"
    with subscriber() as reader:
        reader.read_batch(10)
        reader.commit()
    assert path.stat().st_size == 80
    subscriber().close(forget=True)
    assert not path.exists()
    assert seqs(subscriber()) == list(range(COUNT))


def test_repr_has_the_name_and_the_position(writer, subscriber, queue):
    reader = subscriber("strategy_a")
    reader.next()
    assert str(queue) in repr(reader)
    assert "strategy_a" in repr(reader)
    assert "last_seq=0" in repr(reader)
