import sys
import textwrap

import pytest

import tapewire as tw
from tapewire.protocol import market
from tapewire.spark.reading.schemas import struct_type
from tapewire.spark.views import messages
from tests.support.spark_views import parsed, reader, table

pytestmark = pytest.mark.usefixtures("own_messages")


def defined(version=1, **fields):
    return tw.message(0x2001, version=version)(type("Fill", (), {"__annotations__": fields}))


def write(path, *found):
    with tw.open_publisher(path, segment_bytes=1 << 20, index_stride=4) as writer:
        for each in found:
            if type(each) is tuple:  # isinstance() is true for messages too
                writer.append(*each)
            else:
                writer.append_message(each)
    return path


def forget():
    """Unregister the messages, which are not imported in an executor."""
    from tapewire.protocol import registry

    for cls in registry.known(0x2001).values():
        registry.forget(cls)


def test_every_kind_of_field_becomes_its_column(tmp):
    numbers = {name: getattr(tw, name) for name in ("u8", "u16", "u32", "u64", "i8", "i16", "i32")}
    fill = defined(**numbers, i64=tw.i64, f32=tw.f32, f64=tw.f64, ok=tw.bool8,
                   text=tw.char[8], blob=tw.raw[3], levels=tw.i64[2])  # fmt: skip
    values = (2**8 - 1, 2**16 - 1, 2**32 - 1, 2**63 - 1, -(2**7), -(2**15), -(2**31), -(2**63))
    write(tmp / "q", fill(*values, 0.5, 1e300, True, "naïve", b"\0a\0", (1, -2)))
    forget()
    found = table(tmp / "q", view="messages", type="Fill")
    [row] = found.to_pylist()
    assert tuple(row.values())[4:] == (
        *values,
        0.5,
        1e300,
        True,
        "naïve",
        b"\0a\0",
        [1, -2],
    )
    assert struct_type(reader(tmp / "q", view="messages", type="Fill")._columns).simpleString() == (
        "struct<seq:bigint,timestamp_ns:bigint,timestamp:timestamp,queue:string,"
        "u8:smallint,u16:int,u32:bigint,u64:bigint,i8:tinyint,i16:smallint,i32:int,i64:bigint,"
        "f32:float,f64:double,ok:boolean,text:string,blob:binary,levels:array<bigint>>"
    )


def test_text_keeps_inner_zeros_and_loses_trailing_ones(tmp):
    fill = defined(text=tw.char[4])
    write(tmp / "q", fill("a"), (0x2001, b"a\0b\0"), fill(""), fill("abcd"))
    assert table(tmp / "q", view="messages", type="Fill").column("text").to_pylist() == [
        "a",
        "a\0b",
        "",
        "abcd",
    ]


def test_only_records_of_the_type_are_rows(tmp):
    fill = defined(n=tw.i64)
    write(tmp / "q", *(each for i in range(50) for each in ((9, b"other"), fill(i))))
    for partitions in (1, 8):
        found = table(tmp / "q", view="messages", type="0x2001", partitions=partitions)
        assert found.column("n").to_pylist() == list(range(50))


def test_a_number_that_does_not_fit_raises(tmp):
    write(tmp / "q", defined(id=tw.u64)(2**63))
    with pytest.raises(tw.InvalidMessage, match=f"id={2**63}, queue=q"):
        table(tmp / "q", view="messages", type="Fill")
    assert len(table(tmp / "q", view="messages", type="Fill", columns="seq")) == 1


def test_the_error_for_a_number_that_does_not_fit_names_its_record(tmp):
    fill = defined(ids=tw.u64[3])
    write(tmp / "q", (9, b"other"), fill((1, 2, 3)), (9, b"other"), fill((4, 5, 2**63)))
    with pytest.raises(tw.InvalidMessage, match=f"ids={2**63}, queue=q, seq=3"):
        table(tmp / "q", view="messages", type="Fill")


def test_a_field_keeps_its_name_and_the_column_of_the_record_is_renamed(tmp):
    write(tmp / "q", defined(timestamp_ns=tw.u64)(5))
    found = table(tmp / "q", view="messages", type="Fill")
    assert found.column_names[:2] == ["seq", "record_timestamp_ns"]
    assert found.column("timestamp_ns").to_pylist() == [5]


def test_versions_are_read_together_with_nulls_for_missing_fields(tmp):
    old = defined(1, price=tw.i64)
    write(tmp / "q", old(1), old(2))
    new = defined(2, price=tw.i64, size=tw.i64)
    write(tmp / "q", new(3, 30), old(4))
    found = table(tmp / "q", view="messages", type="Fill", partitions=2)
    assert found.column("price").to_pylist() == [1, 2, 3, 4]
    assert found.column("size").to_pylist() == [None, None, 30, None]
    assert not found.schema.field("price").nullable
    assert found.schema.field("size").nullable


def test_logs_with_different_versions_are_read_together(tmp):
    write(tmp / "bus" / "a", defined(1, price=tw.i64)(1))
    forget()
    write(tmp / "bus" / "b", defined(2, price=tw.i64, size=tw.i64)(2, 20))
    forget()
    found = table(tmp / "bus", view="messages", type="Fill")
    assert found.column("size").to_pylist() == [None, 20]


def test_logs_that_disagree_are_refused(tmp):
    write(tmp / "bus" / "a", defined(1, price=tw.i64)(1))
    forget()
    write(tmp / "bus" / "b", defined(1, size=tw.i64)(2))
    forget()
    with pytest.raises(tw.InvalidMessage, match="logs disagree on version 1 of Fill"):
        table(tmp / "bus", view="messages", type="Fill")


def test_a_log_that_never_had_the_message_has_no_rows(tmp):
    write(tmp / "bus" / "a", (9, b"x"))
    write(tmp / "bus" / "b", defined(n=tw.i64)(1))
    forget()
    assert table(tmp / "bus", view="messages", type="Fill").column("queue").to_pylist() == ["b"]


def test_an_unknown_message_is_reported(tmp):
    write(tmp / "q", (9, b"x"))
    with pytest.raises(tw.InvalidOption, match=r"no such message: type=Fill .*module"):
        table(tmp / "q", view="messages", type="Fill")


def test_a_record_that_is_not_the_message_raises(tmp):
    write(tmp / "q", defined(n=tw.i64)(1), (0x2001, b"short"))
    with pytest.raises(tw.CorruptRecord, match="not a message of its type: queue=q, seq=1"):
        table(tmp / "q", view="messages", type="Fill")


def test_a_record_that_is_not_the_message_is_skipped_on_request(tmp, caplog):
    fill = defined(n=tw.i64)
    write(tmp / "q", fill(1), (0x2001, b"short"), fill(2))
    found = table(tmp / "q", view="messages", type="Fill", on_damage="skip")
    assert found.column("n").to_pylist() == [1, 2]
    assert "seq=1" in caplog.text


def test_the_error_for_invalid_text_names_its_record(tmp):
    write(tmp / "q", defined(text=tw.char[4])("ok"), (0x2001, b"\xff\xfe\0\0"))
    with pytest.raises(tw.CorruptRecord, match="not UTF-8: field=text, queue=q, seq=1"):
        table(tmp / "q", view="messages", type="Fill")


def test_a_module_can_define_a_message_that_is_in_no_types_json(tmp, monkeypatch):
    (tmp / "fills_of_a_test.py").write_text(
        textwrap.dedent("""
        import tapewire as tw
        @tw.message(0x2001)
        class Fill:
            n: tw.i64
        """)
    )
    monkeypatch.syspath_prepend(str(tmp))
    write(tmp / "q", (0x2001, (5).to_bytes(8, "little")))
    found = table(tmp / "q", view="messages", type="Fill", module="fills_of_a_test")
    assert found.column("n").to_pylist() == [5]
    del sys.modules["fills_of_a_test"]


def test_a_missing_module_is_reported(tmp):
    write(tmp / "q", (9, b"x"))
    with pytest.raises(tw.InvalidOption, match=r"module=no_such_module .*install it"):
        table(tmp / "q", view="messages", type="Fill", module="no_such_module")


def test_market_data_needs_no_types_json(tmp):
    quote = market.Quote(1, 100, 5, 101, 6, 7, 8, 2, 3)
    with tw.open_publisher(tmp / "q", segment_bytes=1 << 20) as writer:
        writer.append(market.QUOTE, bytes(quote))
    found = table(tmp / "q", view="messages", type="Quote", columns="bid_price,ask_size")
    assert found.to_pylist() == [{"bid_price": 100, "ask_size": 6}]


def test_the_columns_do_not_depend_on_rows(tmp):
    write(tmp / "q", defined(n=tw.i64)(1))
    asked = parsed(tmp / "q", view="messages", type="Fill", seq_from=5)
    logs = reader(tmp / "q", view="messages", type="Fill")._logs
    assert [column.name for column in messages.schema(asked, logs)][-1] == "n"


def test_a_name_in_the_types_json_of_the_log_has_precedence(tmp):
    write(tmp / "q", defined(n=tw.i64)(7))
    tw.message(0x2002)(type("Fill", (), {"__annotations__": {"other": tw.i32}}))
    found = table(tmp / "q", view="messages", type="Fill")
    assert found.column("n").to_pylist() == [7]


def test_a_name_is_not_that_of_another_imported_message(tmp):
    """An executor has not imported it, and would read other records, or none."""
    tw.message(0x2002)(type("Fill", (), {"__annotations__": {"other": tw.i32}}))
    bus = tmp / "bus"
    write(bus / "a", defined(n=tw.i64)(7))
    write(bus / "b", (0x2002, bytes(4)))
    assert table(bus, view="messages", type="Fill").column("n").to_pylist() == [7]
    with pytest.raises(tw.InvalidOption, match="no such message: type=Fill"):
        table(bus / "b", view="messages", type="Fill")
