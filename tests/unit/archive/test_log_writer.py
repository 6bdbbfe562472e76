"""LogWriter appends each record once, whatever was killed, and to no log of other records."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import tapewire as tw
from tapewire.archive.log_writer import LogWriter
from tapewire.archive.record_columns import RecordColumns
from tapewire.config import WriterConfig
from tapewire.errors import CorruptMetadata, SequenceNotRising
from tapewire.protocol import types_file
from tests.support.records import stored

DENSE = WriterConfig.archive(flush=None, segment_bytes=1 << 16)
SPARSE = DENSE.replace(sparse=True)
FORMS: dict[str, Callable] = {
    "bytes": list,
    "rows of an array": lambda payloads: np.array([list(each) for each in payloads], np.uint8),
    "Arrow": lambda payloads: pa.array(payloads, pa.binary()),
}


def records(
    seqs, *, sparse=True, form="bytes", payload=b"%04d", timestamp_ns=0, type_id=7, flags=0
):
    seqs = np.asarray(list(seqs), np.int64)
    payloads = FORMS[form]([payload % seq if b"%" in payload else payload for seq in seqs])
    times = seqs + timestamp_ns
    return RecordColumns(times, type_id, flags, payloads, seqs if sparse else None)


def seqs_of(path):
    return [entry.seq for entry in stored(path)]


def other_writer(path, config):
    return LogWriter(
        path, config, conflict=lambda path, seq: SequenceNotRising(f"other: {seq=}", path=path)
    )


def test_records_are_appended_with_their_sequence_numbers_and_flags(tmp):
    with LogWriter(tmp / "log", SPARSE) as log:
        log.append(records([3, 9], flags=0x300))
        assert (log.next_seq, log.end_seq) == (10, 10)
    assert [
        (e.seq, e.timestamp_ns, e.type_id, e.flags, e.payload) for e in stored(tmp / "log")
    ] == [
        (3, 3, 7, 0x300, b"0003"),
        (9, 9, 7, 0x300, b"0009"),
    ]


def test_a_dense_log_assigns_the_sequence_numbers(tmp):
    with LogWriter(tmp / "log", DENSE) as log:
        log.append(records([5, 6], sparse=False))
        log.append(records([90]))
        assert log.next_seq == 3
    assert seqs_of(tmp / "log") == [0, 1, 2]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sparse", [True, False])
def test_a_batch_that_exists_in_part_is_completed(tmp, sparse, form):
    config = SPARSE if sparse else DENSE
    with LogWriter(tmp / "log", config) as log:
        log.append(records(range(5), sparse=sparse, form=form))
    with LogWriter(tmp / "log", config) as log:
        log.next_seq = 0
        batch = records(range(8), sparse=sparse, form=form)
        assert log.existing(batch) == 5
        log.append(batch)
        assert log.next_seq == log.end_seq == 8
    assert [(e.seq, e.payload) for e in stored(tmp / "log")] == [(n, b"%04d" % n) for n in range(8)]


def test_existing_records_are_compared_batch_after_batch(tmp):
    with LogWriter(tmp / "log", DENSE) as log:
        log.append(records(range(30), sparse=False))
    with LogWriter(tmp / "log", DENSE) as log:
        log.next_seq = 10
        for start in (10, 17, 29):
            stop = {10: 17, 17: 29, 29: 31}[start]
            log.append(records(range(start, stop), sparse=False))
    assert seqs_of(tmp / "log") == list(range(31))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "difference",
    [{"payload": b"other"}, {"timestamp_ns": 5}, {"type_id": 8}, {"flags": 0x100}],
    ids=["payload", "time", "type", "flags"],
)
@pytest.mark.parametrize("sparse", [True, False])
def test_a_record_that_differs_is_named_by_its_sequence_number(tmp, sparse, difference, form):
    config = SPARSE if sparse else DENSE
    with LogWriter(tmp / "log", config) as log:
        log.append(records(range(4), sparse=sparse))
        log.append(records([4], sparse=sparse, **difference))
    before = stored(tmp / "log")
    with other_writer(tmp / "log", config) as log:
        log.next_seq = 0
        with pytest.raises(SequenceNotRising, match="other: seq=4"):
            log.append(records(range(9), sparse=sparse, form=form))
    assert stored(tmp / "log") == before


def test_a_record_that_the_sparse_log_lacks_differs(tmp):
    with LogWriter(tmp / "log", SPARSE) as log:
        log.append(records([1, 2, 9]))
    with LogWriter(tmp / "log", SPARSE) as log, pytest.raises(CorruptMetadata, match="seq=5"):
        log.append(records([1, 2, 5, 9]))


def test_batches_of_a_log_are_appended_and_compared(tmp):
    with tw.open_publisher(tmp / "live", segment_bytes=1 << 16) as writer:
        writer.append_batch(7, [b"%d" % n for n in range(20)], flags=[0x100 * n for n in range(20)])
    with tw.open_log(tmp / "live") as reader, LogWriter(tmp / "log", SPARSE) as log:
        batch = RecordColumns.of_batch(reader.read_batch())
        log.append(batch.part(0, 15))
        log.append(batch)
    assert stored(tmp / "log") == stored(tmp / "live")


def test_after_close_the_next_append_opens_the_log_again(tmp):
    log = LogWriter(tmp / "log", SPARSE)
    for seqs in ([1], [2, 3]):
        log.append(records(seqs))
        log.close()
        log.close()
        assert not tw.queue.status(tmp / "log").writer.alive
    assert seqs_of(tmp / "log") == [1, 2, 3]


def test_a_failed_sync_leaves_the_log_dirty(tmp):
    class Failing:
        def __init__(self, writer):
            self.writer = writer

        def __getattr__(self, name):
            return getattr(self.writer, name)

        def flush_sync(self):
            raise OSError(5, "Input/output error")

    log = LogWriter(tmp / "log", SPARSE)
    log.append(records([1]))
    complete, log._writer = log._writer, Failing(log._writer)
    with pytest.raises(OSError, match="Input/output"):
        log.sync()
    assert log.dirty
    log._writer = complete
    log.sync()
    assert not log.dirty
    log.close()


def test_existing_records_alone_are_synced_too(tmp):
    """The process that appended them may have been killed before it synced them."""
    with LogWriter(tmp / "log", SPARSE) as log:
        log.append(records([1]))
        log.sync()
        log.append(records([1]))
        assert log.dirty


def test_segment_bytes_apply_to_a_new_log_only(tmp):
    for wanted in (1 << 20, 2 << 20):
        with LogWriter(tmp / "log", WriterConfig.archive(), segment_bytes=wanted) as log:
            assert log.segment_bytes == 1 << 20


def test_messages_are_declared_with_the_first_record_that_is_appended(tmp, own_messages):
    @tw.message(0x2001)
    class Order:
        price: tw.i64

    layouts = [Order.layout()]
    with LogWriter(tmp / "log", SPARSE) as log:
        log.append(records([1]))
    with LogWriter(tmp / "log", SPARSE) as log:
        log.append(records([1]), layouts)
        assert types_file.read(tmp / "log") == []
        log.append(records([2]), layouts)
        assert types_file.read(tmp / "log") == layouts
