"""Pinned readers of a query: what is kept, what is released, and when."""

import pytest

import tapewire as tw
from tapewire.errors import InvalidName, ReaderAlreadyActive
from tapewire.queue import status
from tapewire.spark.streaming.pinned_readers import PinnedReaders


@pytest.fixture
def queue(tmp):
    """100 records, seven per segment."""
    with tw.open_publisher(tmp / "md", segment_bytes=8192) as writer:
        for _ in range(100):
            writer.append(1, bytes(1000))
    return str(tmp / "md")


def next_seq(queue):
    (reader,) = status(queue).readers
    assert reader.pinned
    return reader.next_seq


def test_everything_is_kept_until_it_is_released(queue):
    with PinnedReaders("q") as pins:
        pins.hold("md", queue, 0)
        assert next_seq(queue) == 0
        pins.release({"md": 40})
        assert next_seq(queue) == 40
        pins.release({"md": 100})
        assert status(queue).readers[0].lag_records == 0


def test_a_release_never_moves_back(queue):
    with PinnedReaders("q") as pins:
        pins.hold("md", queue, 0)
        pins.release({"md": 40})
        pins.release({"md": 20})
        assert next_seq(queue) == 40


def test_the_position_stays_when_the_query_stops(queue):
    with PinnedReaders("q") as pins:
        pins.hold("md", queue, 0)
        pins.release({"md": 40})
    (reader,) = status(queue).readers
    assert (reader.alive, reader.pinned, reader.next_seq) == (False, True, 40)


def test_a_restart_does_not_move_it_forward(queue):
    with PinnedReaders("q") as pins:
        pins.hold("md", queue, 0)
        pins.release({"md": 40})
    with PinnedReaders("q") as pins:
        pins.hold("md", queue, 60)
        assert next_seq(queue) == 40


def test_an_older_checkpoint_moves_it_back(queue):
    with PinnedReaders("q") as pins:
        pins.hold("md", queue, 0)
        pins.release({"md": 60})
    with PinnedReaders("q") as pins:
        pins.hold("md", queue, 20)
        assert next_seq(queue) == 20


def test_a_second_reader_with_the_same_name_is_refused(queue):
    with PinnedReaders("mine") as pins:
        pins.hold("md", queue, 0)
        with (
            PinnedReaders("mine", timeout_s=0.05) as second,
            pytest.raises(ReaderAlreadyActive, match="reader='mine'"),
        ):
            second.hold("md", queue, 0)
        with PinnedReaders("other") as other:
            other.hold("md", queue, 0)


def test_retention_waits_for_it_while_it_is_stopped(tmp, eventually):
    retention = tw.Retention(reader_ttl=0.0, max_reader_lag_bytes=0)
    with tw.open_publisher(tmp / "md", segment_bytes=8192, retention=retention) as writer:
        for _ in range(30):
            writer.append(1, bytes(1000))
        with PinnedReaders("q") as pins:
            pins.hold("md", str(tmp / "md"), 0)
            first = status(tmp / "md").first_available_seq
        for _ in range(100):
            writer.append(1, bytes(1000))
        assert status(tmp / "md").first_available_seq == first
        with PinnedReaders("q") as pins:
            pins.hold("md", str(tmp / "md"), first)
            pins.release({"md": 125})
            eventually(lambda: status(tmp / "md").first_available_seq > 100)
            assert status(tmp / "md").first_available_seq <= 125


def test_a_name_that_is_not_a_valid_file_name_is_refused():
    with pytest.raises(InvalidName, match="reader="):
        PinnedReaders("../x")
