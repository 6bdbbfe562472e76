"""One writer at a time, closing, threads."""

import gc
import os
import threading

import pytest

import tapewire as tw
from tests.support import queue_files
from tests.support.processes import WRITER, Child
from tests.support.records import stored, stored_payloads


def test_a_second_writer_in_the_same_process_is_refused_by_the_first_one_s_pid(publisher, queue):
    publisher()
    with pytest.raises(tw.WriterAlreadyActive, match=f"pid={os.getpid()}, epoch=1") as caught:
        tw.open_publisher(queue)
    assert caught.value.path == str(queue / "writer.lock")


def test_a_second_writer_in_another_process_is_refused(queue):
    with Child(WRITER, queue, 8192) as child:
        child.expect("ready")
        with pytest.raises(tw.WriterAlreadyActive, match=f"pid={child.pid}"):
            tw.open_publisher(queue)
        child.send("3")
        child.expect("3")
        child.send("close")
        child.expect("closed")
        with tw.open_publisher(queue) as writer:
            assert writer.append(1, b"3") == 3
            assert writer.epoch == 2


def test_the_writer_of_a_killed_process_can_be_replaced_at_once(queue):
    with Child(WRITER, queue, 8192) as child:
        child.expect("ready")
        child.send("3")
        child.expect("3")
        child.kill()
        with tw.open_publisher(queue) as writer:
            assert writer.append(1, b"3") == 3
    assert stored_payloads(queue) == [b"0", b"1", b"2", b"3"]


def test_a_refused_second_writer_changes_nothing(publisher, queue):
    writer = publisher()
    writer.append(1, b"a")
    with pytest.raises(tw.WriterAlreadyActive):
        tw.open_publisher(queue)
    writer.append(1, b"b")
    assert stored_payloads(queue) == [b"a", b"b"]
    assert queue_files.control(queue)["writer_epoch"] == 1


def test_the_lock_file_names_the_writer(publisher, queue):
    publisher()
    pid, ticks, epoch = (queue / "writer.lock").read_text().split()
    with open(f"/proc/{os.getpid()}/stat") as stat:
        assert ticks == stat.read().rpartition(")")[2].split()[19]  # field 22
    assert (int(pid), int(epoch)) == (os.getpid(), 1)


def test_the_epoch_counts_the_writers(publisher, queue):
    for epoch in (1, 2, 3):
        with publisher() as writer:
            assert writer.epoch == epoch
    assert queue_files.control(queue)["writer_epoch"] == 3


def test_a_closed_writer_raises(publisher):
    writer = publisher()
    writer.close()
    assert writer.closed
    for call in (
        lambda: writer.append(1, b"x"),
        lambda: writer.append_batch(1, [b"x"]),
        lambda: writer.append_batch(1, []),
        lambda: writer.reserve(1, 8),
        writer.flush_sync,
        writer.flush_async,
        writer.metrics,
        lambda: writer.next_seq,
        lambda: writer.epoch,
        lambda: writer.segment_bytes,
    ):
        with pytest.raises(tw.ClosedHandle, match="closed"):
            call()


def test_closing_again_does_nothing(publisher):
    writer = publisher()
    assert not writer.closed
    writer.close()
    writer.close()


def test_a_writer_is_a_context_manager_that_closes_on_errors_too(queue):
    def fail():
        with tw.open_publisher(queue, segment_bytes=8192) as writer:
            writer.append(1, b"kept")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    tw.open_publisher(queue).close()
    assert stored_payloads(queue) == [b"kept"]


def test_an_unreferenced_writer_releases_its_queue(queue):
    writer = tw.open_publisher(queue, segment_bytes=8192)
    writer.append(1, b"x")
    del writer
    gc.collect()
    with tw.open_publisher(queue) as writer:
        assert writer.next_seq == 1


def test_repr_has_the_path_and_the_next_seq(publisher, queue):
    writer = publisher()
    writer.append(1, b"x")
    assert repr(writer) == f"<Writer {str(queue)!r} next_seq=1 epoch=1>"
    writer.close()
    assert repr(writer) == f"<Writer {str(queue)!r} closed>"


def test_a_path_may_be_text_relative_or_have_strange_characters(tmp, monkeypatch):
    monkeypatch.chdir(tmp)
    for name in ("plain", "with space", "naïve-价格", "a(b)%s'\"", "trailing/"):
        with tw.open_publisher(name, segment_bytes=8192) as writer:
            writer.append(1, name.encode())
            assert writer.path == str(tmp / name)
        assert stored_payloads(name) == [name.encode()]


def test_parents_of_the_queue_are_created(tmp):
    tw.open_publisher(tmp / "bus" / "md" / "q", segment_bytes=8192).close()
    assert tw.kind_of(tmp / "bus" / "md" / "q") == "queue"


def test_many_threads_appending_to_one_writer_lose_nothing(publisher, queue):
    writer = publisher()
    threads, each = 8, 400
    returned = [[] for _ in range(threads)]

    def append(number):
        for i in range(each):
            if i % 50 == 0:
                returned[number] += writer.append_batch(1, [b"%d:%d" % (number, i)])
            elif i % 51 == 0:
                writer.flush_sync()
                returned[number].append(writer.append(1, b"%d:%d" % (number, i)))
            else:
                returned[number].append(writer.append(1, b"%d:%d" % (number, i)))

    running = [threading.Thread(target=append, args=[n]) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    got = stored(queue)
    assert [e.seq for e in got] == list(range(threads * each))
    assert writer.metrics()["rolls"] > 20
    for number in range(threads):
        mine = [e for e in got if e.payload.startswith(b"%d:" % number)]
        assert [e.payload for e in mine] == [b"%d:%d" % (number, i) for i in range(each)]
        assert [e.seq for e in mine] == returned[number]


def test_closing_while_other_threads_append_ends_them_with_closed_handle(publisher, queue):
    writer = publisher()
    most = 20_000  # a close that waited for the others to pause would come after all of them
    counts = []
    begun = threading.Barrier(5)

    def append():
        count = 0
        begun.wait()
        try:
            while count < most:
                writer.append(1, b"x" * 100)
                count += 1
        except tw.ClosedHandle:
            counts.append(count)

    running = [threading.Thread(target=append) for _ in range(4)]
    for thread in running:
        thread.start()
    begun.wait()
    while writer.metrics()["rolls"] < 20 and any(thread.is_alive() for thread in running):
        pass
    writer.close()
    for thread in running:
        thread.join(30)
    assert len(counts) == 4
    assert len(stored(queue)) == sum(counts)
