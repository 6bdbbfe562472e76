"""A sync that fails: every later one raises, until another writer has written the records again."""

import errno
import json
import os
import re
import shutil

import pytest

import tapewire as tw
from tapewire.queue import status
from tapewire.queue.checkup import examine
from tests.crash.scripts import python
from tests.support import queue_files
from tests.support.commands import tapewire

OUTCOME = """
    import json, sys
    import tapewire as tw
    from tapewire.queue import status

    def outcome(call):
        try:
            call()
        except OSError as error:
            return [isinstance(error, tw.StorageError), error.errno]
        return "acknowledged"
"""

A_SYNC_FAILS_ONCE = (
    OUTCOME
    + """
    writer = tw.open_publisher(sys.argv[1], segment_bytes=1 << 20, preallocate=False)
    writer.append_batch(1, [bytes(1000)] * 20)
    said = {"first": outcome(writer.flush_sync)}
    writer.append_batch(1, [b"after the checkpoint"] * 500)
    said["failing"] = outcome(writer.flush_sync)
    said["later"] = [outcome(writer.flush_sync) for _ in range(3)]
    said["sync_errno"] = status(sys.argv[1]).sync_errno
    said["close"] = outcome(writer.close)
    print(json.dumps(said))
"""
)


def fail_a_sync(queue, nth):
    """A writer whose nth sync of its segment fails; the syncs after that would succeed."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    only = ["-P", str(queue / "000000000.q"), "-e", "trace=fdatasync"]
    inject = ["-e", f"inject=fdatasync:error=EIO:when={nth}"]
    before = ["strace", "-f", "-qq", "-o", "/dev/null", *only, *inject]
    return json.loads(python(A_SYNC_FAILS_ONCE, queue, before=before).stdout)


@pytest.fixture
def queue(tmp):
    """A queue of 520 records, of which a failed sync leaves the last 500 in doubt."""
    said = fail_a_sync(tmp / "queue", nth=2)
    assert said["first"] == "acknowledged"
    assert said["failing"] == [True, errno.EIO]
    return tmp / "queue"


def test_after_a_failed_sync_every_later_one_of_the_writer_raises(tmp):
    said = fail_a_sync(tmp / "queue", nth=2)
    assert said["later"] == [[True, errno.EIO]] * 3
    assert said["close"] == [True, errno.EIO]
    assert said["sync_errno"] == errno.EIO


def test_a_failed_sync_is_seen_from_outside(queue):
    assert queue_files.control(queue)["sync_errno"] == errno.EIO
    seen = status(queue)
    assert seen.sync_errno == errno.EIO
    (finding,) = [finding for finding in examine(seen) if finding.kind == "sync-failed"]
    assert "Input/output error" in finding.message
    assert "segment 0, offset" in finding.message
    assert not finding.fixable
    assert not finding.note
    ran = tapewire("doctor", queue)
    assert ran.code == 1
    assert "sync-failed" in ran.out
    assert "Input/output error" in tapewire("inspect", queue).out


def test_the_first_sync_of_the_next_writer_clears_it(queue):
    with tw.open_publisher(queue) as writer:
        assert writer.next_seq == 520
        assert status(queue).sync_errno == errno.EIO, "not before"
        writer.flush_sync()
        assert status(queue).sync_errno == 0
    assert "sync-failed" not in tapewire("doctor", queue).out


def test_the_next_writer_logs_that_it_writes_the_records_again(queue, caplog):
    tw.open_publisher(queue).close()
    assert "a sync of the previous writer failed (Input/output error)" in caplog.text


FAILED_BEFORE = (
    OUTCOME
    + """
    writer = tw.open_publisher(sys.argv[1], segment_bytes=8192, preallocate=sys.argv[2] == "ahead")
    for _ in range(int(sys.argv[3])):
        writer.append(1, bytes(5000))  # one a segment
    said = {}
    while not (status(sys.argv[1]).sync_errno or int(sys.argv[3]) < 2):
        pass  # until a service thread has met the failure
    said["flushes"] = [outcome(writer.flush_sync) for _ in range(3)]
    said["sync_errno"] = status(sys.argv[1]).sync_errno
    said["close"] = outcome(writer.close)
    print(json.dumps(said))
"""
)


def fail_nth(call, path, nth, queue, *arguments):
    """The nth sync of `path` by a writer fails, and only that one."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    only = ["-P", str(path), "-e", f"trace={call}"]
    inject = ["-e", f"inject={call}:error=EIO:when={nth}"]
    before = ["strace", "-f", "-qq", "-o", "/dev/null", *only, *inject]
    return json.loads(python(FAILED_BEFORE, queue, *arguments, before=before).stdout)


@pytest.mark.parametrize(
    ("call", "name"),
    [("fdatasync", "control.meta"), ("fdatasync", "index.meta"), ("fsync", ".")],
    ids=["control.meta", "index.meta", "the directory"],
)
def test_a_failed_sync_of_any_file_makes_every_later_one_raise(tmp, call, name):
    queue = tmp / "queue"
    tw.open_publisher(queue, segment_bytes=8192, preallocate=False).close()
    said = fail_nth(call, queue / name, 1, queue, "at the roll", 1)
    assert said["flushes"] == [[True, errno.EIO]] * 3
    assert said["close"] == [True, errno.EIO]
    assert said["sync_errno"] == errno.EIO


@pytest.mark.parametrize("prepared", ["at the roll", "ahead"])
def test_a_sync_of_the_directory_that_a_service_thread_saw_fail_is_not_forgotten(tmp, prepared):
    """By the thread that syncs sealed segments, or by the one that prepares the next."""
    queue = tmp / "queue"
    tw.open_publisher(queue, segment_bytes=8192, preallocate=False).close()
    said = fail_nth("fsync", queue, 1, queue, prepared, 2)
    assert said["flushes"] == [[True, errno.EIO]] * 3
    assert said["close"] == [True, errno.EIO]


def dirty_bytes(path):
    """The dirty pages of this process's mappings of a file."""
    with open("/proc/self/smaps") as file:
        mappings = re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", file.read())
    kilobytes = 0
    for mapping in mappings:
        if mapping.split("\n", 1)[0].endswith(str(path)):
            kilobytes += sum(map(int, re.findall(r"(?:Shared|Private)_Dirty: +(\d+)", mapping)))
    return kilobytes << 10


def test_what_a_killed_writer_left_unsynced_is_dirty_again_at_the_next_opening(tmp_path, crew):
    """The kernel may treat them as clean; needs a file system with write-back, not tmpfs."""
    queue, segment = tmp_path / "queue", tmp_path / "queue" / "000000000.q"
    child = crew.start("failed_syncs.leave_unsynced", queue=str(queue), records=500)
    (flushed, written) = child.expect("left")
    child.kill()
    with open(segment, "rb") as file:
        os.fsync(file.fileno())
    with tw.open_log(queue) as reader:
        assert len(list(reader)) == 600
        if dirty_bytes(segment):
            pytest.skip("needs a temporary directory on a disk: tmpfs has no write-back")
    with tw.open_publisher(queue, preallocate=False):
        assert dirty_bytes(segment) >= written - flushed


@pytest.mark.root
@pytest.mark.parametrize("rolls", [False, True], ids=["in the active segment", "in a sealed one"])
def test_what_is_acknowledged_after_a_failed_write_back_is_on_the_disk(tmp, crew, rolls):
    """With a disk that fails to write, and its content when it is mounted again."""
    directory = tmp / "thin"
    directory.mkdir()
    child = crew.start(
        "failed_syncs.write_back_fails", where={"directory": str(directory)}, rolls=rolls
    )
    word, *rest = child.line.hear(timeout=110)
    if word == "unable":
        pytest.skip(f"cannot mount ext4 by a loop device (needs root): {rest[0]}")
    assert word == "ok", rest[0]
