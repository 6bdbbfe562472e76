"""reserve: filled in place, committed completely or shorter, aborted without a trace."""

import numpy as np
import pytest

import tapewire as tw
from tapewire import _native
from tests.support.entries import payloads
from tests.support.queue_format import key_of, record, segment_path, state_at
from tests.support.records import stored, stored_payloads


@pytest.fixture
def writer(publisher):
    return publisher()


def test_leaving_the_block_commits_what_was_written(writer, queue):
    with writer.reserve(0x1001, 5, timestamp_ns=17, flags=0x0100) as slot:
        assert isinstance(slot, memoryview)
        assert (slot.readonly, len(slot), slot.format) == (False, 5, "B")
        slot[:] = b"hello"
        assert stored(queue) == []
    assert [tuple(e) for e in stored(queue)] == [(0, 17, 0x1001, 0x0100, b"hello")]
    assert writer.next_seq == 1


def test_a_reserved_place_is_zero(writer):
    with writer.reserve(1, 64) as slot:
        assert bytes(slot) == bytes(64)


def test_numpy_can_write_into_the_place(writer, queue):
    with writer.reserve(1, 16) as slot:
        np.frombuffer(slot, "<u8")[:] = [7, 9]
    assert np.frombuffer(stored_payloads(queue)[0], "<u8").tolist() == [7, 9]


def test_the_bytes_on_file_are_those_of_an_append(writer, queue):
    with writer.reserve(3, 7, timestamp_ns=17) as slot:
        slot[:] = b"payload"
    data = segment_path(queue, 0).read_bytes()
    state = state_at(key_of(queue), 0, 64)
    expected = record(0, b"payload", timestamp_ns=17, type_id=3, state=state)
    assert data[64 : 64 + len(expected)] == expected


def test_an_error_in_the_block_aborts_and_propagates(writer, queue):
    def fill_and_fail():
        with writer.reserve(1, 300) as slot:
            slot[:] = b"z" * 300
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fill_and_fail()
    assert stored(queue) == []
    assert writer.append(1, b"next") == 0
    assert stored_payloads(queue) == [b"next"]


def test_commit_returns_the_number(writer):
    writer.append(1, b"x")
    slot = writer.reserve(1, 8)
    assert slot.commit() == 1
    assert writer.next_seq == 2


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 299, 300])
def test_a_shorter_commit_is_a_shorter_record_followed_by_zeros(writer, queue, length):
    slot = writer.reserve(1, 300)
    slot.buffer[:] = b"z" * 300
    slot.commit(length)
    writer.append(1, b"next")
    writer.append(1, b"")
    assert stored_payloads(queue) == [b"z" * length, b"next", b""]


@pytest.mark.parametrize("length", [-1, 301, 10**9])
def test_a_commit_longer_than_reserved_is_refused_and_can_be_repeated(writer, queue, length):
    slot = writer.reserve(1, 300)
    with pytest.raises(tw.InvalidOption, match="length"):
        slot.commit(length)
    slot.commit(2)
    assert stored_payloads(queue) == [bytes(2)]


def test_commit_inside_the_block_counts(writer, queue):
    reservation = writer.reserve(1, 300)
    with reservation as slot:
        slot[:3] = b"abc"
        reservation.commit(3)
    assert stored_payloads(queue) == [b"abc"]


def test_abort_inside_the_block_counts(writer, queue):
    reservation = writer.reserve(1, 300)
    with reservation as slot:
        slot[:3] = b"abc"
        reservation.abort()
    assert stored(queue) == []


def test_an_aborted_place_is_zero_again(writer, queue):
    slot = writer.reserve(1, 1000)
    slot.buffer[:] = b"z" * 1000
    slot.abort()
    assert not any(segment_path(queue, 0).read_bytes()[64:])


def test_a_reservation_ends_once(writer):
    for end in ("commit", "abort"):
        slot = writer.reserve(1, 8)
        getattr(slot, end)()
        with pytest.raises(tw.ClosedHandle):
            slot.commit()
        with pytest.raises(tw.ClosedHandle):
            slot.abort()
        assert "over" in repr(slot)


def test_filled_and_aborted_then_three_small_appends_under_a_live_reader(writer, queue):
    """A header in the leftover bytes would be a fourth record, or damage."""
    fake = b"".join(record(seq, b"not a record") for seq in range(30))
    with tw.open_log(queue) as reader:
        slot = writer.reserve(1, len(fake))
        slot.buffer[:] = fake
        assert reader.next() is None
        slot.abort()
        assert not reader.wait(0)
        for name in (b"one", b"two", b"three"):
            writer.append(1, name)
        assert payloads(reader.follow(timeout=0)) == [b"one", b"two", b"three"]


def test_filled_and_committed_shorter_then_appends_under_a_live_reader(writer, queue):
    fake = b"".join(record(seq, b"not a record") for seq in range(30))
    with tw.open_log(queue) as reader:
        slot = writer.reserve(1, len(fake))
        slot.buffer[:] = fake
        slot.commit(10)
        assert payloads(reader.follow(timeout=0)) == [fake[:10]]
        writer.append(1, b"next")
        assert payloads(reader.follow(timeout=0)) == [b"next"]


def test_a_reservation_wakes_a_reader_when_it_is_committed(writer, queue):
    with tw.open_log(queue) as reader:
        slot = writer.reserve(1, 8)
        assert not reader.wait(0)
        slot.commit()
        assert reader.wait(0)


@pytest.mark.parametrize(
    "append",
    [
        lambda w: w.append(1, b"x"),
        lambda w: w.append_batch(1, [b"x"]),
        lambda w: w.append_batch(1, np.zeros((3, 8), "u1")),
        lambda w: w.reserve(1, 8),
    ],
    ids=["append", "list", "array", "reserve"],
)
def test_appending_while_one_is_open_raises_and_changes_nothing(writer, queue, append):
    with writer.reserve(1, 500) as slot:
        slot[:] = b"s" * 500
        with pytest.raises(tw.ReservationOpen):
            append(writer)
    assert writer.append(1, b"next") == 1
    assert stored_payloads(queue) == [b"s" * 500, b"next"]


def test_an_empty_append_while_one_is_open_raises_too(writer):
    with writer.reserve(1, 0), pytest.raises(tw.ReservationOpen):
        writer.append(1, b"")


def test_flushing_while_one_is_open_leaves_it_open(writer, queue):
    with writer.reserve(1, 3) as slot:
        slot[:] = b"abc"
        writer.flush_sync()
        writer.flush_async()
        writer.metrics()
        with pytest.raises(tw.ReservationOpen):
            writer.append(1, b"x")
    assert stored_payloads(queue) == [b"abc"]


def test_closing_the_writer_with_an_open_one_aborts_it(publisher, queue):
    writer = publisher()
    writer.append(1, b"before")
    slot = writer.reserve(1, 3)
    slot.buffer[:] = b"abc"
    writer.close()
    with pytest.raises(tw.ClosedHandle):
        slot.commit()
    assert publisher().append(1, b"after") == 1
    assert stored_payloads(queue) == [b"before", b"after"]


def test_leaving_the_block_after_the_writer_was_closed_raises(publisher, queue):
    writer = publisher()
    with pytest.raises(tw.ClosedHandle), writer.reserve(1, 3):
        writer.close()
    assert stored(queue) == []


def test_an_error_in_the_block_after_the_writer_was_closed_propagates(publisher):
    writer = publisher()

    def close_and_fail():
        with writer.reserve(1, 3):
            writer.close()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        close_and_fail()


def test_a_view_held_beyond_the_block_keeps_its_memory(writer, queue):
    with writer.reserve(1, 5) as slot:
        slot[:] = b"hello"
    for _ in range(100):
        writer.append(1, bytes(500))
    writer.close()
    assert bytes(slot) == b"hello"


def test_places_of_every_size_through_rolls(writer, queue):
    sizes = [0, 1, 63, 64, 65, 1000, 4000, 8064, 1, 8064, 0]
    for i, size in enumerate(sizes):
        with writer.reserve(1, size) as slot:
            slot[:] = bytes([i + 1]) * size
    assert stored_payloads(queue) == [bytes([i + 1]) * size for i, size in enumerate(sizes)]


@pytest.mark.parametrize("wrong", [-1, "8", 1.5, None])
def test_an_invalid_length_is_refused(writer, queue, wrong):
    with pytest.raises((ValueError, TypeError)):
        writer.reserve(1, wrong)
    assert writer.append(1, b"x") == 0


def test_the_time_is_that_of_the_commit_unless_given(writer, queue):
    slot = writer.reserve(1, 0)
    filled_ns = _native.wall_clock_ns()
    slot.commit()
    with writer.reserve(1, 0, timestamp_ns=17):
        pass
    first, second = stored(queue)
    assert first.timestamp_ns >= filled_ns
    assert second.timestamp_ns == 17


def test_checksum_false_applies_to_reservations_too(publisher, queue):
    with publisher(checksum=False).reserve(1, 4) as slot:
        slot[:] = b"abcd"
    assert stored(queue)[0].flags == 1
