"""The offsets of fields, in agreement with struct, numpy and C."""

import ctypes

import numpy as np

import tapewire as tw


def test_fields_have_the_offsets_of_a_c_compiler(fill):
    class InC(ctypes.LittleEndianStructure):
        _fields_ = (
            ("order_id", ctypes.c_uint64),
            ("price", ctypes.c_int64),
            ("qty", ctypes.c_int64),
            ("side", ctypes.c_uint8),
            ("venue", ctypes.c_char * 8),
        )

    layout = fill.layout()
    assert layout.size == ctypes.sizeof(InC) == 40
    for field in layout.fields:
        assert field.offset == getattr(InC, field.name).offset


def test_reserved_bytes_are_written_as_zeros_and_ignored_when_read(fill):
    message = fill(2**64 - 1, -1, -1, 255, "ÿÿÿÿ")
    payload = bytearray(bytes(message))
    assert payload[33:] == bytes(7)
    payload[33:] = b"garbage"
    assert fill.decode(payload) == message


def test_the_dtype_has_the_offsets_and_the_size_of_the_layout(fill):
    row = np.frombuffer(bytes(fill(7, -2, 3, 1, "XNAS")), fill.dtype)[0]
    assert row.tolist() == (7, -2, 3, 1, b"XNAS")
    assert fill.dtype.itemsize == 40
    assert {name: at for name, (_, at) in fill.dtype.fields.items()} == {
        "order_id": 0,
        "price": 8,
        "qty": 16,
        "side": 24,
        "venue": 25,
    }


def test_the_layout_prints_as_a_table():
    @tw.message(0x2F02, version=3)
    class Mixed:
        a: tw.u8
        b: tw.f32[2]
        c: tw.u8

    assert str(Mixed.layout()).splitlines() == [
        "Mixed: type_id=0x2F02 version=3 size=16",
        "  offset  size  type   field",
        "       0     1  u8     a",
        "       1     3  -      reserved",
        "       4     8  f32[2] b",
        "      12     1  u8     c",
        "      13     3  -      reserved",
    ]
