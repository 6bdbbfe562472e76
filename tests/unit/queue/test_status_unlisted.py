"""Directories and files that cannot be read: reported, and they hide nothing else."""

import errno
import os
import shutil

import pytest

import tapewire as tw
from tapewire.monitor import Watch
from tapewire.queue import QueueWatch, find_queues, status
from tapewire.queue.checkup import examine
from tests.support import faulty_bus
from tests.support.commands import tapewire


@pytest.fixture
def forbid(monkeypatch):
    """`forbid(directory)`: listing it is refused, as to another user (the tests may be root)."""
    real = os.scandir
    forbidden = set()

    def scandir(directory):
        if os.fspath(directory) in forbidden:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(directory))
        return real(directory)

    monkeypatch.setattr(os, "scandir", scandir)
    return lambda directory: forbidden.add(os.fspath(directory))


@pytest.fixture
def bus(tmp, forbid):
    """One valid queue, and a directory that may not be listed."""
    faulty_bus.good(tmp / "bus" / "md")
    (tmp / "bus" / "private").mkdir()
    forbid(tmp / "bus" / "private")
    return tmp / "bus"


def test_a_directory_that_cannot_be_listed_hides_no_queue(bus):
    errors = []
    assert find_queues(bus, errors.append) == [str(bus / "md")]
    assert [error.filename for error in errors] == [str(bus / "private")]


def test_without_a_callback_it_raises(bus):
    with pytest.raises(PermissionError):
        find_queues(bus)


def test_the_root_itself_always_raises(tmp, forbid):
    forbid(tmp)
    with pytest.raises(PermissionError):
        find_queues(tmp, lambda error: None)


def test_the_doctor_reports_it_and_examines_the_rest(bus):
    faulty_bus.add_temporary_file(bus / "md")
    ran = tapewire("doctor", bus, "--json")
    assert ran.code == 1
    (seen,) = ran.json
    assert [(f["kind"], f["queue"]) for f in seen["findings"]] == [
        ("temporary-file", str(bus / "md")),
        ("problem", str(bus / "private")),
    ]
    assert tapewire("doctor", bus, "--fix", "--yes", "--json").json[0]["left"] == 1


def test_a_monitor_reports_it_and_watches_the_rest(bus):
    snapshot = Watch(bus).sample()
    assert [queue.name for queue in snapshot.queues] == ["md"]
    assert [(a.kind, a.path) for a in snapshot.alerts] == [
        ("directory_unreadable", str(bus / "private"))
    ]


def test_the_lost_and_found_of_a_filesystem_is_ignored(tmp, forbid):
    faulty_bus.good(tmp / "bus" / "md")
    (tmp / "bus" / "lost+found").mkdir()
    forbid(tmp / "bus" / "lost+found")
    assert find_queues(tmp / "bus") == [str(tmp / "bus" / "md")]


def test_an_unlistable_directory_inside_a_queue_is_a_problem(tmp, forbid):
    queue = faulty_bus.good(tmp / "q")
    (queue / "snapshots").mkdir()
    forbid(queue / "snapshots")
    seen = status(queue)
    assert seen.last_seq == 19
    assert [line.startswith("directory cannot be listed") for line in seen.problems] == [True]


def test_deeply_nested_directories_are_searched(tmp):
    directories = [os.path.join(tmp, *["d"] * n) for n in range(1, 1501)]
    for directory in directories:
        os.mkdir(directory)
    deep = directories[-1]
    try:
        tw.open_publisher(deep, segment_bytes=65536).close()
        assert find_queues(tmp) == [deep]
    finally:
        shutil.rmtree(deep)
        for directory in reversed(directories[:-1]):  # rmtree is recursive
            os.rmdir(directory)


def test_one_unreadable_queue_hides_no_other_from_the_doctor(tmp, monkeypatch):
    for name in ("bad", "good"):
        faulty_bus.add_temporary_file(faulty_bus.good(tmp / "bus" / name))
    real = QueueWatch.look

    def look(self):
        if self.path.endswith("bad"):
            raise PermissionError(errno.EACCES, "denied", self.path)
        return real(self)

    monkeypatch.setattr(QueueWatch, "look", look)
    (seen,) = tapewire("doctor", tmp / "bus", "--json").json
    assert [f["kind"] for f in seen["findings"]] == ["problem", "temporary-file"]


def test_a_reader_whose_file_cannot_be_opened_is_not_called_dead(tmp):
    queue = faulty_bus.good(tmp / "q")
    (queue / "readers" / "odd.meta").mkdir(parents=True)
    assert [finding.kind for finding in examine(status(queue))] == ["problem"]


def test_a_lag_is_not_zero_when_the_end_of_the_log_cannot_be_read(tmp):
    queue = faulty_bus.good(tmp / "q")
    with tw.open_subscriber(queue, "r") as reader:
        for _ in range(16):
            reader.next()
        reader.commit()
    last = sorted(queue.glob("*.q"))[-1]
    with last.open("r+b") as file:
        file.write(b"junk")
    (reader,) = status(queue).readers
    assert reader.lag_records is None


def test_a_queue_created_again_by_the_same_process_is_not_mistaken_for_the_old_one(tmp):
    queue = tmp / "q"
    watch = QueueWatch(queue)
    for count in (50, 3):
        with tw.open_publisher(queue, segment_bytes=65536) as writer:
            writer.append_batch(1, [b"x"] * count)
            assert watch.look().last_seq == count - 1
        for path in sorted(queue.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


def test_a_prepared_segment_that_cannot_be_read_leaves_the_lag_known(tmp):
    queue = tmp / "q"
    with tw.open_publisher(queue, segment_bytes=65536, preallocate=False) as writer:
        writer.append_batch(1, [b"x"] * 5)
        with tw.open_subscriber(queue, "r", start="earliest") as reader:
            reader.next()
            reader.commit()
            (queue / "000000001.q").mkdir()
            seen = status(queue)
    assert len(seen.problems) == 1
    assert [each.lag_records for each in seen.readers] == [4]
