"""How readers wait: the three strategies, closing, Ctrl-C, two threads."""

import signal
import threading

import pytest

import tapewire as tw
from tests.support import queue_files
from tests.support.entries import seqs
from tests.support.processes import WRITER, Child
from tests.support.records import fill_segments

STRATEGIES = [
    tw.BusySpin(),
    tw.SpinThenPark(),
    tw.SpinThenPark(spin_us=0),
    tw.SpinThenPark(spin_us=1000),
    tw.Sleep(0),
    tw.Sleep(0.001),
]
each_strategy = pytest.mark.parametrize("wait", STRATEGIES, ids=repr)


@each_strategy
def test_wait_is_true_if_there_is_a_record_and_false_after_its_timeout(publisher, subscriber, wait):
    writer = publisher()
    reader = subscriber(wait=wait)
    assert reader.wait(0) is False
    assert reader.wait(0.005) is False
    writer.append(1, b"x")
    assert reader.wait(0) is True
    assert reader.wait() is True


@each_strategy
def test_a_waiting_reader_reads_what_another_process_appends(queue, wait):
    with Child(WRITER, queue, 8192) as child:
        child.expect("ready")
        with tw.open_subscriber(queue, "r", wait=wait) as reader:
            got = []
            for total, count in ((1, 1), (501, 500), (502, 1), (1002, 500)):
                timer = threading.Timer(0.01, child.send, [str(count)])
                timer.start()
                while len(got) < total:
                    assert reader.wait(30)
                    got += seqs(reader)
                timer.join()
                child.expect(str(total))
            assert got == list(range(1002))


def test_only_a_parked_reader_asks_to_be_woken(publisher, subscriber, queue):
    writer = publisher()
    subscriber("spin", wait=tw.BusySpin()).wait(0.01)
    subscriber("sleep", wait=tw.Sleep(0.001)).wait(0.01)
    assert queue_files.control(queue)["waiters_pending"] == 0
    subscriber("park").wait(0.01)
    assert queue_files.control(queue)["waiters_pending"] == 1
    writer.append(1, b"x")
    assert queue_files.control(queue)["waiters_pending"] == 0
    assert writer.metrics()["wakes"] == 1
    for _ in range(100):
        writer.append(1, b"x")
    assert writer.metrics()["wakes"] == 1


@each_strategy
def test_a_reader_at_the_end_of_a_segment_wakes_for_a_record_in_the_next(
    publisher, subscriber, wait
):
    writer = publisher()
    reader = subscriber(wait=wait)
    for _ in range(20):
        writer.append(1, bytes(8064))  # each fills a segment
        assert reader.wait(10)
        assert len(seqs(reader)) == 1
        assert not reader.wait(0)


@each_strategy
def test_close_from_another_thread_ends_follow(publisher, subscriber, wait):
    publisher()
    reader = subscriber(wait=wait)
    waiting = threading.Event()
    ended = []

    def follow():
        waiting.set()
        ended.append(list(reader.follow()))

    thread = threading.Thread(target=follow)
    thread.start()
    waiting.wait(10)
    reader.close()
    thread.join(10)
    assert not thread.is_alive()
    assert ended in ([[]], [])  # ended, or refused because it had not started
    assert reader.closed


def test_close_from_another_thread_ends_wait_with_false(publisher, subscriber, eventually):
    publisher()
    reader = subscriber()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(reader.wait()))
    thread.start()
    eventually(lambda: is_busy(reader))
    reader.close()
    thread.join(10)
    assert answers == [False]


def is_busy(reader):
    try:
        reader.next()
    except tw.ConcurrentUse:
        return True
    return False


def test_two_threads_in_one_reader_are_refused(publisher, subscriber, eventually):
    writer = publisher()
    reader = subscriber()
    thread = threading.Thread(target=reader.wait)
    thread.start()
    eventually(lambda: is_busy(reader))
    for call in (
        reader.next,
        reader.read_batch,
        reader.seek_start,
        reader.seek_end,
        reader.skip_damaged,
        lambda: reader.seek_seq(0),
        lambda: reader.seek_time(0),
        lambda: reader.wait(0),
        lambda: next(reader),
        lambda: reader.for_each(print),
    ):
        with pytest.raises(tw.ConcurrentUse, match="thread"):
            call()
    writer.append(1, b"x")
    thread.join(10)
    assert reader.next().seq == 0


def test_a_reader_may_be_used_by_one_thread_after_another(publisher, subscriber):
    writer = publisher()
    fill_segments(writer, 3)
    reader = subscriber()
    got = []
    for _ in range(4):
        thread = threading.Thread(target=lambda: got.extend(reader.read_batch(5).seq.tolist()))
        thread.start()
        thread.join()
    assert got == list(range(20))


@each_strategy
def test_ctrl_c_ends_wait_and_the_reader_continues(publisher, subscriber, wait):
    writer = publisher()
    reader = subscriber(wait=wait)
    timer = threading.Timer(
        0.02, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]
    )
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        reader.wait(60)
    timer.join()
    writer.append(1, b"x")
    assert reader.wait(0)
    assert seqs(reader) == [0]


def test_ctrl_c_ends_follow(publisher, subscriber):
    publisher()
    reader = subscriber()
    timer = threading.Timer(
        0.02, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]
    )
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(reader.follow())
    timer.join()


def test_another_signal_does_not_end_wait(publisher, subscriber):
    writer = publisher()
    reader = subscriber()
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1) or writer.append(1, b"x"))
    try:
        timer = threading.Timer(
            0.02, signal.pthread_kill, [threading.main_thread().ident, signal.SIGUSR1]
        )
        timer.start()
        assert reader.wait(60)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [1]


@pytest.mark.parametrize("wrong", [None, "park", 0.001, tw.Raise()], ids=repr)
def test_another_strategy_is_refused(publisher, queue, wrong):
    publisher()
    with pytest.raises(tw.InvalidOption, match="wait"):
        tw.open_subscriber(queue, "r", wait=wrong)


def test_a_restarted_writer_wakes_a_parked_reader(queue, subscriber, publisher):
    publisher().close()
    reader = subscriber()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(reader.wait(30)))
    thread.start()
    with tw.open_publisher(queue) as writer:
        writer.append(1, b"x")
        thread.join(30)
    assert answers == [True]
