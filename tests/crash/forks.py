"""Child processes that fork with open queues; each sends "ok" if all checks passed."""

import contextlib
import importlib.machinery
import os
import shutil
import sys
import threading
import time

import tapewire as tw
from tests.crash.faults import eventually, raises
from tests.crash.tape import TYPE, Tape, payload_of


def in_child(action):
    """Run `action` in a forked child and return its exit status. A child that hangs is killed."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    deadline = time.monotonic() + 20
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            return "hung"
        time.sleep(0.001)


def _threads():
    names = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm") as file:
            names.append(file.read().strip())
    return names


def _open_descriptors(queue):
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if (target := os.readlink(f"/proc/self/fd/{fd}")).startswith(queue):
                found.append(target)
    return found


def handles_in_the_child(line, queue):
    writer = tw.open_publisher(queue, segment_bytes=8192)
    reader = tw.open_subscriber(queue, "reader")
    other = tw.open_log(queue)
    for _ in range(10):
        writer.append(TYPE, payload_of(writer.next_seq))
    tape = Tape(reader)
    tape.take(reader.next())

    def child():
        assert _open_descriptors(queue) == []
        for call in (
            lambda: writer.append(TYPE, b"x"),
            lambda: writer.append_batch(TYPE, [b"x"]),
            lambda: writer.reserve(TYPE, 1),
            writer.flush_sync,
            writer.flush_async,
            reader.next,
            lambda: next(reader),
            reader.read_batch,
            lambda: reader.wait(0.1),
            lambda: list(reader.follow(0.1)),
            lambda: reader.seek_seq(0),
            reader.seek_start,
            reader.seek_end,
            lambda: reader.seek_time(0),
            reader.skip_damaged,
            lambda: reader.for_each(print),
            reader.commit,
            reader.writer_status,
            reader.detect_disconnect,
            other.next,
        ):
            with raises(tw.ForkedHandle):
                call()
        repr(writer)
        repr(reader)
        writer.metrics()
        for handle in (writer, reader, other):
            handle.close()
            handle.close()

    assert in_child(child) == 0
    # The end of the child and its closes have not affected the parent's handles.
    for _ in range(100):
        writer.append(TYPE, payload_of(writer.next_seq))
    assert tape.to_end() == 110
    reader.commit()
    assert reader.writer_status().alive
    with raises(tw.WriterAlreadyActive):
        tw.open_publisher(queue)
    reader.close()
    writer.close()
    line.say("ok")


def open_reservation_in_the_child(line, queue):
    writer = tw.open_publisher(queue, segment_bytes=8192)
    slot = writer.reserve(TYPE, 100)
    slot.buffer[:] = b"\x11" * 100

    def child():
        with raises(tw.ForkedHandle):
            slot.commit()
        writer.close()

    assert in_child(child) == 0
    slot.commit()
    with tw.open_log(queue) as reader:
        assert [bytes(record.payload) for record in reader] == [b"\x11" * 100]
    writer.close()
    line.say("ok")


def views_in_the_child(line, queue):
    writer = tw.open_publisher(queue, segment_bytes=8192)
    writer.append(TYPE, b"still readable")
    with tw.open_log(queue) as reader:
        record = reader.next()

        def child():
            assert bytes(record.payload) == b"still readable"

        assert in_child(child) == 0
    writer.close()
    line.say("ok")


def own_handles_in_the_child(line, queue):
    writer = tw.open_publisher(queue, segment_bytes=8192)
    for _ in range(100):
        writer.append(TYPE, payload_of(writer.next_seq))

    def child():
        assert _threads() != []
        assert not [name for name in _threads() if name.startswith("tw-")]
        with raises(tw.WriterAlreadyActive):
            tw.open_publisher(queue)
        with tw.open_subscriber(queue, "childs") as reader:
            assert Tape(reader).to_end() == 100
            reader.commit()
        with tw.open_publisher(queue + "-2", segment_bytes=8192) as own:
            assert [name for name in _threads() if name.startswith("tw-")]
            for _ in range(500):
                own.append(TYPE, payload_of(own.next_seq))
            with tw.open_log(queue + "-2") as reader:
                assert Tape(reader).to_end() == 500
            beat = _heartbeat(queue + "-2")
            eventually(lambda: _heartbeat(queue + "-2") != beat)
        assert not [name for name in _threads() if name.startswith("tw-")]

    assert in_child(child) == 0
    writer.close()
    line.say("ok")


def _heartbeat(queue):
    with open(os.path.join(queue, "control.meta"), "rb") as file:
        return file.read()[264:272]


def grandchild_outlives(line, queue):
    """Fork a process that keeps running, then wait to be killed."""
    writer = tw.open_publisher(queue, segment_bytes=8192)
    writer.append(TYPE, payload_of(0))
    reader = tw.open_subscriber(queue, "reader")
    pid = os.fork()
    if pid == 0:
        # Holds nothing of the queue; ends when the test closes its end of the pipe.
        line.say("forked", os.getpid())
        while line.hear(timeout=60) is not None:
            pass
        os._exit(0)
    time.sleep(60)
    reader.close()


def fork_while_threads_work(line, queue, forks):
    """Fork repeatedly while another thread rolls and the native threads work.

    A lock held by a thread that does not exist in the child must not block the child.
    """
    writer = tw.open_publisher(
        queue,
        segment_bytes=8192,
        retention=tw.Retention(reader_ttl=0.01),
        flush=tw.FlushEvery(records=10),
    )
    stop = threading.Event()

    def append():
        while not stop.is_set():
            for _ in range(60):  # about one roll
                writer.append(TYPE, payload_of(writer.next_seq))
            time.sleep(0.0002)  # lets the workers work, and the fork happen

    thread = threading.Thread(target=append)
    thread.start()

    def child():
        with raises(tw.ForkedHandle):
            writer.append(TYPE, b"x")
        with tw.open_publisher(f"{queue}-{os.getpid()}", segment_bytes=8192) as own:
            for _ in range(200):
                own.append(TYPE, payload_of(own.next_seq))
            with tw.open_log(own.path) as reader:
                assert Tape(reader).to_end() == 200
        writer.close()
        shutil.rmtree(own.path)

    try:
        for i in range(forks):
            outcome = in_child(child)
            assert outcome == 0, f"child {i}: {outcome}"
    finally:
        stop.set()
        thread.join()
    count = writer.next_seq
    writer.close()
    with tw.open_log(queue) as reader:
        assert Tape(reader).to_end() == count
    line.say("ok")


class SlowImport:
    """Finds one module, whose import waits until `go_on` is set."""

    def __init__(self, name):
        self.name = name
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def slowly(module):
            self.begun.set()
            self.go_on.wait()
            execute(module)

        spec.loader.exec_module = slowly
        return spec


def fork_in_an_import(line, queue, module):
    """A thread of the parent is importing the module that a call needs: it has the lock of it.

    Whoever imports it in the child waits for a thread that is not there.
    """
    import ctypes  # noqa: F401 (with it, for_each looks whether its function is compiled)

    slow = SlowImport(module)
    sys.modules.pop(slow.name, None)
    sys.meta_path.insert(0, slow)
    writer = tw.open_publisher(queue, segment_bytes=8192)
    reader = tw.open_log(queue)
    thread = threading.Thread(target=importlib.import_module, args=(slow.name,))
    thread.start()
    slow.begun.wait()

    def child():
        with raises(tw.ForkedHandle):
            writer.append_batch(TYPE, [b"x"])
        with raises(tw.ForkedHandle):
            reader.for_each(print)

    outcome = in_child(child)
    slow.go_on.set()
    thread.join()
    assert outcome == 0, outcome
    assert writer.append_batch(TYPE, [b"x"]) == range(1), "the parent continues"
    writer.close()
    line.say("ok")
