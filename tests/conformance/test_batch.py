"""Batch: columns, slices, payloads, and the view of them all."""

import numpy as np
import pytest

from tests.conformance.kinds import needs
from tests.support.entries import entries, entry

QUOTE = np.dtype([("bid", "<i8"), ("ask", "<i8")])


@pytest.fixture
def batch(log, read):
    log.fill(300)
    return read().read_batch(1000)


@needs()
def test_columns_are_read_only_arrays_of_fixed_types(log, batch):
    for name, dtype in {
        "seq": np.uint64,
        "timestamp_ns": np.int64,
        "type_id": np.uint16,
        "flags": np.uint16,
    }.items():
        column = getattr(batch, name)
        assert column.dtype == dtype, name
        assert column.tolist() == [getattr(e, name) for e in log.model], name
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


@needs()
def test_payload_bytes_are_those_of_all_payloads_and_of_a_slice(log, batch):
    assert batch.payload_bytes == sum(len(e.payload) for e in log.model)
    assert batch[10:20].payload_bytes == sum(len(e.payload) for e in log.model[10:20])
    assert batch[:0].payload_bytes == 0


@needs()
def test_a_column_is_created_once(batch):
    assert batch.seq is batch.seq


@needs()
def test_len_index_and_iteration_agree_with_what_was_appended(log, batch):
    assert len(batch) == len(log.model)
    assert entries(batch) == log.model
    assert [entry(batch[i]) for i in range(len(batch))] == log.model
    assert entry(batch[-1]) == log.model[-1]
    assert entry(batch[-len(batch)]) == log.model[0]


@needs()
def test_an_index_out_of_range_raises(batch):
    for wrong in (len(batch), -len(batch) - 1, 10**9):
        with pytest.raises(IndexError):
            batch[wrong]
        with pytest.raises(IndexError):
            batch.payload(wrong)
    with pytest.raises(TypeError):
        batch["seq"]


@needs()
@pytest.mark.parametrize(
    "part",
    [slice(None), slice(3, 9), slice(-5, None), slice(0, 0), slice(9, 3), slice(250, 10**9)],
    ids=str,
)
def test_a_slice_is_a_batch_of_those_records(log, batch, part):
    piece = batch[part]
    assert entries(piece) == log.model[part]
    assert piece.seq.tolist() == [e.seq for e in log.model[part]]
    assert piece.type_id.tolist() == [e.type_id for e in log.model[part]]
    assert len(piece) == len(log.model[part])


@needs()
def test_a_slice_of_a_slice_counts_from_its_own_start(log, batch):
    assert entries(batch[10:100][5:][:3]) == log.model[15:18]


@needs()
def test_a_slice_with_a_step_is_refused(batch):
    with pytest.raises(ValueError, match="step"):
        batch[::2]


@needs()
def test_payload_is_the_record_s_payload_in_place(log, batch):
    for i in (0, 17, -1):
        payload = batch.payload(i)
        assert payload.readonly
        assert bytes(payload) == log.model[i].payload
        same = np.frombuffer(batch[i].payload, "u1").ctypes.data
        assert np.frombuffer(payload, "u1").ctypes.data == same


@needs()
def test_an_empty_batch_has_empty_columns(read):
    batch = read().read_batch()
    assert len(batch) == 0
    assert list(batch) == []
    for name, dtype in {"seq": "u8", "timestamp_ns": "i8", "type_id": "u2", "flags": "u2"}.items():
        column = getattr(batch, name)
        assert (len(column), column.dtype) == (0, np.dtype(dtype))
    assert len(batch.view(QUOTE)) == 0
    assert "0 records" in repr(batch)


@needs()
def test_a_batch_outlives_its_reader(kind, log):
    log.fill(300)
    with kind.open_reader(log.where) as reader:
        batch = reader.read_batch(1000)
        column, record, piece = batch.seq, batch[7], batch[100:]
    del batch
    assert column.tolist() == [e.seq for e in log.model]
    assert entry(record) == log.model[7]
    assert entries(piece) == log.model[100:]


def quotes(count):
    rows = np.zeros(count, QUOTE)
    rows["bid"] = np.arange(count)
    rows["ask"] = np.arange(count) * 3 + 1
    return rows


@needs()
def test_view_has_one_row_per_record(log, read):
    rows = quotes(400)  # through rolls: the payloads are gathered
    for row in rows:
        log.append(row.tobytes())
    view = read().read_batch(1000).view(QUOTE)
    assert view.dtype == QUOTE
    assert np.array_equal(view, rows)
    assert not view.flags.writeable


@needs("mapped")
def test_view_of_evenly_spaced_records_is_in_place(log, read):
    rows = quotes(10)
    for row in rows:
        log.append(row.tobytes())
    batch = read().read_batch()
    view = batch.view(QUOTE)
    assert np.array_equal(view, rows)
    assert view.ctypes.data == np.frombuffer(batch.payload(0), "u1").ctypes.data
    assert view.strides[0] > QUOTE.itemsize
    assert not view.flags.writeable


@needs("mapped")
def test_a_view_in_place_outlives_batch_and_reader(kind, log):
    rows = quotes(10)
    for row in rows:
        log.append(row.tobytes())
    with kind.open_reader(log.where) as reader:
        view = reader.read_batch().view(QUOTE)
    log.close()
    kind.discard(log.where)
    assert np.array_equal(view, rows)


@needs("types")
def test_view_of_records_that_are_not_evenly_spaced_is_gathered(log, read):
    rows = quotes(12)
    for i, row in enumerate(rows):
        log.append(row.tobytes(), type_id=1)
        log.append(bytes(100 * (i % 3)), type_id=2)
    batch = read(types={1}).read_batch()
    assert np.array_equal(batch.view(QUOTE), rows)
    assert np.array_equal(batch[3:9].view(QUOTE), rows[3:9])


@needs()
def test_view_of_a_slice_starts_at_its_start(log, read):
    rows = quotes(20)
    for row in rows:
        log.append(row.tobytes())
    batch = read().read_batch()
    assert np.array_equal(batch[5:8].view(QUOTE), rows[5:8])
    assert np.array_equal(batch[5:6].view(QUOTE), rows[5:6])
    assert len(batch[5:5].view(QUOTE)) == 0


@needs()
def test_view_of_one_column_of_numbers(log, read):
    for i in range(10):
        log.append(np.int64(i).tobytes())
    assert read().read_batch().view("<i8").tolist() == list(range(10))


@needs()
def test_view_refuses_payloads_of_another_size(log, read):
    log.append(bytes(QUOTE.itemsize))
    log.append(bytes(QUOTE.itemsize + 1))
    with pytest.raises(ValueError, match="size of dtype: bytes=16"):
        read().read_batch().view(QUOTE)


@needs()
def test_view_refuses_python_objects(log, read):
    log.append(bytes(8))
    log.append(bytes(8))
    with pytest.raises((TypeError, ValueError)):
        read().read_batch().view(object)


@needs()
def test_repr_has_the_count_and_the_range(batch):
    assert repr(batch) == "<Batch of 300 records, seq 0 … 299>"
