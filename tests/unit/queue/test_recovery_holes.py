"""Opening a log that ends in a hole: the hole is not read, and no data in it is missed."""

import mmap
import os
from pathlib import Path

import pytest

import tapewire as tw
from tests.support import queue_format as qf
from tests.support.crafted import reopen

SEGMENT_BYTES = 4 << 20
RECORDS = 100


@pytest.fixture(params=["memory", "disk"])
def queue(request, tmp, tmp_path):
    """A closed log of few records: the rest of its segment takes no space."""
    path = (tmp if request.param == "memory" else tmp_path) / "q"
    with tw.open_publisher(path, config=archive()) as writer:
        for _ in range(RECORDS):
            writer.append(1, bytes(100))
    return path


def archive():
    return tw.WriterConfig.archive(segment_bytes=SEGMENT_BYTES, sparse=True)


def resident_bytes(path):
    """The resident bytes of a file in the mappings of this process."""
    found = 0
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            inside = line.endswith(os.fspath(path))
        elif inside and words[0] == "Rss:":
            found += int(words[1]) * 1024
    return found


def test_the_hole_after_the_end_takes_no_memory(queue):
    segment = qf.segment_path(queue, 0)
    if segment.stat().st_blocks * 512 > SEGMENT_BYTES // 2:
        pytest.skip(f"the file system of {queue} keeps no holes")
    with tw.open_publisher(queue, config=archive()) as writer:
        writer.append(1, b"x")
        assert 0 < resident_bytes(segment) < SEGMENT_BYTES // 8


@pytest.mark.parametrize("allocated", [False, True], ids=["in a hole", "in room that is reserved"])
def test_bytes_that_a_mapping_has_just_written_far_past_the_end_are_found(queue, allocated):
    """As a killed writer leaves them: in memory and not yet on disk."""
    segment = qf.segment_path(queue, 0)
    with segment.open("r+b") as file:
        if allocated:
            os.posix_fallocate(file.fileno(), 0, SEGMENT_BYTES)
        with mmap.mmap(file.fileno(), 0) as view:
            view[SEGMENT_BYTES // 2 + 4100] = 7
            found = reopen(queue)
    assert found["place"] == (1, 64), "what they are in is fenced off"
    with tw.open_log(queue) as reader:
        assert sum(1 for _ in reader) == RECORDS + 1


def test_a_valid_record_after_a_hole_is_found(queue):
    """After a power failure, before which the pages between did not reach the disk."""
    qf.restart_machine(queue)
    segment = qf.segment_path(queue, 0)
    with segment.open("r+b") as file:
        state = qf.state_at(qf.key_of(queue), 0, SEGMENT_BYTES // 2)
        file.seek(SEGMENT_BYTES // 2)
        file.write(qf.record(RECORDS + 5, b"after", state=state))
    assert reopen(queue)["next_seq"] == RECORDS + 6
