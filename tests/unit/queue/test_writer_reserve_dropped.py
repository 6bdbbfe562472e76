"""An uncommitted reservation: aborted when it is dropped, kept while a view of it exists."""

import gc
import os
import signal
import threading

import pytest

import tapewire as tw
from tests.support.queue_format import segment_path
from tests.support.records import stored_payloads


@pytest.fixture
def writer(publisher):
    return publisher()


def test_a_dropped_reservation_is_aborted_at_once(writer, queue):
    slot = writer.reserve(1, 300)
    slot.buffer[:] = b"z" * 300
    del slot
    assert not any(segment_path(queue, 0).read_bytes()[64:])
    assert writer.append(1, b"next") == 0
    assert stored_payloads(queue) == [b"next"]


def test_one_that_is_never_bound_to_a_name_is_aborted(writer):
    writer.reserve(1, 300)
    assert writer.append(1, b"next") == 0


def test_an_error_between_reserving_and_the_block_aborts_it(writer, queue):
    def interrupted():
        reservation = writer.reserve(1, 300)
        repr(reservation)
        raise KeyboardInterrupt  # where the block would begin

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert writer.append(1, b"next") == 0
    assert stored_payloads(queue) == [b"next"]


def test_a_signal_at_the_exit_of_the_block_aborts_it(writer, queue):
    class Slot:
        """A reservation whose exit is interrupted before anything is committed."""

        def __init__(self, reservation):
            self.reservation = reservation

        def __enter__(self):
            return self.reservation.__enter__()

        def __exit__(self, *exc):
            signal.raise_signal(signal.SIGUSR1)
            return self.reservation.__exit__(*exc)

    def interrupt(signum, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt), Slot(writer.reserve(1, 5)) as view:
            view[:] = b"never"
    finally:
        signal.signal(signal.SIGUSR1, before)
    del view
    gc.collect()
    assert writer.append(1, b"next") == 0
    assert stored_payloads(queue) == [b"next"]


def test_a_commit_that_fails_in_the_exit_of_the_block_aborts_it(publisher, queue):
    writer = publisher(sparse=True)
    reservation = writer.reserve(1, 5, seq=7)
    os.truncate(segment_path(queue, 0), 0)
    with pytest.raises(tw.MappingLost), reservation as view:
        view[:] = b"never"
    with pytest.raises(tw.ClosedHandle):
        reservation.commit()
    with pytest.raises(tw.MappingLost):
        writer.close()


def test_a_view_that_is_held_keeps_it_open(writer, queue):
    view = writer.reserve(1, 5).buffer
    with pytest.raises(tw.ReservationOpen):
        writer.append(1, b"no")
    view[:] = b"never"
    view.release()
    del view
    assert writer.append(1, b"next") == 0
    assert stored_payloads(queue) == [b"next"]


def test_an_object_made_from_a_view_keeps_it_open(writer):
    numpy = pytest.importorskip("numpy")
    array = numpy.frombuffer(writer.reserve(1, 16).buffer, "u8")
    with pytest.raises(tw.ReservationOpen):
        writer.append(1, b"no")
    array[:] = 7
    del array
    assert writer.append(1, b"next") == 0


def test_an_aborted_one_cannot_be_committed(writer):
    reservation = writer.reserve(1, 5)
    with pytest.raises(KeyError), reservation:
        raise KeyError
    for call in (reservation.commit, reservation.abort, lambda: reservation.buffer):
        with pytest.raises(tw.ClosedHandle):
            call()
    assert writer.append(1, b"next") == 0


def test_dropping_an_earlier_one_does_not_change_a_later_one(writer, queue):
    first = writer.reserve(1, 5)
    first.abort()
    second = writer.reserve(1, 5)
    del first
    second.buffer[:] = b"later"
    assert second.commit() == 0
    assert stored_payloads(queue) == [b"later"]


def test_one_in_a_cycle_is_aborted_by_the_collector(writer):
    class Holder:
        pass

    holder = Holder()
    holder.itself, holder.slot = holder, writer.reserve(1, 5)
    with pytest.raises(tw.ReservationOpen):
        writer.append(1, b"no")
    del holder
    gc.collect()
    assert writer.append(1, b"next") == 0


def test_one_dropped_by_another_thread_is_aborted(writer, queue):
    held = [writer.reserve(1, 300)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert writer.append(1, b"next") == 0
    assert stored_payloads(queue) == [b"next"]


def test_dropping_them_in_another_thread_while_this_one_rolls_is_harmless(writer, queue):
    """The writer may be inside a call: the reservation is then aborted when the call ends."""
    appended, refused = 0, 0
    for _ in range(300):
        held = [writer.reserve(1, 64)]
        thread = threading.Thread(target=held.clear)
        thread.start()
        while True:
            try:
                writer.append_batch(1, [bytes(1000)] * 8)  # rolls, without the GIL
                break
            except tw.ReservationOpen:
                refused += 1
        appended += 8
        thread.join()
    assert stored_payloads(queue) == [bytes(1000)] * appended


def test_a_closed_writer_lets_one_be_dropped(queue):
    writer = tw.open_publisher(queue, segment_bytes=8192)
    slot = writer.reserve(1, 5)
    writer.close()
    del slot
    del writer
    assert stored_payloads(queue) == []


def test_one_dropped_in_a_forked_child_stays_open_in_the_parent(writer, queue):
    held = [writer.reserve(1, 5)]
    held[0].buffer[:] = b"whole"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            held.clear()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert held[0].commit() == 0
    assert stored_payloads(queue) == [b"whole"]
