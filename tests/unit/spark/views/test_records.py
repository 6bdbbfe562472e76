import pyarrow as pa
import pytest

import tapewire as tw
from tapewire import bus
from tapewire.scan import columns
from tests.support.spark_views import read_by_reader, reader, rows, table


def one_queue(tmp, payloads, **options):
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20, **options) as writer:
        for i, payload in enumerate(payloads):
            writer.append(7, payload, timestamp_ns=1_700_000_000_123_456_789 + i)
    return tmp / "q"


def test_a_row_has_all_fields_of_a_record(tmp):
    queue = one_queue(tmp, [b"hello"])
    [row] = table(queue).to_pylist()
    assert row.pop("timestamp").isoformat() == "2023-11-14T22:13:20.123456+00:00"
    assert row == {
        "seq": 0,
        "timestamp_ns": 1_700_000_000_123_456_789,
        "type_id": 7,
        "flags": 0,
        "payload": b"hello",
        "queue": "q",
    }


def test_types_and_flags_have_sixteen_bits(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        writer.append(0xFFFE, b"", flags=0xFF00)
    [row] = table(tmp / "q").to_pylist()
    assert (row["type_id"], row["flags"]) == (0xFFFE, 0xFF00)


def test_columns_have_the_requested_order(tmp):
    queue = one_queue(tmp, [b"a", b"b"])
    found = table(queue, columns="queue,payload,seq")
    assert found.column_names == ["queue", "payload", "seq"]
    assert found.to_pylist()[1] == {"queue": "q", "payload": b"b", "seq": 1}


def test_payloads_are_copied_only_if_requested(tmp, monkeypatch):
    queue = one_queue(tmp, [bytes(1000)] * 50)
    monkeypatch.setattr(columns.RowColumns, "payload_views", property(lambda self: 1 / 0))
    assert len(table(queue, columns="seq,timestamp,type_id,flags,queue")) == 50
    with pytest.raises(ZeroDivisionError):
        table(queue, columns="payload")


def test_payloads_of_any_size_are_copied_to_the_byte(tmp):
    payloads = [bytes([n % 256]) * n for n in range(300)]
    queue = one_queue(tmp, payloads)
    assert table(queue).column("payload").to_pylist() == payloads


def test_a_batch_holds_a_bounded_number_of_bytes(tmp, monkeypatch):
    monkeypatch.setattr(columns, "BATCH_BYTES", 10_000)
    queue = one_queue(tmp, [bytes(3_000)] * 10 + [bytes(50_000)] + [b""] * 5)
    planned = reader(queue, partitions=1)
    batches = [batch for part in planned.partitions() for batch in planned.read(part)]
    assert [len(batch) for batch in batches] == [3, 3, 3, 1, 1, 5]
    assert [row[4] for row in rows(queue)] == [row[4] for row in read_by_reader(queue)]


def test_a_batch_has_at_most_65536_rows(tmp):
    with tw.open_publisher(tmp / "q", segment_bytes=16 << 20) as writer:
        writer.append_batch(1, [b""] * 70_000)
    planned = reader(tmp / "q", partitions=1)
    batches = [batch for part in planned.partitions() for batch in planned.read(part)]
    assert [len(batch) for batch in batches] == [65536, 4464]


def test_the_largest_sequence_number_that_fits_is_read(tmp):
    queue = one_queue(tmp, [b"a", b"b"], first_seq=2**63 - 2)
    assert table(queue).column("seq").to_pylist() == [2**63 - 2, 2**63 - 1]


def test_a_sequence_number_that_does_not_fit_raises(tmp):
    queue = one_queue(tmp, [b"a", b"b"], first_seq=2**63 - 1)
    with pytest.raises(tw.InvalidMessage, match=rf"seq={2**63}, queue=q; leave the column seq out"):
        table(queue)


def test_a_sequence_number_that_is_not_requested_need_not_fit(tmp):
    queue = one_queue(tmp, [b"a", b"b"], first_seq=2**63 - 1)
    assert table(queue, columns="payload", partitions=2).column(0).to_pylist() == [b"a", b"b"]


def test_logs_are_read_in_the_order_of_their_names(tmp):
    for name in ("b", "a"):
        with tw.open_publisher(tmp / "bus" / name, segment_bytes=1 << 20) as writer:
            writer.append(1, name.encode())
    assert table(tmp / "bus").column("queue").to_pylist() == ["a", "b"]


def test_symbols_select_logs_of_one_symbol_each(tmp):
    layout = bus.ArchiveLayout(tmp)
    for symbol in ("BTC", "ETH"):
        with tw.open_publisher(
            layout.log("okx", symbol, "2026-01-31", "book"), segment_bytes=1 << 20
        ) as writer:
            writer.append(1, symbol.encode())
    assert table(tmp, symbols="ETH").column("payload").to_pylist() == [b"ETH"]


def test_symbols_are_refused_if_the_path_of_a_log_has_none(tmp):
    queue = one_queue(tmp, [b"a"])
    with pytest.raises(tw.InvalidOption, match="contain its symbol: queue=q, view=records"):
        table(queue, symbols="ETH")


def test_columns_have_the_types_of_spark(tmp):
    found = table(one_queue(tmp, [b"a"])).schema
    assert found.field("payload").type == pa.binary()
    assert found.field("type_id").type == pa.int32()
    assert found.field("timestamp").type == pa.timestamp("us", "UTC")
