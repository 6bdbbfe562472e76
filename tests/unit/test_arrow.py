"""A batch in Arrow: correct values, no copy, valid as long as the consumer has it."""

import gc
import os

import pyarrow as pa
import pytest

import tapewire as tw

PAYLOADS = [
    bytes([n % 251]) * (n % 40) for n in range(400)
]  # both sides of the 12 bytes stored inline


@pytest.fixture
def queue(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as writer:
        for n, payload in enumerate(PAYLOADS):
            writer.append(n % 7, payload, timestamp_ns=1000 + n, flags=0x100 * (n % 3))
    return tmp / "q"


def test_a_batch_over_many_segments_is_a_record_batch(queue):
    with tw.open_log(queue) as reader:
        batch = pa.record_batch(reader.read_batch())
    batch.validate(full=True)
    assert batch.schema == pa.schema(
        [
            pa.field("seq", pa.uint64(), nullable=False),
            pa.field("timestamp_ns", pa.int64(), nullable=False),
            pa.field("type_id", pa.uint16(), nullable=False),
            pa.field("flags", pa.uint16(), nullable=False),
            pa.field("payload", pa.binary_view(), nullable=False),
        ]
    )
    assert batch["seq"].to_pylist() == list(range(400))
    assert batch["timestamp_ns"].to_pylist() == list(range(1000, 1400))
    assert batch["type_id"].to_pylist() == [n % 7 for n in range(400)]
    assert batch["flags"].to_pylist() == [0x100 * (n % 3) for n in range(400)]
    assert batch["payload"].to_pylist() == PAYLOADS


def test_a_stream_is_the_same_in_one_chunk(queue):
    with tw.open_log(queue) as reader:
        batch = reader.read_batch()
    table = pa.table(batch)
    assert table.num_rows == 400
    assert table["payload"].to_pylist() == PAYLOADS
    assert pa.RecordBatchReader.from_stream(batch).read_all() == table


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 1), (10, 300), (399, 400)])
def test_a_slice_exports_only_its_rows(queue, start, stop):
    with tw.open_log(queue) as reader:
        part = reader.read_batch()[start:stop]
    exported = pa.record_batch(part)
    exported.validate(full=True)
    assert exported["seq"].to_pylist() == list(range(start, stop))
    assert exported["payload"].to_pylist() == PAYLOADS[start:stop]


def test_an_empty_batch_exports_itself(queue):
    with tw.open_log(queue) as reader:
        reader.seek_end()
        empty = reader.read_batch()
    assert pa.record_batch(empty).num_rows == 0
    assert pa.table(empty).num_rows == 0


def test_payloads_are_not_copied(queue):
    with tw.open_log(queue) as reader:
        exported = pa.record_batch(reader.read_batch())
    maps = []
    with open("/proc/self/maps") as lines:
        for line in lines:
            if str(queue) in line and line.split()[5].endswith(".q"):
                begin, end = (int(word, 16) for word in line.split()[0].split("-"))
                maps.append(range(begin, end))
    far = exported["payload"].buffers()[2:]
    far = [buffer for buffer in far if buffer is not None and buffer.size == 8192]
    assert far
    assert all(any(buffer.address in area for area in maps) for buffer in far)


def test_the_bytes_live_as_long_as_the_consumer_whatever_happens_to_the_queue(queue):
    with tw.open_log(queue) as reader:
        column = pa.record_batch(reader.read_batch()).column("payload")
    del reader
    for path in queue.glob("*.q"):
        os.unlink(path)
    gc.collect()
    assert column.to_pylist() == PAYLOADS
    del column
    gc.collect()
    with open("/proc/self/maps") as maps:
        assert not [line for line in maps if str(queue) in line]


def test_unused_capsules_are_freed(queue):
    with tw.open_log(queue) as reader:
        batch = reader.read_batch()
    for _ in range(100):
        batch.__arrow_c_schema__()
        batch.__arrow_c_array__()
        batch.__arrow_c_stream__()
    del batch, reader
    gc.collect()
    with open("/proc/self/maps") as maps:
        assert not [line for line in maps if str(queue) in line]


def test_to_arrow_is_the_record_batch(queue):
    with tw.open_log(queue) as reader:
        assert reader.read_batch(5).to_arrow()["seq"].to_pylist() == [0, 1, 2, 3, 4]
