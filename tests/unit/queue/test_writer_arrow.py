"""`append_batch` of Arrow columns: one record per row, whatever the column's layout."""

import pyarrow as pa
import pytest

import tapewire as tw

PAYLOADS = [b"", b"a", b"twelve bytes", b"thirteen byte", bytes(range(256)), b"z" * 5000]


@pytest.fixture
def writer(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=8192) as opened:
        yield opened


def stored(writer):
    with tw.open_log(writer.path) as reader:
        return [bytes(record.payload) for record in reader]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_each_kind_of_binary_column(writer, kind):
    assert writer.append_batch(7, pa.array(PAYLOADS, kind)) == range(len(PAYLOADS))
    assert stored(writer) == PAYLOADS


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_is_its_utf8(writer, kind):
    words = ["", "bid", "größer als zwölf Bytes"]
    writer.append_batch(7, pa.array(words, kind))
    assert stored(writer) == [word.encode() for word in words]


def test_fixed_size_binary(writer):
    writer.append_batch(7, pa.array([b"abcd", b"efgh"], pa.binary(4)))
    assert stored(writer) == [b"abcd", b"efgh"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary_view(), pa.binary(3)])
def test_only_the_rows_of_a_slice_are_appended(writer, kind):
    words = [b"one", b"two", b"six", b"ten"]
    writer.append_batch(7, pa.array(words, kind).slice(1, 2))
    assert stored(writer) == [b"two", b"six"]


def test_a_column_may_have_many_chunks(writer):
    chunks = pa.chunked_array([PAYLOADS[:2], [], PAYLOADS[2:]], pa.binary())
    assert writer.append_batch(7, chunks) == range(len(PAYLOADS))
    assert stored(writer) == PAYLOADS


def test_columns_of_another_log_can_be_appended_directly(writer, tmp):
    with tw.open_publisher(tmp / "source", segment_bytes=8192) as source:
        source.append_batch(3, PAYLOADS)
        with tw.open_log(tmp / "source") as reader:
            batch = pa.record_batch(reader.read_batch())
    writer.append_batch(9, batch["payload"], timestamps_ns=batch["timestamp_ns"].to_numpy())
    assert stored(writer) == PAYLOADS


def test_types_times_and_flags_of_each_row(writer):
    writer.append_batch(
        [1, 2], pa.array([b"a", b"b"]), timestamps_ns=[10, 20], flags=[0x100, 0x200]
    )
    with tw.open_log(writer.path) as reader:
        found = [(r.type_id, r.timestamp_ns, r.flags) for r in reader]
    assert found == [(1, 10, 0x100), (2, 20, 0x200)]


def test_a_batch_goes_into_another_log_as_it_is(writer, tmp):
    with tw.open_publisher(tmp / "source", segment_bytes=8192) as source:
        source.append_batch(3, PAYLOADS)
        with tw.open_log(tmp / "source") as reader:
            batch = reader.read_batch()
        writer.append_batch(batch.type_id, batch, timestamps_ns=batch.timestamp_ns)
        writer.append_batch(9, batch[2:4])
        writer.append_batch(9, batch[4:4])
    assert stored(writer) == PAYLOADS + PAYLOADS[2:4]


def test_the_payload_column_of_a_table_is_used(writer):
    table = pa.table({"seq": range(len(PAYLOADS)), "payload": PAYLOADS})
    writer.append_batch(9, table.to_batches()[0].slice(1, 3))
    assert stored(writer) == PAYLOADS[1:4]


@pytest.mark.parametrize(
    "rows", [pa.array([{"payload": None}]), pa.array([None, {"payload": b""}])]
)
def test_a_null_in_a_struct_is_refused(writer, rows):
    with pytest.raises(tw.InvalidOption):
        writer.append_batch(7, rows)
    assert writer.next_seq == 0


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary_view(), pa.binary(1)])
def test_a_null_is_refused_and_nothing_appended(writer, kind):
    with pytest.raises(tw.InvalidOption, match="row=1") as caught:
        writer.append_batch(7, pa.array([b"a", None, b"b"], kind))
    assert caught.value.hint
    assert writer.next_seq == 0


def test_a_null_outside_the_slice_is_ignored(writer):
    writer.append_batch(7, pa.array([None, b"a", b"b"], pa.binary()).slice(1))
    assert stored(writer) == [b"a", b"b"]


def test_an_empty_column_appends_nothing(writer):
    assert list(writer.append_batch(7, pa.array([], pa.binary()))) == []
    assert writer.next_seq == 0


@pytest.mark.parametrize("rows", [pa.array([1, 2]), pa.table({"data": [b"a"]}), pa.array([[b"a"]])])
def test_anything_but_a_column_of_payloads_is_refused(writer, rows):
    with pytest.raises(tw.InvalidOption, match=r"format=|name=payload"):
        writer.append_batch(7, rows)
    assert writer.next_seq == 0
