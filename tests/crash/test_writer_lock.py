"""Who holds the queue: the flock decides, the text beside it only names the holder."""

import fcntl
import os

import pytest

import tapewire as tw
from tests.crash.tape import TYPE


@pytest.fixture
def queue(tmp):
    with tw.open_publisher(tmp / "queue", segment_bytes=8192) as writer:
        writer.append(TYPE, b"first")
    return tmp / "queue"


def start_ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[19])


def hold(queue, text):
    """A holder of the flock, under a text of our choice; closing the descriptor lets go."""
    fd = os.open(queue / "writer.lock", os.O_RDWR)
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


def test_a_dead_pid_under_a_held_lock_is_refused_and_said_to_be_gone(queue, dead_pid):
    fd = hold(queue, f"{dead_pid} 1 1\n".encode())
    try:
        with pytest.raises(tw.WriterAlreadyActive, match=f"pid={dead_pid}.*gone"):
            tw.open_publisher(queue)
    finally:
        os.close(fd)
    tw.open_publisher(queue).close()


def test_a_held_lock_without_a_readable_text_is_refused(queue):
    fd = hold(queue, b"\xff\x00 not a pid")
    try:
        with pytest.raises(tw.WriterAlreadyActive, match="unknown"):
            tw.open_publisher(queue)
    finally:
        os.close(fd)


@pytest.mark.parametrize("text", ["dead", "reused", "empty", "garbage"])
def test_a_free_lock_opens_whatever_the_text_says(queue, dead_pid, text):
    content = {
        "dead": f"{dead_pid} 1 1\n".encode(),
        "reused": f"{os.getpid()} 1 1\n".encode(),  # alive, but started at another time
        "empty": b"",
        "garbage": os.urandom(64),
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
