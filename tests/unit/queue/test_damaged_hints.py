"""The position in control.meta is a hint for readers: if damaged, it misleads no writer."""

import struct

import pytest

import tapewire as tw
from tests.support import queue_files
from tests.support.queue_format import parse_checkpoint, record_bytes, segment_ids
from tests.support.records import fill_segments, stored

CURRENT_SEGMENT, WRITE_OFFSET = 132, 256


def store_write_offset(queue, value):
    with open(queue / "control.meta", "r+b") as file:
        file.seek(WRITE_OFFSET)
        file.write(struct.pack("<Q", value))


def fill_up(writer):
    """Append until the queue is full: each attempt to roll runs a retention pass first."""
    with pytest.raises(tw.QueueFull):
        fill_segments(writer, 100)


def test_retention_removes_nothing_by_a_damaged_hint(publisher, subscriber, queue):
    strict = tw.Retention(max_reader_lag_bytes=1 << 20, reader_ttl=3600.0)
    writer = publisher(preallocate=False, max_segments=4, retention=strict)
    subscriber(start="earliest")
    fill_up(writer)
    queue_files.flip_bit(queue / "control.meta", offset=CURRENT_SEGMENT, bit=16)
    assert queue_files.control(queue)["current_segment"] == 3 + (1 << 16)
    fill_up(writer)  # by the hint the reader lags by 512 MiB, and the active segment is an old one
    assert segment_ids(queue) == [0, 1, 2, 3]
    assert writer.metrics()["readers_ignored"] == 0
    assert len(stored(queue)) == writer.next_seq


@pytest.mark.parametrize("hint", [64, 4096, 8192, 1 << 63])
def test_a_checkpoint_does_not_follow_a_damaged_hint(publisher, queue, hint):
    writer = publisher(preallocate=False)
    writer.append(1, bytes(1000))
    store_write_offset(queue, hint)
    writer.flush_sync()
    assert parse_checkpoint((queue / "index.meta").read_bytes()) == (0, 64 + record_bytes(1000))


@pytest.mark.parametrize("hint", [64, 1 << 63])
def test_the_writer_counts_its_bytes_without_the_hint(publisher, queue, hint):
    writer = publisher()
    writer.append(1, bytes(1000))
    store_write_offset(queue, hint)
    assert writer.metrics()["bytes_written"] == record_bytes(1000)
