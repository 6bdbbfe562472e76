"""The status of a queue: alive, dead or damaged; reading it changes nothing."""

import json
import os
import random
import shutil
import threading
import time

import pytest

import tapewire as tw
from tapewire.queue import QueueWatch, find_queues, status
from tests.support import crafted, queue_files
from tests.support import queue_format as qf
from tests.support.processes import WRITER, Child

NOISE = random.Random(1).randbytes(512)


def fingerprint(directory):
    return {
        path.relative_to(directory): (
            path.stat().st_mtime_ns,
            path.stat().st_mode,
            path.stat().st_ino,
        )
        for path in directory.rglob("*")
    }


def test_a_living_writer_and_reader_are_shown(publisher, subscriber, queue):
    writer = publisher()
    reader = subscriber(pinned=True)
    writer.append_batch(1, [b"a", b"b", b"c"])
    reader.next()
    reader.commit()
    seen = status(queue)
    assert (seen.path, seen.version, seen.segment_bytes, seen.first_seq) == (str(queue), 4, 8192, 0)
    assert (seen.records, seen.last_seq, seen.first_available_seq) == (3, 2, 0)
    assert (seen.current_segment, seen.write_offset) == (0, 64 + 3 * 128)
    assert (seen.end_segment, seen.end_offset) == (0, 64 + 3 * 128)
    assert (seen.writer.alive, seen.writer.pid, seen.writer.epoch) == (True, os.getpid(), 1)
    assert 0 <= seen.writer.heartbeat_age < 60
    (r,) = seen.readers
    assert (r.name, r.alive, r.pinned, r.segment, r.offset) == ("r", True, True, 0, 192)
    assert r.path == str(queue / "readers" / "r.meta")
    first = seen.segments[0]
    assert (first.id, first.bytes, first.sealed, first.readable) == (0, 8192, False, True)
    assert seen.disk_bytes >= 8192
    assert seen.problems == ()


def test_after_a_clean_close_no_writer_is_named(publisher, subscriber, queue):
    publisher().close()
    subscriber().close()
    seen = status(queue)
    assert (seen.writer.alive, seen.writer.pid, seen.writer.killed) == (False, None, False)
    assert [r.alive for r in seen.readers] == [False]


def test_a_killed_writer_is_named_as_dead(queue):
    with Child(WRITER, queue, 8192) as child:
        child.expect("ready")
        child.kill()
        seen = status(queue)
        assert (seen.writer.alive, seen.writer.pid) == (False, child.pid)
        assert seen.writer.killed


def test_an_empty_queue_has_no_record(publisher, subscriber, queue):
    publisher(first_seq=7)
    subscriber()
    seen = status(queue)
    assert (seen.records, seen.last_seq, seen.last_timestamp_ns) == (0, None, None)
    assert (seen.readers[0].lag_records, seen.readers[0].next_seq) == (0, 7)


def test_a_sparse_log_does_not_count_by_numbers(publisher, subscriber, queue):
    writer = publisher(sparse=True)
    subscriber()
    writer.append_batch(1, [b"a", b"b"], seqs=[10, 900])
    seen = status(queue)
    assert (seen.sparse, seen.records, seen.last_seq) == (True, None, 900)
    assert (seen.readers[0].lag_records, seen.readers[0].next_seq) == (2, 10)


def test_reading_the_status_changes_nothing(publisher, subscriber, queue):
    with publisher() as writer:
        writer.append_batch(1, [bytes(900)] * 20)
    subscriber().close()
    before = fingerprint(queue)
    watch = QueueWatch(queue)
    watch.look()
    watch.look()
    status(queue)
    assert fingerprint(queue) == before


def test_reading_the_status_keeps_no_writer_or_reader_out(publisher, subscriber, queue):
    publisher().close()
    subscriber().close()
    watch = QueueWatch(queue)
    watch.look()
    publisher()
    subscriber()
    assert watch.look().writer.alive


def test_segments_that_retention_removes_meanwhile_are_not_a_problem(publisher, subscriber, queue):
    writer = publisher(retention=tw.Retention(reader_ttl=1000.0))
    reader = subscriber()
    done = threading.Event()
    problems = []

    def look():
        watch = QueueWatch(queue)
        while not done.is_set():
            problems.extend(status(queue).problems)
            problems.extend(watch.look().problems)

    looker = threading.Thread(target=look)
    looker.start()
    deadline = time.monotonic() + 10
    while writer.metrics()["segments_retired"] < 300 and time.monotonic() < deadline:
        writer.append_batch(1, [bytes(900)] * 70)
        reader.read_batch()
        reader.commit()
    done.set()
    looker.join()
    assert writer.metrics()["segments_retired"] >= 300
    assert problems == []


# Becomes a user without permissions, then reads the status.
LOOKER = """
import os, sys
import tapewire as tw
import tapewire.queue

if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
assert not os.access(sys.argv[1] + "/control.meta", os.W_OK)
seen = tw.queue.status(sys.argv[1])
print(seen.records, seen.writer.alive, seen.problems, flush=True)
"""


def test_the_status_of_a_read_only_directory_is_read(publisher, queue, tmp):
    publisher(preallocate=False).append(1, b"a")
    for path in queue.iterdir():
        path.chmod(0o444)
    queue.chmod(0o555)
    tmp.chmod(0o755)
    with Child(LOOKER, queue) as child:
        child.expect("1 True ()")
        child.finish()
    queue.chmod(0o700)


def test_metrics_are_those_that_the_writer_stored(publisher, queue):
    with publisher() as writer:
        writer.append_batch(1, [b"a"] * 5)
        expected = writer.metrics()
    seen = status(queue).metrics
    assert seen["records"] == 5
    assert list(seen) == list(expected)
    assert list(seen.values()) == queue_files.stats(queue)


def test_a_queue_written_elsewhere_has_no_metrics(tmp):
    assert status(crafted.write(tmp, crafted.numbered(0, 3))).metrics is None


def test_the_status_has_the_state_of_each_segment(publisher, queue):
    with publisher(preallocate=False) as writer:
        writer.append_batch(1, [bytes(900)] * 20)
    shutil.copy(queue / "000000000.q", queue / "000000000.q.damaged")
    (queue / "000000009.q.tmp").touch()
    seen = status(queue)
    assert [s.sealed for s in seen.segments] == [True, True, False]
    assert all(s.readable and s.has_index and s.holds_records for s in seen.segments)
    assert seen.damaged_copies == (str(queue / "000000000.q.damaged"),)
    assert seen.temporary_files == (str(queue / "000000009.q.tmp"),)


def test_ready_and_lease_are_shown(publisher, queue):
    publisher()
    assert (status(queue).ready, status(queue).lease) == (False, None)
    (queue / "READY").touch()
    (queue / "LEASE").write_text('{"epoch": 3}\n')
    assert (status(queue).ready, status(queue).lease) == (True, {"epoch": 3})


def test_the_dict_is_json(publisher, subscriber, queue):
    publisher().append(1, b"a")
    subscriber()
    seen = status(queue)
    again = json.loads(json.dumps(seen.to_dict()))
    assert again["readers"][0]["lag_records"] == 1
    assert again["writer"]["epoch"] == 1
    assert set(again) == set(vars(seen))


# ---- an unreadable file is a problem, and the rest is still reported


def one_problem(queue, *words):
    seen = status(queue)
    (line,) = seen.problems
    for word in words:
        assert word in line
    return seen


@pytest.fixture
def three(tmp):
    """Three segments of three records, and a reader that has read one."""
    queue = crafted.write(tmp, *(crafted.numbered(n, 3) for n in (0, 3, 6)))
    (queue / "readers").mkdir()
    slot = qf.reader_slot(0, 64 + 128, 1)
    (queue / "readers" / "r.meta").write_bytes(qf.reader_meta(slot))
    return queue


def test_the_fixture_has_no_problems(three):
    seen = status(three)
    assert seen.problems == ()
    assert seen.readers[0].lag_records == 8


@pytest.mark.parametrize("content", [b"", bytes(512), NOISE[:512], bytes(100)])
def test_a_damaged_control_file_does_not_hide_the_rest(three, content):
    (three / "control.meta").write_bytes(content)
    seen = one_problem(three, "control.meta")
    assert seen.version == 0
    assert [s.id for s in seen.segments] == [0, 1, 2]
    assert [(r.name, r.segment, r.offset) for r in seen.readers] == [("r", 0, 192)]
    assert seen.readers[0].lag_records is None


def test_a_damaged_segment_header_is_named(three):
    crafted.patch(three, 1, 0, b"xxxx")
    seen = status(three)
    assert [s.readable for s in seen.segments] == [True, False, True]
    assert seen.segments[1].holds_records is None
    assert seen.last_seq == 8
    assert len(seen.problems) == 2
    assert "magic" in seen.problems[0]
    assert "reader 'r': its lag in records is unknown" in seen.problems[1]


def test_a_truncated_segment_is_named(three):
    os.truncate(qf.segment_path(three, 2), 100)
    seen = one_problem(three, "invalid length", "size=100")
    assert seen.segments[2].bytes == 100
    assert seen.last_seq == 5


def test_a_damaged_record_is_skipped(three):
    crafted.damage(three, 1, 64 + 128)
    seen = status(three)
    assert seen.last_seq == 8
    assert seen.readers[0].lag_records == 7


def test_a_damaged_reader_file_is_named(three):
    (three / "readers" / "r.meta").write_bytes(NOISE[:80])
    seen = one_problem(three, "reader 'r'", "checksum")
    assert seen.readers[0].lag_records is None


def test_an_invalid_position_is_named(three):
    slot = qf.reader_slot(2**40, 64, 1)
    (three / "readers" / "r.meta").write_bytes(qf.reader_meta(slot))
    one_problem(three, "invalid position", f"segment={2**40}")


@pytest.mark.parametrize("make", ["link", "pipe", "directory"])
@pytest.mark.parametrize("name", ["LEASE", "stats.meta", "readers/x.meta", "writer.lock"])
def test_links_pipes_and_directories_in_place_of_files_are_named(three, name, make):
    path = three / name
    if make == "link":
        path.symlink_to("/etc/passwd")
    elif make == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    seen = status(three)
    assert seen.last_seq == 8
    assert seen.lease is None
    if make == "link":
        assert any(name.split("/")[-1] in line for line in seen.problems)


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"\xff", b"[" * 60000])
def test_a_lease_that_is_not_a_json_object_is_named(three, text):
    (three / "LEASE").write_bytes(text)
    one_problem(three, "LEASE")


@pytest.mark.parametrize("content", [b"x" * 4096, b"TWST" + b"\xff" * 4092])
def test_damaged_counters_are_named(three, content):
    (three / "stats.meta").write_bytes(content)
    assert one_problem(three, "stats.meta").metrics is None


def test_no_queue_is_an_error(tmp):
    with pytest.raises(FileNotFoundError):
        status(tmp / "absent")
    with pytest.raises(tw.NotALog):
        status(tmp)


# ---- finding them


def test_every_queue_below_a_root_is_found_and_links_are_not_followed(tmp):
    for name in ("bus/b", "bus/a/deep/er", "elsewhere"):
        tw.open_publisher(tmp / name, segment_bytes=8192).close()
    (tmp / "bus" / "link").symlink_to(tmp / "elsewhere")
    (tmp / "bus" / "loop").symlink_to(tmp / "bus")
    assert find_queues(tmp / "bus") == [str(tmp / "bus/a/deep/er"), str(tmp / "bus/b")]
    assert find_queues(tmp / "bus" / "b") == [str(tmp / "bus/b")]


def test_a_missing_root_is_an_error(tmp):
    with pytest.raises(FileNotFoundError):
        find_queues(tmp / "absent")
