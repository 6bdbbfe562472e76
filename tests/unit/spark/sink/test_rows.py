"""Columns, rows and messages of the sink; its errors name column, row and value."""

import numpy as np
import pyarrow as pa
import pytest

import tapewire as tw
from tapewire.protocol import fields
from tapewire.protocol.layout import MessageLayout
from tapewire.spark.sink.messages import layout_of
from tapewire.spark.sink.options import WriteOptions
from tapewire.spark.sink.rows import FrameRows, plan_rows
from tests.support.staged import DAY_NS, LOG, TYPES, rows


def plan(types=TYPES, layout=None, **options):
    return plan_rows(WriteOptions.parse({"path": "x", **options}), types, layout, keyed=False)


def split(batch, types=TYPES, layout=None, **options):
    return list(FrameRows(plan(types, layout, **options), 3).split(batch))


def changed(batch, **columns):
    for name, values in columns.items():
        batch = batch.set_column(batch.schema.get_field_index(name), name, values)
    return batch


def test_an_unknown_option_is_refused_by_name():
    with pytest.raises(tw.InvalidOption, match="no such option: segmentbytes; did you mean"):
        WriteOptions.parse({"path": "x", "segmentBytes": "1"})


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({}, "there is no path"),
        ({"path": "s3://bucket/a"}, "mapped files"),
        ({"path": "x", "segment_bytes": "1000"}, "multiple of 4096"),
        ({"path": "x", "segment_bytes": "many"}, "whole number"),
        ({"path": "x", "duplicates": "keep"}, "raise or drop"),
        ({"path": "x", "partitionBy": "desk"}, "no such key: partitionBy='desk'"),
        ({"path": "x", "partitionBy": "symbol,symbol"}, "a key is duplicated"),
        ({"path": "x", "partitionBy": "symbol", "symbol": "A"}, "not both"),
        ({"path": "x", "venue": "../up"}, "not a valid venue"),
        ({"path": "x", "writer": "w"}, "writer and batch require each other"),
        ({"path": "x", "writer": "a/b", "batch": "1"}, "not a valid writer"),
        ({"path": "x", "module": "m"}, "module requires type: module='m'"),
        ({"path": "x", "type": ""}, "type is empty"),
    ],
)
def test_an_invalid_option_is_refused(options, what):
    with pytest.raises(tw.TapewireError, match=what):
        WriteOptions.parse(options)


def test_a_streaming_query_must_have_a_name():
    with pytest.raises(tw.InvalidOption, match='add option\\("writer", NAME\\)'):
        WriteOptions.parse({"path": "x"}, streaming=True)


@pytest.mark.parametrize("missing", ["timestamp_ns", "type_id", "payload"])
def test_a_missing_column_is_named(missing):
    with pytest.raises(tw.InvalidOption, match=f"a column is missing: column={missing}"):
        plan({name: kind for name, kind in TYPES.items() if name != missing})


def test_a_column_that_the_sink_does_not_use_is_named():
    with pytest.raises(tw.InvalidOption, match=r"no use for .*column=mid; use df.drop\('mid'\)"):
        plan(TYPES | {"mid": "double"})


def test_columns_that_the_views_derive_are_ignored():
    plan(TYPES | {"timestamp": "timestamp", "queue": "string", "date": "date"})


@pytest.mark.parametrize("name", ["timestamp_ns", "payload", "seq", "venue"])
def test_a_column_with_an_invalid_type_is_named(name):
    with pytest.raises(tw.InvalidOption, match=f"column={name}, type=double, must be"):
        plan(TYPES | {name: "double"})


def test_omitted_keys_have_one_name_for_all_rows():
    found = split(rows([1]), partitionBy="symbol")
    assert [log for log, _ in found] == ["v1/all/BTC-USDT/1970-01-02/all"]
    found = split(rows([1]), partitionBy="symbol", venue="okx", stream="trades")
    assert [log for log, _ in found] == ["v1/okx/BTC-USDT/1970-01-02/trades"]


def test_without_key_columns_the_keys_come_from_the_name_of_the_source_log():
    types = {
        name: kind for name, kind in TYPES.items() if name not in ("venue", "symbol", "stream")
    }
    batch = rows([1, 2]).drop_columns(["venue", "symbol", "stream"])
    names = pa.array(["okx/BTC-USDT/1970-01-02/book", "clean/okx/ETH-USDT/book"])
    found = split(batch.append_column("queue", names), types | {"queue": "string"})
    assert [log for log, _ in found] == [LOG, LOG.replace("BTC", "ETH")]
    with pytest.raises(tw.InvalidName, match="contain venue, symbol and stream: queue='md'"):
        split(batch.append_column("queue", pa.array(["md"] * 2)), types | {"queue": "string"})


def test_a_missing_key_is_refused():
    types = {name: kind for name, kind in TYPES.items() if name != "symbol"}
    with pytest.raises(tw.InvalidOption, match="keys of the archive are missing: keys=symbol"):
        plan(types)


@pytest.mark.parametrize("name", ["timestamp_ns", "type_id", "flags", "payload", "seq", "symbol"])
def test_a_null_is_refused_by_column_and_row(name):
    batch = rows([1, 2, 3])
    column = batch.column(name).to_pylist()
    values = pa.array([column[0], column[1], None], batch.schema.field(name).type)
    with pytest.raises(tw.InvalidMessage, match=rf"{name}=null .*row=2 of partition 3"):
        split(changed(batch, **{name: values}))


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("type_id", 0xFFFF, tw.InvalidTypeId),
        ("type_id", -1, tw.InvalidTypeId),
        ("timestamp_ns", -5, tw.InvalidMessage),
        ("seq", -1, tw.InvalidMessage),
        ("flags", 1 << 16, tw.InvalidMessage),
        ("flags", 0x104, tw.InvalidOption),
    ],
)
def test_a_number_out_of_range_is_refused_by_column_row_and_value(name, value, error):
    batch = rows([1, 2])
    values = pa.array([batch.column(name)[0].as_py(), value], batch.schema.field(name).type)
    with pytest.raises(error, match=rf"{name}={value} .*row=1 of partition 3"):
        split(changed(batch, **{name: values}))


def test_rows_are_counted_over_all_batches_of_a_partition():
    checked = FrameRows(plan(), 3)
    list(checked.split(rows([1, 2, 3])))
    with pytest.raises(tw.InvalidTypeId, match="row=4 of"):
        list(checked.split(changed(rows([4, 5]), type_id=pa.array([7, -1], pa.int32()))))


def test_the_flag_not_checksummed_is_dropped():
    [(_, columns)] = split(changed(rows([1]), flags=pa.array([0x201], pa.int32())))
    assert columns.flags.tolist() == [0x200]


@pytest.mark.parametrize("symbol", ["..", "", "BTC/USDT", ".hidden", "x" * 200])
def test_an_invalid_directory_name_is_refused_by_column_row_and_value(symbol):
    with pytest.raises(tw.InvalidName, match=r"symbol=.*row=1 of partition 3"):
        split(rows([1, 2], symbol=["A", symbol]))


def test_a_payload_that_fits_no_segment_is_refused():
    batch = changed(rows([1, 2]), payload=pa.array([b"", bytes(9000)]))
    match = r"9000 bytes .*8064 bytes\), row=1 of.*increase opt"
    with pytest.raises(tw.PayloadTooLarge, match=match):
        split(batch, segment_bytes="8192")


TICK = MessageLayout.natural(
    "Tick",
    0x2001,
    1,
    [
        ("price", fields.i64),
        ("side", fields.u8),
        ("ratio", fields.f32),
        ("name", fields.char[4]),
        ("key", fields.raw[2]),
        ("sizes", fields.u16[2]),
        ("last", fields.bool8),
    ],
)
TICK_TYPES = {
    "timestamp_ns": "bigint",
    "venue": "string",
    "symbol": "string",
    "stream": "string",
} | {field.name: "" for field in TICK.fields}


def ticks(**columns):
    defaults = {
        "timestamp_ns": pa.array([DAY_NS, DAY_NS + 1], pa.int64()),
        "price": pa.array([-5, 2**40], pa.int64()),
        "side": pa.array([0, 255], pa.int16()),
        "ratio": pa.array([0.5, -1.0], pa.float32()),
        "name": pa.array(["ä", "abcd"]),
        "key": pa.array([b"12", b"\0\0"]),
        "sizes": pa.array([[1, 2], [3, 65535]], pa.list_(pa.int32())),
        "last": pa.array([True, False]),
        **{key: pa.array([value] * 2) for key, value in (("venue", "okx"), ("symbol", "A"))},
        "stream": pa.array(["ticks"] * 2),
    }
    return pa.record_batch(defaults | columns)


def test_fields_become_the_bytes_of_the_message():
    [(log, columns)] = split(ticks(), TICK_TYPES, TICK)
    assert log == "v1/okx/A/1970-01-02/ticks"
    assert columns.type_id.tolist() == [0x2001] * 2
    found = np.frombuffer(b"".join(columns.payload.to_pylist()), TICK.dtype)
    assert found["price"].tolist() == [-5, 2**40]
    assert found["side"].tolist() == [0, 255]
    assert found["name"].tolist() == ["ä".encode(), b"abcd"]
    assert found["key"].tolist() == [[49, 50], [0, 0]]
    assert found["sizes"].tolist() == [[1, 2], [3, 65535]]
    assert found["last"].tolist() == [True, False]
    assert found["ratio"].tolist() == [0.5, -1.0]


@pytest.mark.parametrize(
    ("name", "values", "what"),
    [
        ("side", pa.array([0, 256], pa.int16()), "side=256 .*is u8, 0 to 255"),
        ("name", pa.array(["a", "abcde"]), r"name=b'abcde' .*char\[4\]"),
        ("key", pa.array([b"12", b"1"]), r"key=b'1' .*raw\[2\]"),
        ("sizes", pa.array([[1, 2], [1]], pa.list_(pa.int32())), "sizes=1 items"),
        ("sizes", pa.array([[1, 2], [1, -1]], pa.list_(pa.int32())), "sizes=-1 "),
        ("sizes", pa.array([[1, 2], [1, None]], pa.list_(pa.int32())), "sizes=null"),
        ("ratio", pa.array([0.0, 1e300]), r"ratio=1e\+300"),
        ("price", pa.array([1, None], pa.int64()), "price=null"),
    ],
)
def test_a_value_that_does_not_fit_its_field_is_refused(name, values, what):
    with pytest.raises(tw.InvalidMessage, match=rf"{what}.*row=1 of partition 3"):
        split(ticks(**{name: values}), TICK_TYPES, TICK)


def test_a_column_whose_type_does_not_match_the_field_is_refused():
    with pytest.raises(tw.InvalidOption, match="column=price, type=double, field=i64"):
        split(ticks(price=pa.array([1.5, 2.5])), TICK_TYPES, TICK)


def test_the_error_for_a_missing_field_lists_the_fields():
    types = {name: kind for name, kind in TICK_TYPES.items() if name != "side"}
    match = "a column is missing: column=side.*has the fields price"
    with pytest.raises(tw.InvalidOption, match=match):
        plan(types, TICK)


@pytest.mark.parametrize("name", ["TradeTick", "0x1004", "4100"])
def test_a_message_is_found_by_name_or_id(name):
    assert layout_of(name, None).name == "TradeTick"


def test_an_unknown_message_or_module_is_named():
    with pytest.raises(tw.InvalidOption, match="no message has this name: type='Tock'"):
        layout_of("Tock", None)
    with pytest.raises(tw.InvalidOption, match=r"module=desk\.nowhere"):
        layout_of("Tock", "desk.nowhere")
