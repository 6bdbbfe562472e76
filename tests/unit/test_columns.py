"""Batches in pyarrow, Polars, DuckDB and pandas: correct values, no needless copy, no leak."""

import gc
import shutil
import threading

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tapewire as tw
from tests.support.consumers import COLUMNS, CONSUMERS

SEGMENT = 8192
INLINE = 12  # bytes that a binary view stores inline

# Empty; just fits inline and just does not; small ones; one that fills a segment alone.
SIZES = [0, 1, INLINE - 1, INLINE, INLINE + 1, 63, 64, 65, 1000, SEGMENT - 128]
PAYLOADS = [bytes([n % 251]) * SIZES[n * n % len(SIZES)] for n in range(60)]
PAYLOADS += [bytes(range(20 + n % 7)) for n in range(300)]
VALUES = {
    "seq": list(range(len(PAYLOADS))),
    "timestamp_ns": [1_700_000_000_000_000_000 + 7 * n for n in range(len(PAYLOADS))],
    "type_id": [n % 7 for n in range(len(PAYLOADS))],
    "flags": [0x100 * (n % 3) for n in range(len(PAYLOADS))],
    "payload": PAYLOADS,
}
LAST = len(PAYLOADS)

consumers = pytest.mark.parametrize(
    "consumer", [pytest.param(consumer, id=name) for name, consumer in CONSUMERS.items()]
)
in_place = pytest.mark.parametrize(
    "consumer",
    [pytest.param(consumer, id=name) for name, consumer in CONSUMERS.items() if consumer.in_place],
)


@pytest.fixture(scope="module", autouse=True)
def _quick_collections():
    """A collection visits every object of four large libraries, unless they are frozen."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def queue(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=SEGMENT) as writer:
        for n, payload in enumerate(PAYLOADS):
            writer.append(
                VALUES["type_id"][n],
                payload,
                timestamp_ns=VALUES["timestamp_ns"][n],
                flags=VALUES["flags"][n],
            )
    assert len(list((tmp / "q").glob("*.q"))) > 5
    return tmp / "q"


@pytest.fixture
def batch(queue):
    with tw.open_log(queue) as reader:
        return reader.read_batch()


def values(start=0, stop=LAST):
    return {name: column[start:stop] for name, column in VALUES.items()}


def mapped(queue):
    """Return the address ranges of the queue's segments in this process."""
    areas = []
    with open("/proc/self/maps") as lines:
        for line in lines:
            if str(queue) in line:
                begin, end = line.split()[0].split("-")
                areas.append(range(int(begin, 16), int(end, 16)))
    return areas


# ---- values --------------------------------------------------------------------------------------


@consumers
def test_every_column_has_its_values(batch, consumer):
    columns = consumer.columns(consumer.take(batch))
    assert list(columns) == COLUMNS
    assert columns == VALUES


@consumers
@pytest.mark.parametrize(
    ("start", "stop"), [(0, 1), (0, 50), (1, LAST), (57, 63), (100, 100), (LAST - 1, LAST)]
)
def test_a_slice_has_only_its_rows(batch, consumer, start, stop):
    taken = consumer.take(batch[start:stop])
    assert consumer.columns(taken) == values(start, stop)


@consumers
def test_a_slice_of_a_slice_counts_from_its_own_start(batch, consumer):
    assert consumer.columns(consumer.take(batch[40:200][15:100])) == values(55, 140)


@consumers
def test_an_empty_batch_has_all_columns_and_no_row(queue, consumer):
    with tw.open_log(queue) as reader:
        reader.seek_end()
        empty = reader.read_batch()
    assert consumer.columns(consumer.take(empty)) == {name: [] for name in COLUMNS}


@consumers
def test_one_batch_can_be_imported_many_times(batch, consumer):
    first, second = consumer.take(batch), consumer.take(batch)
    assert consumer.columns(first) == consumer.columns(second) == VALUES
    assert consumer.columns(first) == VALUES


@pytest.mark.parametrize("take", [pl.DataFrame, lambda batch: pl.from_arrow(batch).struct.unnest()])
def test_types_in_polars(batch, take):
    types = [pl.UInt64, pl.Int64, pl.UInt16, pl.UInt16, pl.Binary]
    assert take(batch).schema == dict(zip(COLUMNS, types, strict=True))


def test_types_in_duckdb(batch):
    relation = duckdb.sql("from batch")
    assert [str(kind) for kind in relation.types] == [
        *("UBIGINT", "BIGINT", "USMALLINT", "USMALLINT", "BLOB")
    ]


def test_types_in_pandas(batch):
    frame = batch.to_pandas()
    assert [str(frame[name].dtype) for name in COLUMNS[:4]] == [
        *("uint64", "int64", "uint16", "uint16")
    ]
    assert {type(payload) for payload in frame["payload"]} == {bytes}


def test_sql_over_a_batch(batch):
    found = duckdb.sql(
        "select type_id, count(*), sum(octet_length(payload)), max(seq) from batch "
        "where seq >= 20 and octet_length(payload) > 12 group by all order by all"
    ).fetchall()
    expected = []
    for type_id in range(7):
        rows = [n for n in range(20, LAST) if n % 7 == type_id and len(PAYLOADS[n]) > INLINE]
        expected.append((type_id, len(rows), sum(len(PAYLOADS[n]) for n in rows), max(rows)))
    assert found == expected


def test_sql_compares_and_joins_payloads(batch):
    other = batch[100:200]
    found = duckdb.sql(
        "select batch.seq, count(*) from batch join other using (payload) group by all order by all"
    ).fetchall()
    partners = [PAYLOADS[100:200].count(payload) for payload in PAYLOADS]
    assert found == [(n, count) for n, count in enumerate(partners) if count]
    assert other.seq[0] == 100


def test_polars_computes_on_payloads(batch):
    frame = pl.DataFrame(batch).filter(pl.col("payload").bin.size() > INLINE)
    assert frame["payload"].to_list() == [p for p in PAYLOADS if len(p) > INLINE]
    assert frame.sort("payload")["payload"].to_list() == sorted(frame["payload"].to_list())


# ---- requested schemas ---------------------------------------------------------------------------

ASKED = pa.schema(
    [
        ("seq", pa.uint64()),
        ("timestamp_ns", pa.timestamp("ns", "UTC")),
        ("type_id", pa.int32()),
        ("flags", pa.uint16()),
        ("payload", pa.binary()),
    ]
)


@pytest.mark.parametrize("take", [pa.record_batch, pa.table])
def test_pyarrow_casts_to_the_requested_schema(batch, take):
    taken = take(batch, schema=ASKED)
    taken.validate(full=True)
    assert taken.schema == ASKED
    assert taken["payload"].to_pylist() == PAYLOADS
    assert taken["timestamp_ns"].cast(pa.int64()).to_pylist() == VALUES["timestamp_ns"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_a_producer_may_ignore_the_requested_schema_and_returns_its_own(batch, kind):
    asked = pa.schema([ASKED.field(i) for i in range(4)] + [pa.field("payload", kind)])
    schema, array = batch.__arrow_c_array__(requested_schema=asked.__arrow_c_schema__())
    taken = pa.RecordBatch._import_from_c_capsule(schema, array)
    assert taken.schema.field("payload").type == pa.binary_view()
    stream = batch.__arrow_c_stream__(requested_schema=asked.__arrow_c_schema__())
    table = pa.RecordBatchReader._import_from_c_capsule(stream).read_all()
    assert table.schema == taken.schema == pa.schema(batch)
    assert table["payload"].to_pylist() == taken["payload"].to_pylist() == PAYLOADS


def test_polars_and_duckdb_cast_by_themselves(batch):
    frame = pl.DataFrame(batch).with_columns(pl.col("timestamp_ns").cast(pl.Datetime("ns", "UTC")))
    assert frame["timestamp_ns"].to_physical().to_list() == VALUES["timestamp_ns"]
    table = duckdb.sql("select seq, payload from batch").to_arrow_table()
    assert table.schema.field("payload").type == pa.binary()
    assert table["payload"].to_pylist() == PAYLOADS


# ---- nothing is copied where this is promised ----------------------------------------------------


def payload_buffers(taken):
    """Return the payload column of a consumer's object, with the buffers that pyarrow reports."""
    if isinstance(taken, pl.Series):
        taken = taken.struct.unnest()
    column = taken["payload"]
    if isinstance(column, pl.Series):
        column = column.to_arrow(compat_level=pl.CompatLevel.newest())
    elif isinstance(column, pd.Series):
        column = column.array._pa_array
    if isinstance(column, pa.ChunkedArray):
        (column,) = column.chunks
    return [buffer for buffer in column.buffers()[2:] if buffer is not None]


@pytest.mark.parametrize(
    "name",
    [name for name in CONSUMERS if CONSUMERS[name].in_place and not name.startswith("duckdb")],
)
def test_payloads_are_at_the_addresses_of_the_mapped_segment(queue, batch, name):
    taken = CONSUMERS[name].take(batch)
    areas = mapped(queue)
    # The small buffer of their lengths may follow the segments.
    far = [buffer for buffer in payload_buffers(taken) if buffer.size == SEGMENT]
    assert len(far) == len(areas) > 5
    assert all(any(buffer.address == area.start for area in areas) for buffer in far)


def test_columns_of_numbers_are_shared_by_pyarrow_and_polars(batch):
    arrow, polars = pa.record_batch(batch), pl.DataFrame(batch)
    for name in COLUMNS[:4]:
        address = getattr(batch, name).ctypes.data
        assert arrow[name].buffers()[1].address == address
        assert np.shares_memory(polars[name].to_numpy(allow_copy=False), getattr(batch, name))


def test_a_slice_shares_the_memory_of_its_batch(batch):
    part = pa.record_batch(batch[10:20])
    assert part["seq"].buffers()[1].address == batch.seq.ctypes.data + 10 * 8


# ---- lifetime -----------------------------------------------------------------------------------


@in_place
def test_a_consumer_outlives_batch_reader_and_queue(tmp, consumer):
    where = tmp / "q"
    with tw.open_publisher(where, segment_bytes=SEGMENT) as writer:
        writer.append_batch(VALUES["type_id"], PAYLOADS, timestamps_ns=VALUES["timestamp_ns"])
        with tw.open_subscriber(where, "reader") as reader:
            batch = reader.read_batch()
            taken = consumer.take(batch)
    segments = len(batch) and len(list(where.glob("*.q")))
    del batch, reader, writer
    shutil.rmtree(where)
    gc.collect()
    assert len(mapped(where)) >= segments - 1  # all with a record; one more was preallocated
    assert consumer.columns(taken)["payload"] == PAYLOADS
    assert consumer.columns(taken)["timestamp_ns"] == VALUES["timestamp_ns"]


@consumers
def test_mappings_are_released_with_the_consumer(queue, consumer):
    with tw.open_log(queue) as reader:
        batch = reader.read_batch()
    taken = consumer.take(batch)
    assert consumer.columns(taken) == VALUES
    del batch, reader
    gc.collect()
    assert bool(mapped(queue)) == consumer.in_place
    del taken
    gc.collect()
    assert mapped(queue) == []


def test_one_column_keeps_what_it_needs(queue):
    with tw.open_log(queue) as reader:
        payload = pl.DataFrame(reader.read_batch())["payload"]
    gc.collect()
    assert payload.to_list() == PAYLOADS
    last = payload.slice(LAST - 3)
    del payload
    assert last.to_list() == PAYLOADS[-3:]
    del last
    gc.collect()
    assert mapped(queue) == []


def test_a_consumer_that_fails_midway_keeps_nothing(queue):
    def fail(batch):
        with pytest.raises(ValueError, match="not matching"):
            pa.record_batch(batch, schema=pa.schema([("seq", pa.uint64())]))
        with pytest.raises(duckdb.ConversionException):
            duckdb.sql("select payload::integer from batch").fetchall()

    with tw.open_log(queue) as reader:
        fail(reader.read_batch())
    gc.collect()
    assert mapped(queue) == []


@pytest.mark.parametrize("name", [name for name in CONSUMERS if CONSUMERS[name].any_thread])
def test_consumers_on_other_threads(queue, name):
    """Imported, read and released by three threads at once while their owner releases it."""
    consumer = CONSUMERS[name]
    with tw.open_log(queue) as reader:
        batches = [reader.read_batch()]
    start = threading.Barrier(4)
    right = []

    def take(batch):
        start.wait()
        right.extend(consumer.columns(consumer.take(batch[n:])) == values(n) for n in range(3))

    threads = [threading.Thread(target=take, args=batches) for _ in range(3)]
    for thread in threads:
        thread.start()
    batches.clear()
    start.wait()
    gc.collect()
    for thread in threads:
        thread.join()
    assert right == [True] * 9
    gc.collect()
    assert mapped(queue) == []


def test_batches_of_a_live_queue_are_imported_as_it_grows(tmp, eventually):
    """Polars on another thread, the writer on this one."""
    where = tmp / "live"
    taken = []

    def follow():
        with tw.open_log(where) as reader:
            while sum(map(len, taken)) < 3 * LAST and reader.wait(10):
                taken.append(pl.DataFrame(reader.read_batch(100)))

    with tw.open_publisher(where, segment_bytes=SEGMENT) as writer:
        thread = threading.Thread(target=follow)
        thread.start()
        for _ in range(3):
            writer.append_batch(7, PAYLOADS)
        thread.join(30)
    whole = pl.concat(taken)
    assert whole["seq"].to_list() == list(range(3 * LAST))
    assert whole["payload"].to_list() == PAYLOADS * 3
