"""The holder of a queue: the locks decide, the text next to them only names the holder."""

import contextlib
import fcntl
import os
import random
import shutil
import stat
import struct
import subprocess

import pytest

import tapewire as tw
from tapewire.queue import status
from tapewire.queue.checkup import examine
from tests.crash import disk
from tests.crash.scripts import python
from tests.crash.tape import TYPE
from tests.support import queue_files
from tests.support import queue_format as qf

F_OFD_SETLK = getattr(fcntl, "F_OFD_SETLK", 37)


@pytest.fixture
def queue(tmp):
    with tw.open_publisher(tmp / "queue", segment_bytes=8192) as writer:
        writer.append(TYPE, b"first")
    return tmp / "queue"


@pytest.fixture
def earlier_queue(tmp):
    """A queue of the earlier format, which has no key: its writers have only writer.lock."""
    return qf.write_queue(tmp / "earlier", [[qf.record(0, b"first")]])


def start_ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[19])


def hold(queue, text):
    """A holder of the flock, with a chosen text; closing the descriptor releases it."""
    fd = os.open(queue / "writer.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.ftruncate(fd, 0)
    os.pwrite(fd, text, 0)
    return fd


@pytest.fixture
def dead_pid(crew):
    child = crew.start("actors.nothing")
    child.wait()
    return child.pid


@pytest.mark.parametrize("name", ["a) b (c", ") R 1 1 1", "(((", "tail)"])
def test_a_holder_with_brackets_and_spaces_in_its_name_is_named_by_its_pid(queue, crew, name):
    holder = crew.start("actors.renamed_appender", queue=str(queue), name=name)
    holder.expect("open")
    with open(f"/proc/{holder.pid}/comm") as file:
        assert file.read() == name + "\n"
    pid, ticks, epoch = (queue / "writer.lock").read_text().split()
    assert (int(pid), int(ticks), int(epoch)) == (holder.pid, start_ticks(holder.pid), 2)
    with pytest.raises(tw.WriterAlreadyActive, match=rf"pid={holder.pid}\b") as refused:
        tw.open_publisher(queue)
    assert "gone" not in str(refused.value), "its start time was read right, so it is known alive"
    with tw.open_subscriber(queue, "watcher") as reader:
        status = reader.writer_status()
        assert (status.alive, status.pid) == (True, holder.pid)


def test_in_the_earlier_format_a_dead_pid_under_a_held_lock_is_refused(earlier_queue, dead_pid):
    fd = hold(earlier_queue, f"{dead_pid} 1 1\n".encode())
    try:
        with pytest.raises(
            tw.WriterAlreadyActive, match=f"pid={dead_pid}.*not visible here"
        ) as refused:
            tw.open_publisher(earlier_queue)
    finally:
        os.close(fd)
    assert "Removing lock files does not free the queue" in refused.value.hint
    tw.open_publisher(earlier_queue).close()


def test_in_the_earlier_format_a_held_lock_without_a_readable_text_is_refused(earlier_queue):
    fd = hold(earlier_queue, b"\xff\x00 not a pid")
    try:
        with pytest.raises(tw.WriterAlreadyActive, match="unknown"):
            tw.open_publisher(earlier_queue)
    finally:
        os.close(fd)


@pytest.mark.parametrize("how", [fcntl.LOCK_SH, fcntl.LOCK_EX], ids=["shared", "exclusive"])
def test_in_the_earlier_format_a_lock_held_by_whoever_may_only_read_is_refused(earlier_queue, how):
    """Such a process cannot be distinguished from a writer of an earlier release."""
    tw.open_publisher(earlier_queue).close()
    with locked(earlier_queue / "writer.lock", how), pytest.raises(tw.WriterAlreadyActive):
        tw.open_publisher(earlier_queue)


@contextlib.contextmanager
def locked(path, how):
    """A flock by a descriptor that may only read."""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, how)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def read_locked(path):
    """A lock for reading, of the kind that a writer takes for writing."""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(fd, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
        yield
    finally:
        os.close(fd)


NOTHING = contextlib.nullcontext
HELD_LOCKS = {
    "nothing": lambda queue: NOTHING(),
    "shared": lambda queue: locked(queue / "writer.lock", fcntl.LOCK_SH),
    "exclusive": lambda queue: locked(queue / "writer.lock", fcntl.LOCK_EX),
}


@contextlib.contextmanager
def all_read_locked(queue):
    with contextlib.ExitStack() as held:
        for path in [queue / "control.meta", *queue.glob("*.q")]:
            held.enter_context(read_locked(path))
        yield


HELD_CONTROL = {
    "nothing": lambda queue: NOTHING(),
    "read-locked": lambda queue: read_locked(queue / "control.meta"),
    "segments too": all_read_locked,
}


@pytest.fixture(params=[(a, b) for a in HELD_LOCKS for b in HELD_CONTROL], ids=" and ".join)
def meddler(request, queue):
    """A process that may only read the queue and holds every lock that it can take."""
    lock, control = request.param
    with HELD_LOCKS[lock](queue), HELD_CONTROL[control](queue):
        yield


def test_whoever_may_only_read_keeps_no_writer_out(queue, meddler):
    with tw.open_publisher(queue) as writer:
        assert writer.append(TYPE, b"second") == 1
        writer.flush_sync()


def test_whoever_may_only_read_does_not_hide_the_writer(queue, meddler):
    with (
        tw.open_publisher(queue) as writer,
        tw.open_subscriber(queue, "watcher") as reader,
    ):
        assert reader.writer_status().alive
        assert reader.writer_status().pid == os.getpid()
        assert reader.detect_disconnect() is None
        seen = status(queue)
        assert (seen.writer.alive, seen.writer.pid) == (True, os.getpid())
        assert "stale-lock" not in {finding.kind for finding in examine(seen)}
        assert writer.append(TYPE, b"second") == 1


def test_whoever_may_only_read_lets_no_second_writer_in(queue, meddler):
    with tw.open_publisher(queue), pytest.raises(tw.WriterAlreadyActive):
        tw.open_publisher(queue)


@pytest.mark.parametrize(
    "names", [["writer.guard"], ["writer.guard", "writer.lock"]], ids=["guard", "both"]
)
def test_nor_does_it_where_lock_files_are_removed(queue, meddler, names):
    writer = tw.open_publisher(queue)
    for name in names:
        os.unlink(queue / name)
    refused = 0
    for _ in range(2):  # the first attempt makes the files again
        try:
            tw.open_publisher(queue).close()
        except tw.WriterAlreadyActive:
            refused += 1
    with pytest.raises(tw.LockLost):
        writer.close()
    assert refused == 2


@pytest.mark.parametrize("text", ["named", "unnamed"])
def test_whoever_may_only_read_keeps_no_writer_out_after_a_kill(queue, crew, meddler, text):
    holder = crew.start("actors.appender", queue=str(queue))
    holder.expect("open")
    holder.kill()
    if text == "unnamed":
        (queue / "writer.lock").write_bytes(b"")
    with tw.open_publisher(queue) as writer:
        assert writer.epoch == 3


@pytest.mark.parametrize("name", ["control.meta", "000000000.q"])
def test_an_idle_writer_takes_a_lock_that_was_held_at_first_at_once(queue, name, eventually):
    with read_locked(queue / name):
        writer = tw.open_publisher(queue)

    def taken():
        with contextlib.suppress(BlockingIOError), read_locked(queue / name):
            return False
        return True

    with writer:
        eventually(taken)


def test_a_writer_takes_the_locks_that_were_held_at_first_when_they_are_free(queue, eventually):
    with contextlib.ExitStack() as held:
        held.enter_context(locked(queue / "writer.lock", fcntl.LOCK_EX))
        held.enter_context(read_locked(queue / "control.meta"))
        writer = tw.open_publisher(queue)
    with writer:

        def taken():
            writer.append(TYPE, b"the heartbeat looks while records come")
            with open(queue / "writer.lock") as lock, contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
            with open(queue / "control.meta") as control, contextlib.suppress(BlockingIOError):
                flags = struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0)
                fcntl.fcntl(control, F_OFD_SETLK, flags)
                return False
            return True

        eventually(taken)


def test_the_guard_is_not_readable_by_others_at_the_next_opening(queue):
    for path in queue.rglob("*"):
        path.chmod(path.stat().st_mode | 0o044)  # as chmod -R g+r,o+r
    with tw.open_publisher(queue):
        assert stat.S_IMODE((queue / "writer.guard").stat().st_mode) == 0o600


def test_the_guard_is_for_those_who_may_write_the_queue(queue):
    (queue / "control.meta").chmod(0o664)
    with tw.open_publisher(queue):
        assert stat.S_IMODE((queue / "writer.guard").stat().st_mode) == 0o620


def test_a_writer_in_another_container_is_named_as_such(queue):
    with tw.open_publisher(queue):
        namespace = queue_files.control(queue)["pid_namespace"]
        assert namespace == os.stat("/proc/self/ns/pid").st_ino
        offset, _ = qf.LAYOUTS["ControlBlock"][1]["pid_namespace"]
        disk.set_control(queue, (offset, "<Q"), namespace + 1)
        with pytest.raises(
            tw.WriterAlreadyActive, match="in another pid namespace \\(a container\\)"
        ) as refused:
            tw.open_publisher(queue)
        assert "removing lock files does not free the queue" in refused.value.hint


@pytest.mark.root
def test_a_writer_seen_from_another_pid_namespace_is_named_as_such(queue):
    """In another container, even its pid may be that of a different process."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare (util-linux)")
    if subprocess.run(["unshare", "-p", "-f", "true"], check=False).returncode != 0:
        pytest.skip("cannot make a pid namespace (needs root)")
    code = """
        import sys
        import tapewire as tw
        try:
            tw.open_publisher(sys.argv[1])
        except tw.WriterAlreadyActive as error:
            print(error)
    """
    with tw.open_publisher(queue):
        said = python(code, queue, before=["unshare", "-p", "-f"]).stdout
    assert "in another pid namespace (a container)" in said
    assert "removing lock files does not free the queue" in said


@pytest.mark.parametrize("text", ["dead", "reused", "empty", "garbage"])
def test_a_free_lock_opens_whatever_the_text_says(queue, dead_pid, text):
    content = {
        "dead": f"{dead_pid} 1 1\n".encode(),
        "reused": f"{os.getpid()} 1 1\n".encode(),  # alive, but started at another time
        "empty": b"",
        "garbage": random.Random(1).randbytes(64),
    }[text]
    (queue / "writer.lock").write_bytes(content)
    with tw.open_publisher(queue) as writer:
        assert writer.next_seq == 1
        pid, ticks, _ = (queue / "writer.lock").read_text().split()
        assert (int(pid), int(ticks)) == (os.getpid(), start_ticks(os.getpid()))


def test_the_lock_of_a_killed_writer_is_free_at_once(queue, crew):
    holder = crew.start("actors.appender", queue=str(queue))
    holder.expect("open")
    with tw.open_subscriber(queue, "watcher") as reader:
        assert reader.writer_status().alive
        holder.kill()
        assert not reader.writer_status().alive
        assert reader.detect_disconnect() is tw.DisconnectReason.LOCK_LOST
    tw.open_publisher(queue).close()


def test_looking_at_the_lock_over_and_over_keeps_no_writer_out(queue):
    with tw.open_subscriber(queue, "watcher") as reader:
        for _ in range(50):
            reader.writer_status()
            tw.open_publisher(queue).close()
