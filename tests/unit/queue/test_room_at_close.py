"""A log that will not be filled frees the space after its end when it is closed."""

import os

import pytest

import tapewire as tw
from tapewire.config import WriterConfig
from tapewire.queue import open_reader
from tapewire.queue.verification import Verification

SEGMENT_BYTES = 1 << 20


def fill(queue, count=100, config=None):
    config = config or WriterConfig.archive()
    with tw.open_publisher(queue, config=config, segment_bytes=SEGMENT_BYTES) as writer:
        for _ in range(count):
            writer.append(1, b"%d" % writer.next_seq)


# Holes are examined in `tmp_path`, on a disk: tmpfs fills a hole when it is read.


def taken(queue, segment=0):
    """The allocated bytes and the length of the file."""
    found = os.stat(queue / f"{segment:09}.q")
    return found.st_blocks * 512, found.st_size


def payloads(queue):
    with tw.open_log(queue) as log:
        return [int(bytes(record.payload)) for record in log]


@pytest.mark.parametrize("count", [0, 1, 100])
def test_a_closed_archive_uses_only_the_space_of_its_records_and_keeps_its_length(tmp, count):
    fill(tmp / "q", count)
    blocks, size = taken(tmp / "q")
    assert blocks <= 32768
    assert size == SEGMENT_BYTES
    assert payloads(tmp / "q") == list(range(count))
    with Verification(os.fspath(tmp / "q")) as check:
        for _ in check.run():
            pass
        assert check.verdict().intact


def test_no_byte_of_a_record_changes_so_a_kill_at_any_moment_is_harmless(tmp):
    writer = tw.open_publisher(tmp / "q", config=WriterConfig.archive(), segment_bytes=65536)
    writer.append(1, b"x" * 4000)
    before = (tmp / "q" / "000000000.q").read_bytes()
    writer.close()
    assert (tmp / "q" / "000000000.q").read_bytes()[64:] == before[64:]
    assert taken(tmp / "q")[0] < 65536


@pytest.mark.parametrize("bytes_left", [0, 64, 128, 4096, 4160])
def test_a_segment_that_is_full_or_nearly_full_stays_allocated(tmp, bytes_left):
    payload = bytes(8192 - 64 - 64 - bytes_left)
    with tw.open_publisher(tmp / "q", config=WriterConfig.archive(), segment_bytes=8192) as writer:
        writer.append(1, payload)
    for _ in range(2):
        with tw.open_publisher(tmp / "q", config=WriterConfig.archive()) as writer:
            writer.append(1, b"more")
    with tw.open_log(tmp / "q") as log:
        assert [len(record.payload) for record in log] == [len(payload), 4, 4]


def test_reopening_allocates_the_space_before_appending(tmp_path):
    fill(tmp_path / "q")
    with tw.open_publisher(tmp_path / "q", config=WriterConfig.archive()) as writer:
        assert taken(tmp_path / "q")[0] >= SEGMENT_BYTES
        writer.append(1, b"100")
    assert taken(tmp_path / "q")[0] <= 32768
    assert payloads(tmp_path / "q") == list(range(101))


def test_a_copy_with_holes_is_allocated_again_before_a_record_is_appended(tmp_path):
    """Otherwise a full disk would fail in the middle of a record."""
    fill(tmp_path / "q", config=WriterConfig())
    segment = tmp_path / "q" / "000000000.q"
    os.truncate(segment, 65536)
    os.truncate(segment, SEGMENT_BYTES)
    assert taken(tmp_path / "q")[0] < SEGMENT_BYTES
    with tw.open_publisher(tmp_path / "q", preallocate=False):
        assert taken(tmp_path / "q")[0] >= SEGMENT_BYTES


def test_a_live_queue_keeps_its_space(tmp_path):
    fill(tmp_path / "q", config=WriterConfig())
    assert taken(tmp_path / "q")[0] >= SEGMENT_BYTES


def test_a_reader_that_waits_at_the_end_continues_when_the_log_grows(tmp):
    fill(tmp / "q")
    with open_reader(tmp / "q") as reader:
        assert len(reader.read_batch(1000)) == 100
        fill(tmp / "q", 20_000)  # into the next segment
        seen = 100
        while len(batch := reader.read_batch(65536)):
            assert batch.seq[0] == seen
            seen += len(batch)
    assert seen == 20_100


def test_an_idle_queue_with_default_options_takes_less_than_4_mib_of_memory(tmp):
    """Its pages are prepared in steps; on a disk the blocks of a segment are allocated at once."""
    if not str(tmp).startswith("/dev/shm"):
        pytest.skip("needs a file system in memory")
    queue = tmp / "q"
    with tw.open_publisher(queue) as writer:
        writer.append(1, b"one record")
        writer.flush_sync()
        files = [path for path in queue.rglob("*") if path.is_file()]
        assert sum(os.stat(path).st_blocks * 512 for path in files) < 4 << 20


def test_a_closed_queue_in_memory_keeps_no_pages_of_the_segment_prepared_ahead(tmp, eventually):
    if not str(tmp).startswith("/dev/shm"):
        pytest.skip("needs a file system in memory")
    ahead = tmp / "q" / "000000001.q"
    with tw.open_publisher(tmp / "q", segment_bytes=SEGMENT_BYTES) as writer:
        while writer.metrics()["bytes_written"] < SEGMENT_BYTES * 0.9:
            writer.append(1, bytes(1000))
        eventually(lambda: ahead.exists() and taken(tmp / "q", 1)[0] >= 65536)
    assert taken(tmp / "q", 1) == (4096, SEGMENT_BYTES)
