"""A read-only directory: open_log reads it, waits by sleeping, and leaves no trace."""

import pytest

from tests.support import queue_files
from tests.support.processes import Child

# Imports first, while it may still read everything; then becomes a user without permissions here.
LOOKER = """
import os, sys
import numpy
import tapewire as tw
import tapewire.queue

if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
path = sys.argv[1]
for mode, what in ((os.W_OK, path), (os.W_OK, path + "/control.meta")):
    assert not os.access(what, mode), what
with tw.open_log(path) as reader:
    print(len(list(reader)), flush=True)
    reader.seek_start()
    reader.seek_time(0)
    assert len(reader.read_batch()) > 0
    assert reader.wait(0.01) is False
    print("waiting", flush=True)
    if sys.stdin.readline().strip() == "go on":
        assert reader.wait(30)
        print(bytes(reader.next().payload).decode(), flush=True)
try:
    tw.open_subscriber(path, "r")
except PermissionError as error:
    assert isinstance(error, tw.TapewireError)
    print("refused", flush=True)
try:
    tw.open_publisher(path)
except PermissionError as error:
    assert isinstance(error, tw.TapewireError)
    print("refused", flush=True)
"""


@pytest.fixture
def readable(tmp, queue):
    """`readable()`: make the queue readable by every user and writable by none."""

    def protect():
        for path in queue.iterdir():
            path.chmod(0o444)
        queue.chmod(0o555)
        tmp.chmod(0o755)

    yield protect
    queue.chmod(0o700)


def test_a_read_only_queue_is_read_and_waited_for(publisher, queue, readable):
    writer = publisher(preallocate=False)
    writer.append_batch(1, [b"a", b"b", b"c"])
    readable()
    with Child(LOOKER, queue) as child:
        child.expect("3")
        child.expect("waiting")
        child.send("go on")
        writer.append(1, b"later")
        child.expect("later")
        child.expect("refused")
        child.expect("refused")
        child.finish()
    assert queue_files.control(queue)["waiters_pending"] == 0
    assert writer.metrics()["wakes"] == 0


def test_an_archive_without_a_writer_is_read(publisher, queue, readable):
    with publisher() as writer:
        writer.append_batch(1, [bytes(900)] * 50)
    readable()
    before = {path.name: path.stat().st_mtime_ns for path in queue.iterdir()}
    with Child(LOOKER, queue) as child:
        child.expect("50")
        child.expect("waiting")
        child.send("enough")
        child.expect("refused")
        child.expect("refused")
        child.finish()
    assert {path.name: path.stat().st_mtime_ns for path in queue.iterdir()} == before


def test_an_unreadable_index_is_not_needed(publisher, queue, readable):
    with publisher() as writer:
        writer.append_batch(1, [bytes(900)] * 50)
    readable()
    for path in queue.glob("*.idx"):
        path.chmod(0)
    with Child(LOOKER, queue) as child:
        child.expect("50")
        child.expect("waiting")


INTRUDER = """
import os, sys
import tapewire as tw
import tapewire.queue

if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for open_it in (tw.open_log, tw.kind_of, tw.open_publisher, lambda p: tw.open_subscriber(p, "r")):
    try:
        open_it(sys.argv[1])
    except PermissionError:
        print("refused", flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
"""


@pytest.mark.parametrize("closed", ["directory", "parent"])
def test_a_directory_that_this_user_may_not_enter_is_a_permission_error(
    publisher, queue, tmp, closed
):
    publisher().close()
    tmp.chmod(0o755)
    closed_path = queue if closed == "directory" else tmp
    closed_path.chmod(0o000)
    try:
        with Child(INTRUDER, queue) as child:
            assert [child.line() for _ in range(4)] == ["refused"] * 4
    finally:
        closed_path.chmod(0o700)
